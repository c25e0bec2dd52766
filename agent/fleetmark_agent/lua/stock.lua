-- Scripts that are not ours: sysbench's own (oltp_*.lua) or a user's file. Their `event` becomes
-- the role `event`; `thread_init` makes its connection, here as in plain sysbench.

local M = {}

local function load_script(name)
   local directory = name:match("^(.*)/[^/]*$")
   if not directory then
      return require(name)
   end
   package.path = directory .. "/?.lua;" .. package.path
   return dofile(name)
end

-- Wrap the `commit` that oltp_common.lua and scripts made after it call, so that a connection
-- lost in it is counted apart.
local function watch_commit(t)
   local commit = commit
   if type(commit) ~= "function" then
      return
   end
   function _G.commit()
      t.committing = true
      commit()
      t.committing = false
   end
end

-- Load a script. Returns a table of roles as one of ours, or one made around its `event`.
function M.adopt(name)
   local plain_run = thread_run
   local module = load_script(name)
   if type(module) == "table" and module.roles then
      return module
   end
   if type(event) ~= "function" then
      error("script " .. name .. " has no function event", 0)
   end
   if thread_run ~= plain_run then
      error("script " .. name .. " has a loop of its own (thread_run)", 0)
   end
   local start, work, done, check = thread_init, event, thread_done, init
   if check then
      check()
   end
   local script = { roles = { event = {} } }

   -- A script does not tell how many rows and statements an event had: both stay 0.
   function script.roles.event.event(t)
      if work(t.id) then
         return false
      end
      return 0, 0
   end

   function script.roles.event.prepare(t)
      watch_commit(t)
   end

   function script.connect(t)
      if start then
         start(t.id)
      end
   end

   function script.roll_back()
      if con then
         con:query("ROLLBACK")
      end
   end

   function script.disconnect(t)
      if done then
         done(t.id)
      end
   end

   return script
end

return M
