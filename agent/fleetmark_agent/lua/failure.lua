-- What is done when an operation fails: count it by kind, then retry, drop or give up, as the
-- policy of the step (`on_error`) says.
--
-- sysbench's own reconnect crashes with the client library of some distributions, so a lost
-- connection is replaced here by a new one.

local shm = require("shm")
local clock = require("clock")

local M = {}

local KINDS = {
   [1213] = "deadlock",
   [1020] = "deadlock", -- a snapshot that cannot be kept: the transaction must start again
   [1205] = "lock_wait",
   -- Client: cannot connect, gone, lost.
   [2002] = "connection", [2003] = "connection", [2006] = "connection", [2011] = "connection",
   [2013] = "connection", [2055] = "connection",
   -- Server: shutting down, aborted, packets lost, killed, idle for too long.
   [1053] = "connection", [1152] = "connection", [1158] = "connection", [1159] = "connection",
   [1160] = "connection", [1161] = "connection", [1927] = "connection", [4031] = "connection",
}

local WORDS = {
   deadlock = shm.S_ERROR_DEADLOCK,
   lock_wait = shm.S_ERROR_LOCK_WAIT,
   connection = shm.S_ERROR_CONNECTION,
   commit_unknown = shm.S_ERROR_COMMIT_UNKNOWN,
   other = shm.S_ERROR_OTHER,
}

local FIRST_PAUSE_US = 50e3
local LAST_PAUSE_US = 1e6
local SLICE_US = 50e3

-- Whether the thread must end: asked by the agent, load over, or out of time.
function M.must_end(t)
   local words = t.words
   return words[shm.H_STOP] ~= 0 or words[shm.H_FINISHED] ~= 0
      or (t.end_us ~= nil and clock.monotonic_us() >= t.end_us)
end

-- Sleep in slices, so that a stop is seen. Returns false when the thread must end.
local function pause(t, us)
   local wake = clock.monotonic_us() + us
   while true do
      if M.must_end(t) then
         return false
      end
      local now = clock.monotonic_us()
      if now >= wake then
         return true
      end
      clock.sleep_to_us(math.min(wake, now + SLICE_US))
   end
end

-- An error of the server as text, anything else as it is.
function M.describe(problem)
   if type(problem) == "table" and problem.sql_errno then
      return string.format("error %d: %s", problem.sql_errno, problem.sql_errmsg)
   end
   return tostring(problem)
end

local function is_sql(problem)
   return type(problem) == "table" and problem.sql_errno ~= nil
end

local function is_connection(problem)
   if is_sql(problem) then
      return KINDS[problem.sql_errno] == "connection" or problem.sql_errno == 1040
   end
   return tostring(problem):find("connection creation failed", 1, true) ~= nil
end

-- Connect again until it works. Returns false when the thread must end first; raises when the
-- server stays away for longer than `reconnect_seconds`.
local function reconnect(t)
   local give_up_us = clock.monotonic_us() + t.reconnect_seconds * 1e6
   local wait_us = FIRST_PAUSE_US
   while true do
      local ok, problem = pcall(t.connect, t)
      if ok then
         t.slot[shm.S_RECONNECTS] = t.slot[shm.S_RECONNECTS] + 1
         return true
      end
      if not is_connection(problem) then
         error(problem, 0)
      end
      if clock.monotonic_us() >= give_up_us then
         error(string.format("no connection for %g seconds", t.reconnect_seconds), 0)
      end
      if not pause(t, wait_us) then
         return false
      end
      wait_us = math.min(wait_us * 2, LAST_PAUSE_US)
   end
end

local function count(t, problem)
   local kind = KINDS[problem.sql_errno] or "other"
   -- A statement that commits and is lost on the way may have been done or not.
   local counted = kind
   if kind == "connection" and (t.committing or t.role.autocommit) then
      counted = "commit_unknown"
   end
   local word = WORDS[counted]
   t.slot[word] = t.slot[word] + 1
   t.slot[shm.S_STATUS] = problem.sql_errno
   return kind
end

-- An error leaves a transaction half done, unless the server itself rolled it back.
local function roll_back(t)
   local ok, problem = pcall(t.roll_back, t)
   if ok then
      return true
   end
   if not is_connection(problem) then
      error(problem, 0)
   end
   return reconnect(t)
end

-- Deal with what `pcall` caught. Returns true to try the same operation again, false to drop it;
-- raises when the thread must fail.
function M.handle(t, problem)
   if not is_sql(problem) then
      error(problem, 0)
   end
   local kind = count(t, problem)
   t.committing = false
   if t.on_error == "stop" or (t.on_error == "retry" and kind == "other") then
      error(problem, 0)
   end
   local usable
   if kind == "connection" then
      usable = reconnect(t)
   else
      usable = kind == "deadlock" or roll_back(t)
   end
   if not usable then
      return false
   end
   if t.on_error == "retry" then
      t.slot[shm.S_RETRIES] = t.slot[shm.S_RETRIES] + 1
      return true
   end
   if kind == "other" then
      -- A statement that always fails must not spin and fill the log.
      t.trouble = math.min(t.trouble + 1, 10)
      pause(t, 2 ^ t.trouble * 1e3)
   end
   return false
end

return M
