-- The load frame: what sysbench runs for every workload.
--
-- It stands in <job>/lua/, reads <job>/params.lua (written by the agent), maps <job>/shm and
-- replaces sysbench's own loop. A script gives roles; each stream of the load names one. A role
-- is a table of functions of one argument, the thread `t`; all but `event` may be left out:
--
--    prepare(t)     once, connected, before the thread is ready
--    connected(t)   after each new connection
--    finished(t)    true when the thread has done its share
--    compose(t)     makes the next operation; its time is not latency
--    may_start(t)   false to wait for another thread
--    event(t)       does the operation; returns rows and statements, or false to end the thread
--    autocommit     true when each statement of `event` is a transaction of its own
--
-- `t` has: con, slot (telemetry), index (within the stream), options (of load and stream),
-- stream, committing (set it around a COMMIT), memory (what `setup` returned).
-- A script may have setup(params): called once a process, returns an address that all threads get.

local ffi = require("ffi")
-- sysbench sets each of its options as a global, `debug` among them.
local here = require("debug").getinfo(1, "S").source:match("^@(.*)/lua/[^/]*$")
package.path = here .. "/lua/?.lua;" .. package.path

local shm = require("shm")
local clock = require("clock")
local sql = require("sql")
local failure = require("failure")
local loop = require("loop")

local DEFAULT_RECONNECT_SECONDS = 60

local params = dofile(here .. "/params.lua")
local script
if params.kind == "package" then
   script = require(params.script)
else
   script = require("stock").adopt(params.script)
end

local threads = 0
for _, stream in ipairs(params.streams) do
   threads = threads + stream.threads
   if not script.roles[stream.role] then
      error(string.format("script %s has no role %s", params.script, stream.role), 0)
   end
end

-- sysbench wants one, but only its own loop would call it.
event = event or function()
end

-- Every SQL error reaches the loop as a table; nothing is decided by sysbench.
function sysbench.hooks.sql_error_ignorable()
   return true
end

function init()
   local words = shm.map(here .. "/shm", threads)
   if script.setup then
      words[shm.H_SCRIPT_MEMORY] = tonumber(ffi.cast("intptr_t", script.setup(params)))
   end
end

-- Connecting waits for the loop: sysbench gives up on a thread_init after 30 seconds.
function thread_init()
end

function thread_done()
end

local function merged(first, second)
   local all = {}
   for key, value in pairs(first) do
      all[key] = value
   end
   for key, value in pairs(second) do
      all[key] = value
   end
   return all
end

local function stream_of(thread)
   for _, stream in ipairs(params.streams) do
      if thread < stream.first_thread + stream.threads then
         return stream
      end
   end
end

-- The same run gives each thread the same random numbers, and no two threads the same ones: the
-- text below is hashed for the step and the stream, the number of the client stands beside it.
local function seed_random(t)
   local hash = 5381
   local text = string.format("%s/%s/%s", t.options.seed or 0, t.options.phase or params.script,
      t.stream.name)
   for i = 1, #text do
      hash = (hash * 33 + text:byte(i)) % 4294967291
   end
   math.randomseed(hash * 1048576 + ((t.options.first_client or 1) + t.index) % 1048576)
end

local function new_thread(id)
   local words = shm.map(here .. "/shm", threads)
   local stream = stream_of(id)
   local t = {
      id = id,
      words = words,
      slot = shm.slot(words, id),
      stream = stream,
      streams = params.streams,
      role = script.roles[stream.role],
      index = id - stream.first_thread,
      options = merged(params.options, stream.options),
      on_error = params.on_error,
      reconnect_seconds = params.options.reconnect_seconds or DEFAULT_RECONNECT_SECONDS,
      trouble = 0,
      committing = false,
      connect = script.connect or sql.connect,
      roll_back = script.roll_back or sql.roll_back,
      memory = words[shm.H_SCRIPT_MEMORY],
   }
   seed_random(t)
   return t
end

-- The load is over when all threads that define the step are done: whoever is last says so.
local function announce_end(t)
   if not t.stream.defining then
      return
   end
   -- Two threads may end at once. After a sleep each sees what the other wrote before its own.
   clock.sleep_us(1000)
   for _, stream in ipairs(params.streams) do
      for id = stream.first_thread, stream.first_thread + stream.threads - 1 do
         if stream.defining and shm.slot(t.words, id)[shm.S_STATE] < shm.STATE_DONE then
            return
         end
      end
   end
   t.words[shm.H_FINISHED] = 1
end

local function live(t)
   t:connect()
   if t.role.prepare then
      t.role.prepare(t)
   end
   loop.run(t, params)
   if script.disconnect then
      script.disconnect(t)
   end
end

function thread_run(id)
   clock.exact_wakeups()
   local t = new_thread(id)
   local ok, problem = pcall(live, t)
   if ok then
      t.slot[shm.S_STATE] = shm.STATE_DONE
      announce_end(t)
      return
   end
   t.slot[shm.S_STATE] = shm.STATE_FAILED
   t.words[shm.H_FINISHED] = 1
   error(string.format("%s thread %d: %s", t.stream.name, t.index, failure.describe(problem)), 0)
end
