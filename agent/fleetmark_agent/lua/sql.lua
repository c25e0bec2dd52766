-- Statements of the frame's own scripts: text protocol, errors as tables.

local ffi = require("ffi")

local C = ffi.C

-- sysbench does not show the result of a statement without rows, but it stands in the connection
-- behind the fields that sysbench declares: kind of statement, affected rows. `connect` checks
-- that it does in this build; where it does not, the server is asked.
ffi.cdef [[
typedef struct {
   int error; int number; const char *state; const char *message; void *driver; void *own;
   uint32_t counter; uint32_t rows;
} fleetmark_connection;
]]
local COUNTED_AS_WRITE = 2
local view = ffi.typeof("fleetmark_connection *")

local M = {}

local function fail(con)
   if con.sql_errmsg == nil then
      error({ sql_errno = tonumber(con.sql_errno), sql_errmsg = "no message" }, 0)
   end
   error({ sql_errno = tonumber(con.sql_errno), sql_errmsg = ffi.string(con.sql_errmsg) }, 0)
end

-- Run `length` bytes of SQL. Returns the result set, or nil for a statement without one; raises
-- a table {sql_errno, sql_errmsg}.
function M.send(con, text, length)
   local result = C.db_query(con, text, length)
   if result == nil then
      if con.error ~= 0 then
         fail(con)
      end
      return nil
   end
   return result
end

-- Run a statement that is a Lua string.
function M.query(t, text)
   return M.send(t.con, text, #text)
end

-- Run a query and count its rows; they have all arrived when it returns.
function M.count_rows(t, text)
   local result = M.send(t.con, text, #text)
   if result == nil then
      return 0
   end
   local rows = result.nrows
   C.db_free_results(result)
   return rows
end

-- The first column of the first row as a number; nil for NULL or no row.
function M.number(t, text)
   local result = M.send(t.con, text, #text)
   if result == nil then
      return nil
   end
   local row = result.nrows > 0 and result:fetch_row() or nil
   C.db_free_results(result)
   return row and tonumber(row[1])
end

-- How many rows the last INSERT, UPDATE or DELETE touched.
function M.affected(t)
   if t.result_in_view then
      local con = ffi.cast(view, t.con)
      return con.counter == COUNTED_AS_WRITE and con.rows or 0
   end
   return M.number(t, "SELECT ROW_COUNT()")
end

local function result_in_view(con)
   local seen = ffi.cast(view, con)
   M.send(con, "DO 0", 4)
   if seen.counter ~= 0 then
      return false
   end
   local one_row = "SELECT 1 INTO @fleetmark"
   M.send(con, one_row, #one_row)
   return seen.counter == COUNTED_AS_WRITE and seen.rows == 1
end

-- Give the thread a new connection. The old one is freed by the collector, which closes it.
function M.connect(t)
   t.driver = t.driver or sysbench.sql.driver()
   t.con = t.driver:connect()
   t.result_in_view = result_in_view(t.con)
   if t.role.connected then
      t.role.connected(t)
   end
end

function M.roll_back(t)
   M.query(t, "ROLLBACK")
end

return M
