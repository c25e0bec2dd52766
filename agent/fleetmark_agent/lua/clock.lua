-- Clocks and sleeping. Latencies and schedules use the monotonic clock, which no time service
-- moves; the start and what is stored use the wall clock.

local ffi = require("ffi")

ffi.cdef [[
typedef struct { int64_t seconds; int64_t nanoseconds; } fleetmark_time;
int clock_gettime(int clock, fleetmark_time *time);
int clock_nanosleep(int clock, int flags, const fleetmark_time *request, void *remain);
int prctl(int option, ...);
]]

local M = {}

local C = ffi.C
local REALTIME, MONOTONIC = 0, 1
local ABSOLUTE = 1
local PR_SET_TIMERSLACK = 29

local read = ffi.new("fleetmark_time[1]")
local request = ffi.new("fleetmark_time[1]")

-- Microseconds of the monotonic clock.
function M.monotonic_us()
   C.clock_gettime(MONOTONIC, read)
   return tonumber(read[0].seconds) * 1e6 + tonumber(read[0].nanoseconds) * 1e-3
end

-- Seconds since the epoch.
function M.wall_seconds()
   C.clock_gettime(REALTIME, read)
   return tonumber(read[0].seconds) + tonumber(read[0].nanoseconds) * 1e-9
end

local function sleep_to(clock, seconds)
   local whole = math.floor(seconds)
   request[0].seconds = whole
   request[0].nanoseconds = math.floor((seconds - whole) * 1e9)
   C.clock_nanosleep(clock, ABSOLUTE, request, nil)
end

-- Sleep until the monotonic clock shows `us`; a signal may end it early.
function M.sleep_to_us(us)
   sleep_to(MONOTONIC, us * 1e-6)
end

-- Sleep for a time. For polling; a schedule uses sleep_to_us.
function M.sleep_us(us)
   sleep_to(MONOTONIC, (M.monotonic_us() + us) * 1e-6)
end

-- Sleep until the wall clock shows `seconds`.
function M.sleep_to_wall(seconds)
   sleep_to(REALTIME, seconds)
end

-- Linux may wake a thread 50 us late to save power; the calling thread asks for 1 ns.
function M.exact_wakeups()
   C.prctl(PR_SET_TIMERSLACK, ffi.cast("unsigned long", 1))
end

return M
