"""The DBMS sampler: what the server did in an interval, from SHOW GLOBAL STATUS and /proc.

One connection, one statement an interval, and only names that somebody reads: asking for all
costs the server and the agent several times as much.
"""

import os
import time
from typing import Any, Dict, List, Optional

import pymysql

from fleetmark_agent import process
from fleetmark_agent.job import Connection

_COUNTERS = """
Aborted_clients Aborted_connects Binlog_commits Binlog_group_commits Binlog_bytes_written
Binlog_cache_disk_use Bytes_received Bytes_sent Com_commit Com_delete Com_insert Com_replace
Com_rollback Com_select Com_stmt_execute Com_stmt_prepare Com_update Com_begin Connections
Created_tmp_disk_tables Created_tmp_tables Handler_commit Handler_delete Handler_read_first
Handler_read_key Handler_read_next Handler_read_prev Handler_read_rnd Handler_read_rnd_next
Handler_rollback Handler_update Handler_write
Innodb_buffer_pool_pages_flushed Innodb_buffer_pool_pages_lru_flushed
Innodb_buffer_pool_pages_made_young Innodb_buffer_pool_read_ahead
Innodb_buffer_pool_read_ahead_rnd Innodb_buffer_pool_read_requests Innodb_buffer_pool_reads
Innodb_buffer_pool_wait_free Innodb_buffer_pool_write_requests Innodb_data_fsyncs
Innodb_data_read Innodb_data_reads Innodb_data_writes Innodb_data_written
Innodb_dblwr_pages_written Innodb_dblwr_writes Innodb_deadlocks Innodb_ibuf_merges
Innodb_ibuf_merged_inserts Innodb_ibuf_merged_deletes Innodb_ibuf_merged_delete_marks
Innodb_log_waits Innodb_log_write_requests Innodb_log_writes Innodb_lsn_current
Innodb_os_log_fsyncs Innodb_os_log_written Innodb_pages_created Innodb_pages_read
Innodb_pages_written Innodb_row_lock_time Innodb_row_lock_waits Innodb_rows_deleted
Innodb_rows_inserted Innodb_rows_read Innodb_rows_updated Innodb_undo_truncations
Opened_tables Queries Questions Select_full_join Select_scan Slow_queries Sort_merge_passes
Sort_rows Table_locks_waited Threads_created Transactions_multi_engine
Rocksdb_block_cache_hit Rocksdb_block_cache_miss Rocksdb_bytes_read Rocksdb_bytes_written
Rocksdb_compact_read_bytes Rocksdb_compact_write_bytes Rocksdb_flush_write_bytes
Rocksdb_number_keys_read Rocksdb_number_keys_written Rocksdb_rows_deleted
Rocksdb_rows_inserted Rocksdb_rows_read Rocksdb_rows_updated Rocksdb_stall_micros
Rocksdb_wal_bytes Rocksdb_wal_synced Rocksdb_write_wal
""".split()  # noqa: SIM905

_GAUGES = """
Innodb_buffer_pool_bytes_data Innodb_buffer_pool_bytes_dirty Innodb_buffer_pool_pages_data
Innodb_buffer_pool_pages_dirty Innodb_buffer_pool_pages_free Innodb_buffer_pool_pages_misc
Innodb_buffer_pool_pages_total Innodb_checkpoint_age Innodb_checkpoint_max_age
Innodb_data_pending_fsyncs Innodb_data_pending_reads Innodb_data_pending_writes
Innodb_history_list_length Innodb_ibuf_size Innodb_os_log_pending_fsyncs
Innodb_row_lock_current_waits Innodb_num_open_files Max_used_connections Memory_used
Open_tables Open_table_definitions Threads_cached Threads_connected Threads_running
Rocksdb_memtable_total Rocksdb_num_running_compactions Rocksdb_num_running_flushes
""".split()  # noqa: SIM905

_STATEMENT = "SHOW GLOBAL STATUS WHERE Variable_name IN (%s)" % ",".join(
    "'%s'" % name for name in sorted(_COUNTERS + _GAUGES)
)
_GAUGE_SET = frozenset(name.lower() for name in _GAUGES)
_CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_SWITCHES_MAX_TASKS = 100


def connect(connection: Connection, password: str, timeout_seconds: float = 10.0) -> Any:
    """A connection to the DBMS: by its socket where that is set. Raises pymysql.Error."""
    place: Dict[str, Any] = (
        {"unix_socket": connection.socket}
        if connection.socket
        else {"host": connection.host, "port": connection.port}
    )
    return pymysql.connect(
        user=connection.user,
        password=password,
        autocommit=True,
        connect_timeout=max(1, round(timeout_seconds)),
        read_timeout=timeout_seconds,
        write_timeout=timeout_seconds,
        **place,
    )


