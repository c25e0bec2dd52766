"""Every table of a run: its columns with type, unit and meaning, in one place.

`host` is empty where a row stands for all hosts of a step together. Times named `second` count
from the release time T0 on the controller's clock. All latencies are microseconds.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

SCHEMA_VERSION = 1

Row = dict[str, Any]
"""One row of a table; its keys are exactly the columns declared here."""

_TEXT = pa.string()
_INT = pa.int64()
_FLOAT = pa.float64()
_BOOL = pa.bool_()


@dataclass(frozen=True)
class Column:
    """One column. `unit` is empty for names and plain counts."""

    name: str
    type: pa.DataType
    unit: str = ""
    meaning: str = ""


@dataclass(frozen=True)
class Table:
    """One table: what a row is, and its columns in order."""

    name: str
    row: str
    columns: tuple[Column, ...]

    @property
    def names(self) -> list[str]:
        """Column names in order."""
        return [column.name for column in self.columns]


def _column(name: str, kind: pa.DataType, unit: str = "", meaning: str = "") -> Column:
    return Column(name, kind, unit, meaning)


_TRIAL_KEY = (
    Column("trial", _TEXT, meaning="the trial's id"),
    Column("target", _TEXT),
    Column("build", _TEXT),
    Column("config", _TEXT),
    Column("workload", _TEXT),
    Column("repeat", _INT, meaning="counted from 1"),
)
_STEP_KEY = (
    *_TRIAL_KEY,
    Column("step", _TEXT, meaning="the step's directory name"),
    Column("step_index", _INT, meaning="position in the trial, from 1"),
    Column("name", _TEXT, meaning="the step's name in the workload"),
)
_STREAM = Column("stream", _TEXT)
_HOST = Column("host", _TEXT, meaning="empty: all hosts together")


def _latency(kind: str) -> tuple[Column, ...]:
    meaning = {
        "service": "from the send of an operation to its end",
        "response": "from the moment an operation was due to its end",
    }[kind]
    return tuple(
        Column(f"{kind}_{name}_us", _FLOAT, "us", meaning)
        for name in ("p50", "p95", "p99", "p999", "max")
    )


TRIALS = Table(
    "trials",
    "one trial",
    (
        *_TRIAL_KEY,
        _column("db", _TEXT, meaning="the database host"),
        _column("load", _TEXT, meaning="the load hosts, separated by commas"),
        _column("attempt", _INT),
        _column("state", _TEXT, meaning="ok, partial, failed, missing"),
        _column("started", _TEXT, meaning="ISO 8601, UTC"),
        _column("ended", _TEXT, meaning="ISO 8601, UTC"),
        _column("dbms_version", _TEXT),
        _column("dbms_flavour", _TEXT),
        _column("start_seconds", _FLOAT, "s", "until the instance answered"),
        _column("stop_seconds", _FLOAT, "s"),
        _column("stopped_clean", _BOOL),
        _column("database_bytes", _INT, "bytes", "the database's directory at the end"),
        _column("data_bytes", _INT, "bytes", "the whole data directory at the end"),
        _column("command", _TEXT, meaning="how the server was started"),
        _column("rendered_config", _TEXT, meaning="the config as given to the server"),
        _column("taints", _INT, meaning="how many, its steps' included"),
    ),
)

STEPS = Table(
    "steps",
    "one step of one trial, all hosts together",
    (
        *_STEP_KEY,
        _column("kind", _TEXT, meaning="load or settle"),
        _column("state", _TEXT, meaning="ok, partial, failed, missing"),
        _column("partial", _BOOL),
        _column("partial_because", _TEXT, meaning="never began: planned, and left no file"),
        _column("measure_stream", _TEXT),
        _column("measure", _TEXT, meaning="rows or operations of that stream"),
        _column("throughput", _FLOAT, "1/s", "the number of the report, see throughput_basis"),
        _column(
            "throughput_basis",
            _TEXT,
            meaning="overlap: counted while all streams ran; step: total over the whole step,"
            " where a thread makes too few operations to be cut at a moment",
        ),
        _column("step_throughput", _FLOAT, "1/s", "total over the wall time of the step"),
        _column("wall_seconds", _FLOAT, "s", "T0 to the last event of the defining streams"),
        _column("overlap_seconds", _FLOAT, "s", "while all streams of all hosts ran"),
        _column("overlap_share", _FLOAT, meaning="overlap over the longest stream"),
        _column("operations", _INT, meaning="of the measured stream"),
        _column("rows", _INT, meaning="of the measured stream"),
        _column("write_stream", _TEXT, meaning="the stream whose rows are the inserts"),
        _column("inserts_per_second", _FLOAT, "rows/s", "over the real duration of the step"),
        _column("sla_rate_per_second", _FLOAT, "rows/s", "the rate that was asked for"),
        _column("sla_minimum_ratio", _FLOAT),
        _column("sla_ratio", _FLOAT, meaning="inserts over the rate asked for"),
        _column("sla_met", _BOOL, meaning="null: no SLA, or parts are missing"),
        *_latency("service"),
        *_latency("response"),
        _column("errors", _INT, meaning="all kinds, all streams"),
        _column("retries", _INT),
        _column("reconnects", _INT),
        _column("start_error_seconds", _FLOAT, "s", "first event minus T0, the worst host's"),
        _column("clock_bound_seconds", _FLOAT, "s", "error bound of the clock, the worst host's"),
        _column("load_cpu_seconds", _FLOAT, "s", "CPU of the load processes"),
        _column("taints", _TEXT, meaning="kinds, separated by commas"),
    ),
)

_ERRORS = tuple(
    Column(f"errors_{kind}", _INT)
    for kind in ("deadlock", "lock_wait", "connection", "commit_unknown", "other")
)

STREAMS = Table(
    "streams",
    "one stream of a step, on one host and on all together",
    (
        *_STEP_KEY,
        _STREAM,
        _HOST,
        _column("threads", _INT),
        _column("operations", _INT),
        _column("rows", _INT),
        _column("statements", _INT),
        *_ERRORS,
        _column("retries", _INT),
        _column("reconnects", _INT),
        _column("first_event_second", _FLOAT, "s", "since T0"),
        _column("last_event_second", _FLOAT, "s", "since T0"),
        _column("overlap_operations", _FLOAT, meaning="within the overlap, interpolated"),
        _column("overlap_rows", _FLOAT, meaning="within the overlap, interpolated"),
        _column("operations_per_second", _FLOAT, "1/s", "over the overlap"),
        _column("rows_per_second", _FLOAT, "1/s", "over the overlap"),
        _column("service_mean_us", _FLOAT, "us"),
        _column("response_mean_us", _FLOAT, "us"),
        *_latency("service"),
        *_latency("response"),
        _column("partial", _BOOL, meaning="the host's journal has no end of this stream"),
    ),
)

HISTOGRAMS = Table(
    "histograms",
    "one bucket of a latency histogram over a whole step",
    (
        *_STEP_KEY,
        _STREAM,
        _HOST,
        _column("kind", _TEXT, meaning="service or response"),
        _column("bucket", _INT),
        _column("lower_us", _FLOAT, "us"),
        _column("upper_us", _FLOAT, "us"),
        _column("count", _INT),
    ),
)

SERIES = Table(
    "series",
    "one second of one stream; for single hosts one interval as it was written",
    (
        *_STEP_KEY,
        _STREAM,
        _HOST,
        _column("second", _FLOAT, "s", "start of the interval, since T0"),
        _column("covered_seconds", _FLOAT, "s", "the part of it that was observed"),
        _column("operations", _FLOAT),
        _column("rows", _FLOAT),
        _column("errors", _FLOAT),
        _column("operations_per_second", _FLOAT, "1/s"),
        _column("rows_per_second", _FLOAT, "1/s"),
        _column("service_p99_us", _FLOAT, "us"),
        _column("service_worst_us", _FLOAT, "us", "upper bound of the highest bucket"),
        _column("response_p99_us", _FLOAT, "us"),
        _column("response_worst_us", _FLOAT, "us", "upper bound of the highest bucket"),
    ),
)

COUNTERS = Table(
    "counters",
    "one step of one trial: what the database host spent, by operation",
    (
        *_STEP_KEY,
        _column("per", _TEXT, meaning="what an operation is: rows or operations"),
        _column("per_second", _FLOAT, "1/s", "operations while the host was sampled"),
        _column("writes_per_second_base", _FLOAT, "rows/s", "inserts, the base of w, wKB, fsync"),
        _column("sampled_seconds", _FLOAT, "s"),
        _column("disk", _TEXT, meaning="the device that was counted"),
        _column("cpu_percent", _FLOAT, "%", "us + sy of the database host, all CPUs = 100"),
        _column("cpu_us_per_operation", _FLOAT, "us", "whole database host"),
        _column("server_cpu_us_per_operation", _FLOAT, "us", "the server's process"),
        _column("client_cpu_us_per_operation", _FLOAT, "us", "the load processes"),
        _column("context_switches_per_operation", _FLOAT),
        _column("reads_per_operation", _FLOAT),
        _column("read_kb_per_operation", _FLOAT, "KB", "1 KB = 1024 bytes"),
        _column("writes_per_insert", _FLOAT),
        _column("write_kb_per_insert", _FLOAT, "KB", "1 KB = 1024 bytes"),
        _column("fsyncs_per_insert", _FLOAT, meaning="data and redo log"),
        _column("read_mb_per_second", _FLOAT, "MB/s", "1 MB = 1024 KB"),
        _column("write_mb_per_second", _FLOAT, "MB/s", "1 MB = 1024 KB"),
        _column("server_rss_bytes", _INT, "bytes", "largest seen"),
        _column("client_cpu_percent", _FLOAT, "%", "the busiest load host, all CPUs = 100"),
    ),
)

HOST_SERIES = Table(
    "host_series",
    "one sample of one host",
    (
        *_STEP_KEY,
        _HOST,
        _column("role", _TEXT, meaning="db or load"),
        _column("second", _FLOAT, "s", "end of the interval, since T0"),
        _column("interval_seconds", _FLOAT, "s"),
        _column("cpu_percent", _FLOAT, "%", "us + sy, all CPUs = 100"),
        _column("iowait_percent", _FLOAT, "%"),
        _column("steal_percent", _FLOAT, "%"),
        _column("context_switches_per_second", _FLOAT, "1/s"),
        _column("available_bytes", _INT, "bytes"),
        _column("dirty_bytes", _INT, "bytes"),
        _column("swap_used_bytes", _INT, "bytes"),
        _column("disk", _TEXT),
        _column("reads_per_second", _FLOAT, "1/s"),
        _column("read_bytes_per_second", _FLOAT, "bytes/s"),
        _column("writes_per_second", _FLOAT, "1/s"),
        _column("write_bytes_per_second", _FLOAT, "bytes/s"),
        _column("flushes_per_second", _FLOAT, "1/s"),
        _column("disk_busy_percent", _FLOAT, "%"),
        _column("received_bytes_per_second", _FLOAT, "bytes/s"),
        _column("sent_bytes_per_second", _FLOAT, "bytes/s"),
        _column("throttled", _INT),
        _column("agent_cpu_seconds", _FLOAT, "s", "what sampling itself used"),
    ),
)

DBMS_SERIES = Table(
    "dbms_series",
    "one status variable of one sample; counters as the change over the interval",
    (
        *_STEP_KEY,
        _HOST,
        _column("second", _FLOAT, "s", "end of the interval, since T0"),
        _column("interval_seconds", _FLOAT, "s"),
        _column("variable", _TEXT),
        _column("value", _FLOAT),
    ),
)

FACTS = Table(
    "facts",
    "one fact of one host",
    (_HOST, _column("fact", _TEXT, meaning="dotted name"), _column("value", _TEXT)),
)

BUILDS = Table(
    "builds",
    "one fact of one build on one database host",
    (
        _column("build", _TEXT),
        _column("host", _TEXT, meaning="the database host"),
        _column("fact", _TEXT, meaning="dotted name"),
        _column("value", _TEXT),
    ),
)

VARIABLES = Table(
    "variables",
    "one server variable of one trial",
    (
        *_TRIAL_KEY,
        _column("variable", _TEXT),
        _column("asked", _TEXT, meaning="null where the config does not name it"),
        _column("effective", _TEXT),
        _column("mismatch", _BOOL, meaning="the server changed what was asked for"),
        _column("differs", _BOOL, meaning="not the same in all trials of the run"),
    ),
)

DEVIATIONS = Table(
    "deviations",
    "one item in which a host was not as declared",
    (
        _HOST,
        _column("trial", _TEXT),
        _column("moment", _TEXT, meaning="before or after the trial"),
        _column("item", _TEXT),
        _column("expected", _TEXT),
        _column("observed", _TEXT),
    ),
)

CONTRACTS = Table(
    "contracts",
    "one check of a host against its contract",
    (
        _HOST,
        _column("trial", _TEXT),
        _column("moment", _TEXT, meaning="before or after the trial"),
        _column("checked", _TEXT, meaning="the items, separated by commas"),
        _column("deviations", _INT),
    ),
)

TAINTS = Table(
    "taints",
    "one reason why a result must not be trusted",
    (
        *_TRIAL_KEY,
        _column("step", _TEXT, meaning="empty: the whole trial"),
        _column("kind", _TEXT),
        _column("text", _TEXT),
    ),
)

START_PROOF = Table(
    "start_proof",
    "one host of one step: when it really started",
    (
        *_STEP_KEY,
        _HOST,
        _column("role", _TEXT),
        _column("offset_seconds", _FLOAT, "s", "host clock minus controller clock"),
        _column("offset_bound_seconds", _FLOAT, "s"),
        _column("round_trip_seconds", _FLOAT, "s"),
        _column("release_confirmed_seconds_before_t0", _FLOAT, "s"),
        _column("start_error_seconds", _FLOAT, "s", "first event minus T0"),
        _column("first_event_second", _FLOAT, "s", "since T0"),
        _column("last_event_second", _FLOAT, "s", "since T0"),
        _column("reason", _TEXT, meaning="how the job ended; empty: its journal has no end"),
    ),
)

ALL: dict[str, Table] = {
    table.name: table
    for table in (
        TRIALS,
        STEPS,
        STREAMS,
        HISTOGRAMS,
        SERIES,
        COUNTERS,
        START_PROOF,
        HOST_SERIES,
        DBMS_SERIES,
        FACTS,
        BUILDS,
        VARIABLES,
        CONTRACTS,
        DEVIATIONS,
        TAINTS,
    )
}


def to_arrow(table: Table, rows: Iterable[Row]) -> pa.Table:
    """Rows as an Arrow table with the declared types; units are kept as field metadata.

    Raises ValueError when a row has not exactly the declared columns.
    """
    fields = [
        pa.field(c.name, c.type, metadata={"unit": c.unit, "meaning": c.meaning})
        for c in table.columns
    ]
    columns: dict[str, list[Any]] = {name: [] for name in table.names}
    expected = columns.keys()
    for row in rows:
        if row.keys() != expected:
            raise ValueError(f"{table.name}: columns {sorted(row.keys() ^ expected)} do not fit")
        for name, values in columns.items():
            values.append(row[name])
    schema = pa.schema(fields, metadata={"fleetmark_schema": str(SCHEMA_VERSION)})
    return pa.table(
        [pa.array(columns[f.name], type=f.type) for f in fields],
        schema=schema,
    )
