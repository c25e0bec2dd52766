-- The Insert Benchmark: rows in key order, random secondary index keys, deletes from the other
-- end of the table, range and point queries. Follows M. Callaghan's version of December 2023.

local ffi = require("ffi")
local shm = require("shm")
local clock = require("clock")
local sql = require("sql")
local text = require("text")

local put, put_integer = text.put, text.put_integer
local random, floor = math.random, math.floor

local RANDOM_BYTES = 4 * 1024 * 1024
local BASE64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
local LOWER_A = 97

local REGISTERS, CUSTOMERS, PRODUCTS, PRICES = 1000, 100000, 10000, 500
local INDEXES = {
   { name = "marketsegment", columns = "productid, customerid, price", from = ">=", range = PRODUCTS },
   { name = "registersegment", columns = "cashregisterid, customerid, price", from = ">", range = REGISTERS },
   { name = "pdc", columns = "price, dateandtime, customerid", from = ">=", range = PRICES },
}

-- Inserter and deleter of one client stay within this many statements of each other.
local MAX_LEAD = 8
local MIN_EVERY = 1000
local MAX_EVERY = 100
local RANGE_ROWS = 10
local POINT_IDS = 10

-- What the user words of a slot mean here (docs/formats.md).
local U_RANGE_ROWS = shm.S_USER
local U_POINT_ROWS = shm.S_USER + 1
local U_INDEX_SECONDS = shm.S_USER + 2
local U_LOWEST_ID = shm.S_USER + 3

local M = { roles = {} }

-- 4 MiB of random base64 characters, once a process: the data column is cut out of it.
function M.setup(params)
   math.randomseed((params.options.seed or 0) + 1)
   ffi.cdef("void *malloc(size_t bytes);")
   local memory = ffi.cast("uint8_t *", ffi.C.malloc(RANDOM_BYTES))
   if memory == nil then
      error("no memory for the random buffer", 0)
   end
   for i = 0, RANDOM_BYTES - 1 do
      memory[i] = BASE64:byte(random(1, 64))
   end
   return memory
end

local function client_of(t)
   return (t.options.first_client or 1) + t.index % (t.options.clients or t.stream.threads)
end

local function table_of(t)
   return t.options.one_table and "pi1" or string.format("pi%d", client_of(t))
end

-- The slot of the thread that does `role` for the same client, or nil.
local function partner(t, role)
   for _, stream in ipairs(t.streams) do
      if stream.role == role and t.index < stream.threads then
         return shm.slot(t.words, stream.first_thread + t.index)
      end
   end
   return nil
end

-- Whether a thread is less than MAX_LEAD statements ahead of its partner.
local function in_step(t)
   local other = t.partner
   return other == nil or t.slot[shm.S_OPERATIONS] - other[shm.S_OPERATIONS] < MAX_LEAD
      or other[shm.S_STATE] >= shm.STATE_DONE
end

local function create_table(t)
   -- Many clients share one table, and any of them may come first. A table of one client's own
   -- that is there already belongs to somebody else: the server's error says so.
   sql.query(t, string.format([[CREATE TABLE %s%s (
transactionid BIGINT NOT NULL AUTO_INCREMENT,
dateandtime DATETIME,
cashregisterid INT NOT NULL,
customerid INT NOT NULL,
productid INT NOT NULL,
price INT NOT NULL,
data VARCHAR(4000),
PRIMARY KEY (transactionid)) ENGINE=%s]],
      t.options.one_table and "IF NOT EXISTS " or "", table_of(t), t.options.engine or "InnoDB"))
end

-- Rows ------------------------------------------------------------------------------------------

