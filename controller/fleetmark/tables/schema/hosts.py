"""Tables of what hosts and servers spent meanwhile."""

from fleetmark.tables.schema.column import HOST, STEP_KEY, Table, real, text, whole

COUNTERS = Table(
    "counters",
    "one step of one trial: what the database host spent, by operation",
    (
        *STEP_KEY,
        text("per", "what an operation is: rows or operations"),
        real("per_second", "1/s", "operations while the host was sampled"),
        real("writes_per_second_base", "rows/s", "inserts, the base of w, wKB, fsync"),
        real("sampled_seconds", "s"),
        text("disk", "the device that was counted"),
        real("cpu_percent", "%", "us + sy of the database host, all CPUs = 100"),
        real("cpu_us_per_operation", "us", "whole database host"),
        real("server_cpu_us_per_operation", "us", "the server's process"),
        real("client_cpu_us_per_operation", "us", "the load processes"),
        real("context_switches_per_operation"),
        real("reads_per_operation"),
        real("read_kb_per_operation", "KB", "1 KB = 1024 bytes"),
        real("writes_per_insert"),
        real("write_kb_per_insert", "KB", "1 KB = 1024 bytes"),
        real("fsyncs_per_insert", meaning="data and redo log"),
        real("read_mb_per_second", "MB/s", "1 MB = 1024 KB"),
        real("write_mb_per_second", "MB/s", "1 MB = 1024 KB"),
        whole("server_rss_bytes", "bytes", "largest seen"),
        real("client_cpu_percent", "%", "the busiest load host, all CPUs = 100"),
    ),
)

HOST_SERIES = Table(
    "host_series",
    "one sample of one host",
    (
        *STEP_KEY,
        HOST,
        text("role", "db or load"),
        real("second", "s", "end of the interval, since T0"),
        real("interval_seconds", "s"),
        real("cpu_percent", "%", "us + sy, all CPUs = 100"),
        real("iowait_percent", "%"),
        real("steal_percent", "%"),
        real("context_switches_per_second", "1/s"),
        whole("available_bytes", "bytes"),
        whole("dirty_bytes", "bytes"),
        whole("swap_used_bytes", "bytes"),
        text("disk"),
        real("reads_per_second", "1/s"),
        real("read_bytes_per_second", "bytes/s"),
        real("writes_per_second", "1/s"),
        real("write_bytes_per_second", "bytes/s"),
        real("flushes_per_second", "1/s"),
        real("disk_busy_percent", "%"),
        real("received_bytes_per_second", "bytes/s"),
        real("sent_bytes_per_second", "bytes/s"),
        whole("throttled"),
        real("agent_cpu_seconds", "s", "what sampling itself used"),
    ),
)

DBMS_SERIES = Table(
    "dbms_series",
    "one status variable of one sample; counters as the change over the interval",
    (
        *STEP_KEY,
        HOST,
        real("second", "s", "end of the interval, since T0"),
        real("interval_seconds", "s"),
        text("variable"),
        real("value"),
    ),
)
