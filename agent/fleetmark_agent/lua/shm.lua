-- The load threads' side of the telemetry file. Layout: fleetmark_agent/shm.py; a test compares.
--
-- Every number is a double. A thread writes its own slot only. The agent writes H_STOP and
-- H_RELEASE_TIME; H_FINISHED is written by whichever thread finds that the load is over, always
-- with the same value, so no lock is needed.

local ffi = require("ffi")
local bit = require("bit")

ffi.cdef [[
int open(const char *path, int flags, ...);
int close(int fd);
void *mmap(void *addr, size_t length, int prot, int flags, int fd, int64_t offset);
]]

local M = {
   MAGIC = 7235021,
   LAYOUT_VERSION = 1,
   HEADER_WORDS = 64,

   H_MAGIC = 0,
   H_VERSION = 1,
   H_THREADS = 2,
   H_SLOT_WORDS = 3,
   H_STOP = 4,
   H_RELEASE_TIME = 5,
   H_BUCKETS = 6,
   H_FINISHED = 7,
   H_SCRIPT_MEMORY = 8,

   S_STATE = 0,
   S_FIRST_EVENT_TIME = 1,
   S_LAST_EVENT_TIME = 2,
   S_OPERATIONS = 3,
   S_ROWS = 4,
   S_STATEMENTS = 5,
   S_ERROR_DEADLOCK = 6,
   S_ERROR_LOCK_WAIT = 7,
   S_ERROR_CONNECTION = 8,
   S_ERROR_COMMIT_UNKNOWN = 9,
   S_ERROR_OTHER = 10,
   S_RETRIES = 11,
   S_RECONNECTS = 12,
   S_SERVICE_SUM_US = 13,
   S_SERVICE_MAX_US = 14,
   S_RESPONSE_SUM_US = 15,
   S_RESPONSE_MAX_US = 16,
   S_LAG_SECONDS = 17,
   S_STATUS = 18,
   S_UNLIMITED = 19,
   S_USER = 20,
   USER_WORDS = 12,
   S_SERVICE_HISTOGRAM = 32,
   BUCKETS = 1024,
   S_RESPONSE_HISTOGRAM = 1056,
   SLOT_WORDS = 2080,

   STATE_NEW = 0,
   STATE_READY = 1,
   STATE_RUNNING = 2,
   STATE_DONE = 3,
   STATE_FAILED = 4,
}

local O_RDWR = 2
local PROT_READ_WRITE = 3
local MAP_SHARED = 1

-- Map the file of this job. Returns a pointer to its first word; raises a plain message.
function M.map(path, threads)
   local fd = ffi.C.open(path, O_RDWR)
   if fd < 0 then
      error("cannot open the telemetry file " .. path .. ", errno " .. ffi.errno(), 0)
   end
   local bytes = (M.HEADER_WORDS + threads * M.SLOT_WORDS) * 8
   local address = ffi.C.mmap(nil, bytes, PROT_READ_WRITE, MAP_SHARED, fd, 0)
   ffi.C.close(fd)
   if ffi.cast("intptr_t", address) == -1 then
      error("cannot map the telemetry file " .. path .. ", errno " .. ffi.errno(), 0)
   end
   local words = ffi.cast("double *", address)
   if words[M.H_MAGIC] ~= M.MAGIC or words[M.H_VERSION] ~= M.LAYOUT_VERSION
      or words[M.H_THREADS] ~= threads or words[M.H_SLOT_WORDS] ~= M.SLOT_WORDS then
      error("the telemetry file " .. path .. " has another layout", 0)
   end
   return words
end

-- A pointer to the slot of a thread.
function M.slot(words, thread)
   return words + M.HEADER_WORDS + thread * M.SLOT_WORDS
end

-- One double seen as two 32-bit halves: the exponent and the first bits of the mantissa are the
-- bucket. One cell a Lua state, made once, so that the loop allocates nothing.
local cell = ffi.new("union { double value; int32_t half[2]; }")
local HIGH = ffi.abi("le") and 1 or 0
local LAST_BUCKET = M.BUCKETS - 1
local BIAS = 1023 * 32

-- The bucket of a latency in microseconds, as histogram.bucket_of.
function M.bucket_of(us)
   if not (us >= 1) then
      return 0
   end
   cell.value = us
   local bucket = bit.rshift(cell.half[HIGH], 15) - BIAS
   if bucket > LAST_BUCKET then
      return LAST_BUCKET
   end
   return bucket
end

return M
