-- Statement text written straight into memory. A statement of a hundred rows made of Lua strings
-- costs twice as much client CPU as its sending.

local ffi = require("ffi")

local M = {}

local ZERO = 48

-- Memory for `bytes` bytes.
function M.buffer(bytes)
   return ffi.new("uint8_t[?]", bytes)
end

-- Write a string at `at`; returns the position behind it.
function M.put(buffer, at, string)
   ffi.copy(buffer + at, string, #string)
   return at + #string
end

-- Write a whole number that is not negative; returns the position behind it.
function M.put_integer(buffer, at, number)
   local behind = at + 1
   local limit = 10
   while number >= limit do
      limit = limit * 10
      behind = behind + 1
   end
   local position = behind
   repeat
      local rest = math.floor(number / 10)
      position = position - 1
      buffer[position] = ZERO + (number - rest * 10)
      number = rest
   until position == at
   return behind
end

return M
