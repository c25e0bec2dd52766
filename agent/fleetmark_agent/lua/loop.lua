-- The loop of one thread, from the release to its end.
--
-- Written for the trace compiler: no closure, table or string is made for an operation that
-- succeeds, and all that changes lives in the telemetry slot or in fields of `t`.

local ffi = require("ffi")
local shm = require("shm")
local clock = require("clock")
local pacing = require("pacing")
local failure = require("failure")

local C = ffi.C
local bucket_of = shm.bucket_of
local monotonic_us = clock.monotonic_us
local sleep_to_us = clock.sleep_to_us
local must_end = failure.must_end
local handle = failure.handle

local H_STOP, H_FINISHED = shm.H_STOP, shm.H_FINISHED
local S_OPERATIONS, S_ROWS, S_STATEMENTS = shm.S_OPERATIONS, shm.S_ROWS, shm.S_STATEMENTS
local S_FIRST, S_LAST = shm.S_FIRST_EVENT_TIME, shm.S_LAST_EVENT_TIME
local S_LAG, S_UNLIMITED = shm.S_LAG_SECONDS, shm.S_UNLIMITED
local SERVICE_SUM, SERVICE_MAX = shm.S_SERVICE_SUM_US, shm.S_SERVICE_MAX_US
local SERVICE = shm.S_SERVICE_HISTOGRAM
local RESPONSE_SUM, RESPONSE_MAX = shm.S_RESPONSE_SUM_US, shm.S_RESPONSE_MAX_US
local RESPONSE = shm.S_RESPONSE_HISTOGRAM

-- A stop must be seen within 100 ms while a thread waits for its turn.
local SLICE_US = 50e3
local TURN_POLL_US = 500

local M = {}

-- Wait until an operation is due. Returns false when the thread must end first.
local function wait_until_due(t, due)
   local now = monotonic_us()
   while now < due do
      if must_end(t) then
         return false
      end
      sleep_to_us(math.min(due, now + SLICE_US))
      now = monotonic_us()
   end
   t.slot[S_LAG] = (now - due) * 1e-6
   return true
end

-- Wait until the script lets the thread go on. Returns false when the thread must end first.
local function wait_for_turn(t, may_start)
   while not may_start(t) do
      if must_end(t) then
         return false
      end
      clock.sleep_us(TURN_POLL_US)
   end
   return true
end

-- Run one stage of an operation until it succeeds or is given up. Failed attempts stay in the
-- same latency sample. Returns whether it succeeded, then what the stage returned.
local function attempt(t, stage)
   local ok, rows, statements = pcall(stage, t)
   while not ok do
      if not handle(t, rows) or must_end(t) then
         return false
      end
      ok, rows, statements = pcall(stage, t)
   end
   return true, rows, statements
end

local function record(slot, us, sum, max, histogram)
   slot[sum] = slot[sum] + us
   if us > slot[max] then
      slot[max] = us
   end
   local bucket = histogram + bucket_of(us)
   slot[bucket] = slot[bucket] + 1
end

-- A limited stream that has done its share lasts to the end of its schedule, or a step of n
-- operations would be one interval too short and its rate too high.
local function last_out(t)
   local due = pacing.end_us(t)
   if due and due > monotonic_us() and wait_until_due(t, due) then
      t.slot[S_LAST] = t.wall_base + due * 1e-6
   end
end

-- Operations until the thread must end, the script says so, or the time is over.
local function operate(t, pace)
   local words, slot, id, base = t.words, t.slot, t.id, t.wall_base
   local role, end_us = t.role, t.end_us or math.huge
   local finished, compose, may_start, event = role.finished, role.compose, role.may_start, role.event
   local back_to_back = not (compose or pace or may_start)
   -- Without a schedule there is no due time; the reader takes the service times for both.
   slot[S_UNLIMITED] = pace and 0 or 1
   local now, due = monotonic_us(), 0
   while words[H_STOP] == 0 and words[H_FINISHED] == 0 and now < end_us do
      if finished and finished(t) then
         last_out(t)
         return
      end
      local ready = not compose or attempt(t, compose)
      if pace then
         due = pace(t)
         if not wait_until_due(t, due) or due >= end_us then
            return
         end
      end
      if may_start and not wait_for_turn(t, may_start) then
         return
      end
      if ready then
         C.sb_event_start(id)
         -- Back to back, an operation begins where the last one ended.
         local send = back_to_back and now or monotonic_us()
         if slot[S_FIRST] == 0 then
            slot[S_FIRST] = base + send * 1e-6
         end
         local ok, rows, statements = attempt(t, event)
         now = monotonic_us()
         if ok then
            if rows == false then
               return
            end
            C.sb_event_stop(id)
            record(slot, now - send, SERVICE_SUM, SERVICE_MAX, SERVICE)
            if pace then
               record(slot, now - due, RESPONSE_SUM, RESPONSE_MAX, RESPONSE)
            end
            slot[S_OPERATIONS] = slot[S_OPERATIONS] + 1
            slot[S_ROWS] = slot[S_ROWS] + rows
            slot[S_STATEMENTS] = slot[S_STATEMENTS] + statements
            slot[S_LAST] = base + now * 1e-6
            t.trouble = 0
         end
      else
         now = monotonic_us()
      end
   end
end

-- Wait for the release, with the connection open. Returns T0, or nil when asked to stop.
local function wait_for_release(t)
   local words = t.words
   while words[H_STOP] == 0 and words[H_FINISHED] == 0 do
      local at = words[shm.H_RELEASE_TIME]
      local left = at - clock.wall_seconds()
      if at > 0 and left < 0.06 then
         clock.sleep_to_wall(at)
         return at
      end
      -- Until T0 is known poll it often, then only for a stop.
      clock.sleep_us(at > 0 and SLICE_US or 5e3)
   end
   return nil
end

-- The whole life of a connected thread: release, operations, end.
function M.run(t, params)
   local slot = t.slot
   slot[shm.S_STATE] = shm.STATE_READY
   local at = wait_for_release(t)
   if at == nil then
      return
   end
   slot[shm.S_STATE] = shm.STATE_RUNNING
   t.start_us = monotonic_us() - (clock.wall_seconds() - at) * 1e6
   t.wall_base = at - t.start_us * 1e-6
   if params.duration_seconds > 0 then
      t.end_us = t.start_us + params.duration_seconds * 1e6
   end
   operate(t, pacing.start(t, params.pacing))
end

return M