def number(text: Any) -> Optional[float]:
    """A status value as a number, None when it is text. Whole numbers stay whole."""
    try:
        return int(text)
    except (TypeError, ValueError):
        pass
    try:
        return float(text)
    except (TypeError, ValueError):
        return None


def whole_status(connection: Any) -> Dict[str, str]:
    """All of SHOW GLOBAL STATUS, names as the server writes them."""
    with connection.cursor() as cursor:
        cursor.execute("SHOW GLOBAL STATUS")
        return {str(name): str(value) for name, value in cursor.fetchall()}


def interval_status(now: Dict[str, float], before: Dict[str, float]) -> Dict[str, float]:
    """Counters as what they grew by, gauges as they are."""
    return {
        name: value if name.lower() in _GAUGE_SET else value - before.get(name, value)
        for name, value in now.items()
    }


class DbmsSampler:
    """Asks one server through one connection and gives `dbms` records.

    Reconnects by itself. `sample` raises pymysql.Error or OSError while the server does not
    answer; the next record then covers the longer time.
    """

    def __init__(self, connection: Connection, password: str, pid_file: str) -> None:
        self._target = connection
        self._password = password
        self._pid = server_pid(pid_file) if pid_file else None
        self._connection: Any = None
        self._status: Dict[str, float] = {}
        self._tasks: Dict[str, int] = {}
        self._process: Dict[str, float] = {}
        self._at = 0.0

    def _open(self) -> Any:
        if self._connection is None:
            self._connection = connect(self._target, self._password)
        return self._connection

    def _ask(self) -> Dict[str, float]:
        try:
            with self._open().cursor() as cursor:
                cursor.execute(_STATEMENT)
                rows = cursor.fetchall()
        except (pymysql.Error, OSError):
            self.close()
            raise
        status = {}
        for name, text in rows:
            value = number(text)
            if value is not None:
                status[str(name)] = value
        return status

    def begin(self) -> None:
        """Take the values from which the first record counts."""
        self._status = self._ask()
        self._at = time.monotonic()
        self._process = self._process_counters()

    def sample(self) -> Dict[str, Any]:
        """The `dbms` record of the time since the last call."""
        start = time.monotonic()
        status = self._ask()
        now = time.monotonic()
        counters = self._process_counters()
        record = {
            "interval_seconds": round(now - self._at, 6),
            "status": interval_status(status, self._status),
            "process": {
                name: value if name == "rss_bytes" else round(value - self._process[name], 6)
                for name, value in counters.items()
                if name == "rss_bytes" or name in self._process
            },
            "query_seconds": round(now - start, 6),
        }
        self._status, self._at, self._process = status, now, counters
        return record

    def whole_status(self) -> Dict[str, str]:
        """All of SHOW GLOBAL STATUS."""
        try:
            return whole_status(self._open())
        except (pymysql.Error, OSError):
            self.close()
            raise

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            connection, self._connection = self._connection, None
            try:
                connection.close()
            except (pymysql.Error, OSError):
                return

    def _process_counters(self) -> Dict[str, float]:
        if self._pid is None:
            return {}
        fields = process.stat_fields(self._pid)
        if fields is None:
            return {}
        counters: Dict[str, float] = {
            "cpu_seconds": (int(fields[11]) + int(fields[12])) / _CLOCK_TICKS,
            "rss_bytes": int(fields[21]) * _PAGE_BYTES,
            **_io_counters(self._pid),
        }
        if int(fields[17]) <= _SWITCHES_MAX_TASKS:
            counters["context_switches"] = self._context_switches(self._pid)
        return counters

    def _context_switches(self, pid: int) -> int:
        """Switches of all tasks, a sum that never falls when a task ends."""
        for task in _tasks(pid):
            try:
                with open("/proc/%d/task/%s/status" % (pid, task), "rb") as handle:
                    text = handle.read()
            except OSError:
                continue
            at = text.index(b"voluntary_ctxt_switches:")
            words = text[at:].split()
            self._tasks[task] = int(words[1]) + int(words[3])
        return sum(self._tasks.values())


def server_pid(pid_file: str) -> Optional[int]:
    """The process of a pid file, ours (JSON, checked to be that very process) or a server's."""
    identity = process.read_pid_file(pid_file)
    if identity is not None:
        return identity.pid if process.alive(identity) else None
    try:
        with open(pid_file, encoding="ascii") as handle:
            return int(handle.read())
    except (OSError, ValueError):
        return None


def _tasks(pid: int) -> List[str]:
    try:
        return os.listdir("/proc/%d/task" % pid)
    except OSError:
        return []


def _io_counters(pid: int) -> Dict[str, float]:
    try:
        with open("/proc/%d/io" % pid, "rb") as handle:
            pairs = dict(line.split(b": ") for line in handle.read().splitlines())
    except OSError:
        return {}
    return {name: int(pairs[name.encode()]) for name in ("read_bytes", "write_bytes")}
