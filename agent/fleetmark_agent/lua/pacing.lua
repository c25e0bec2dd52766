-- When the operations of a limited stream are due, by the monotonic clock in microseconds.

local clock = require("clock")

local M = {}

-- Operation n of a thread is due at T0 + phase + n intervals, whatever happened before: what
-- could not be done in time is made up for. The phase spreads the threads over an interval.
local function catch_up(t)
   local turn = t.turn
   t.turn = turn + 1
   return t.first_due_us + turn * t.interval_us
end

-- Bursts of whole seconds as the Insert Benchmark is published: the end of the second is waited
-- for after operation 0 and then after each `burst` operations, but only when there is time left,
-- so a deficit stays. All operations of a burst are due when it begins.
local function published(t)
   local turn = t.turn
   t.turn = turn + 1
   if turn > 0 and (turn - 1) % t.burst == 0 then
      t.window_us = math.max(t.window_us + 1e6, clock.monotonic_us())
   end
   return t.window_us
end

-- Set up the schedule of a thread whose T0 is known. Returns the function that gives the next due
-- time, or nil for a stream without a limit.
function M.start(t, pacing)
   local stream = t.stream
   if not (stream.rate_per_second > 0) then
      return nil
   end
   t.turn = 0
   if pacing == "published" then
      t.burst = math.max(1, math.ceil(stream.rate_per_second / stream.threads - 1e-9))
      t.window_us = t.start_us
      return published
   end
   t.interval_us = 1e6 * stream.threads / stream.rate_per_second
   t.first_due_us = t.start_us + t.interval_us * t.index / stream.threads
   return catch_up
end

-- When the schedule of the operations so far ends: one interval after the last was due, without
-- the thread's phase. Nil for a stream without a limit and for published pacing, which ends with
-- its last operation.
function M.end_us(t)
   return t.interval_us and t.start_us + t.turn * t.interval_us
end

return M