local function start_writer(t)
   local o = t.options
   local prefix = "INSERT INTO " .. table_of(t)
      .. " (dateandtime, cashregisterid, customerid, productid, price, data) VALUES "
   t.data_min, t.data_max = o.data_length_min or 10, o.data_length_max or 20
   -- A row without its data is shorter than 64 bytes.
   t.buffer = text.buffer(#prefix + o.rows_per_commit * (t.data_max + 64))
   t.body = put(t.buffer, 0, prefix)
   t.random_bytes = ffi.cast("uint8_t *", t.memory)
   t.stamp_second = 0
   t.stamp = ""
end

-- The client's local time, the same for all rows of a statement.
local function stamp(t)
   local second = floor(clock.wall_seconds())
   if second ~= t.stamp_second then
      t.stamp_second = second
      t.stamp = os.date("('%Y-%m-%d %H:%M:%S',", second)
   end
   return t.stamp
end

local function write_data(t, buffer, at)
   local length = random(t.data_min, t.data_max)
   local mixed = floor(length * 0.75 * 0.5)
   ffi.fill(buffer + at, length - mixed, LOWER_A)
   ffi.copy(buffer + at + length - mixed, t.random_bytes + random(0, RANDOM_BYTES - mixed), mixed)
   return at + length
end

local function write_rows(t, rows)
   local buffer, at, first = t.buffer, t.body, stamp(t)
   for _ = 1, rows do
      at = put(buffer, at, first)
      at = put_integer(buffer, at, random(0, REGISTERS - 1))
      buffer[at] = 44
      at = put_integer(buffer, at + 1, random(0, CUSTOMERS - 1))
      buffer[at] = 44
      at = put_integer(buffer, at + 1, random(0, PRODUCTS - 1))
      buffer[at] = 44
      at = put_integer(buffer, at + 1, random(0, PRICES - 1))
      at = put(buffer, at, ".00,'")
      at = write_data(t, buffer, at)
      at = put(buffer, at, "'),")
   end
   t.rows, t.length = rows, at - 1
end

-- Inserts ---------------------------------------------------------------------------------------

local insert = { autocommit = true }

function insert.prepare(t)
   t.share = t.options.rows_per_client
   t.done = 0
   t.partner = partner(t, "delete")
   if t.options.create_table then
      create_table(t)
   end
   start_writer(t)
end

function insert.finished(t)
   return t.done >= t.share
end

function insert.compose(t)
   write_rows(t, math.min(t.options.rows_per_commit, t.share - t.done))
end

insert.may_start = in_step

function insert.event(t)
   sql.send(t.con, t.buffer, t.length)
   t.done = t.done + t.rows
   return t.rows, 1
end

-- Deletes ---------------------------------------------------------------------------------------

local delete = { autocommit = true }

function delete.prepare(t)
   t.share = t.options.rows_per_client
   t.done = 0
   t.partner = partner(t, "insert")
   t.table_name = table_of(t)
end

-- What the lost connection was doing is unknown, so the lowest id is asked for again.
function delete.connected(t)
   t.lowest = nil
end

function delete.finished(t)
   return t.done >= t.share
end

function delete.compose(t)
   if t.lowest == nil or t.loops >= MIN_EVERY then
      t.lowest = sql.number(t, "SELECT MIN(transactionid) FROM " .. t.table_name) or 0
      t.loops = 0
      t.slot[U_LOWEST_ID] = t.lowest
   end
   t.rows = math.min(t.options.rows_per_commit, t.share - t.done)
   t.statement = string.format(
      "DELETE FROM %s WHERE transactionid >= %d ORDER BY transactionid LIMIT %d",
      t.table_name, t.lowest, t.rows)
end

delete.may_start = in_step

function delete.event(t)
   sql.query(t, t.statement)
   local deleted = sql.affected(t)
   t.done = t.done + deleted
   t.loops = t.loops + 1
   -- Not known after a new connection: asked for before the next statement.
   if t.lowest then
      t.lowest = t.lowest + deleted
      t.slot[U_LOWEST_ID] = t.lowest
   end
   if deleted < t.rows then
      -- The table ran empty: what is missing is deleted once it has been inserted.
      t.lowest = nil
      local inserter = t.partner
      if deleted == 0 and (inserter == nil or inserter[shm.S_STATE] >= shm.STATE_DONE) then
         t.share = t.done
      end
   end
   return deleted, 1
end

-- Index build -----------------------------------------------------------------------------------

local index = { autocommit = true }

local function alters(t)
   local one_by_one = (t.options.engine or ""):lower() == "rocksdb"
   local parts, statements = {}, {}
   for _, this in ipairs(INDEXES) do
      local part = string.format("ADD INDEX %s (%s)", this.name, this.columns)
      parts[#parts + 1] = part
      statements[#statements + 1] = string.format("ALTER TABLE %s %s", table_of(t), part)
   end
   if one_by_one then
      return statements
   end
   return { string.format("ALTER TABLE %s %s", table_of(t), table.concat(parts, ", ")) }
end

-- Ids have no gaps here, so the two ends tell the number of rows without a scan that would warm
-- the caches.
function index.prepare(t)
   start_writer(t)
   write_rows(t, t.options.rows_per_commit)
   t.standing = sql.number(t, string.format(
      "SELECT MAX(transactionid) - MIN(transactionid) + 1 FROM %s", table_of(t))) or 0
   t.work = alters(t)
   t.at = 0
end

function index.finished(t)
   return t.at > #t.work
end

function index.event(t)
   if t.at == 0 then
      sql.send(t.con, t.buffer, t.length)
      t.at = 1
      return t.rows, 1
   end
   local start = clock.monotonic_us()
   sql.query(t, t.work[t.at])
   t.slot[U_INDEX_SECONDS] = t.slot[U_INDEX_SECONDS] + (clock.monotonic_us() - start) * 1e-6
   t.at = t.at + 1
   -- The rows count when the last index is there.
   return t.at > #t.work and t.standing or 0, 1
end

-- Queries ---------------------------------------------------------------------------------------

local range = {}

function range.prepare(t)
   t.forms = {}
   for i, this in ipairs(INDEXES) do
      local first = this.columns:match("^[^,]*")
      t.forms[i] = string.format("SELECT %s FROM %s FORCE INDEX (%s) WHERE %s %s ", this.columns,
         table_of(t), this.name, first, this.from) .. "%d ORDER BY " .. this.columns
         .. " LIMIT " .. RANGE_ROWS
   end
end

function range.compose(t)
   local which = random(1, #INDEXES)
   t.statement = string.format(t.forms[which], random(0, INDEXES[which].range - 1))
end

function range.event(t)
   local rows = sql.count_rows(t, t.statement)
   t.slot[U_RANGE_ROWS] = t.slot[U_RANGE_ROWS] + rows
   return rows, 1
end

local point = {}

function point.prepare(t)
   t.table_name = table_of(t)
   t.deleter = partner(t, "delete")
   t.loops = 0
   t.form = "SELECT transactionid, productid, data FROM " .. t.table_name
      .. " WHERE transactionid IN (" .. string.rep("%d,", POINT_IDS - 1) .. "%d)"
end

function point.connected(t)
   t.highest = nil
end

-- The ends of the table: the lower one is the deleter's, the upper one is read now and then.
local function look_at_ends(t)
   if t.highest == nil or t.loops >= MAX_EVERY then
      t.highest = sql.number(t, "SELECT MAX(transactionid) FROM " .. t.table_name) or 1
      t.loops = 0
   end
   t.loops = t.loops + 1
   local lowest = t.deleter and t.deleter[U_LOWEST_ID] or 0
   if lowest == 0 then
      t.own_lowest = t.own_lowest
         or sql.number(t, "SELECT MIN(transactionid) FROM " .. t.table_name) or 0
      lowest = t.own_lowest
   end
   return lowest, math.max(t.highest - 1, lowest)
end

function point.compose(t)
   local a, b = look_at_ends(t)
   t.statement = string.format(t.form, random(a, b), random(a, b), random(a, b), random(a, b),
      random(a, b), random(a, b), random(a, b), random(a, b), random(a, b), random(a, b))
end

function point.event(t)
   local rows = sql.count_rows(t, t.statement)
   t.slot[U_POINT_ROWS] = t.slot[U_POINT_ROWS] + rows
   return rows, 1
end

M.roles = { insert = insert, delete = delete, index = index, range = range, point = point }

return M
