"""Tables of what the load did: trials, steps, streams, their latencies and their start."""

from fleetmark.tables.schema.column import (
    HOST,
    LATENCIES,
    STEP_KEY,
    STREAM,
    TRIAL_KEY,
    Table,
    real,
    text,
    whole,
    yes_no,
)

TRIALS = Table(
    "trials",
    "one trial",
    (
        *TRIAL_KEY,
        text("db", "the database host"),
        text("load", "the load hosts, separated by commas"),
        whole("attempt"),
        text("state", "ok, partial, failed, missing"),
        text("started", "ISO 8601, UTC"),
        text("ended", "ISO 8601, UTC"),
        text("dbms_version"),
        text("dbms_flavour"),
        real("start_seconds", "s", "until the instance answered"),
        real("stop_seconds", "s"),
        yes_no("stopped_clean"),
        whole("database_bytes", "bytes", "the database's directory at the end"),
        whole("data_bytes", "bytes", "the whole data directory at the end"),
        text("command", "how the server was started"),
        text("rendered_config", "the config as given to the server"),
        whole("taints", meaning="how many, its steps' included"),
    ),
)

STEPS = Table(
    "steps",
    "one step of one trial, all hosts together",
    (
        *STEP_KEY,
        text("kind", "load or settle"),
        text("state", "ok, partial, failed, missing"),
        yes_no("partial"),
        text("partial_because", "never began: planned, and left no file"),
        text("measure_stream"),
        text("measure", "rows or operations of that stream"),
        real("throughput", "1/s", "the number of the report, see throughput_basis"),
        text(
            "throughput_basis",
            "overlap: counted while all streams ran; step: total over the whole step,"
            " where a thread makes too few operations to be cut at a moment",
        ),
        real("step_throughput", "1/s", "total over the wall time of the step"),
        real("wall_seconds", "s", "T0 to the last event of the defining streams"),
        real("overlap_seconds", "s", "while all streams of all hosts ran"),
        real("overlap_share", meaning="overlap over the longest stream"),
        whole("operations", meaning="of the measured stream"),
        whole("rows", meaning="of the measured stream"),
        text("write_stream", "the stream whose rows are the inserts"),
        real("inserts_per_second", "rows/s", "over the real duration of the step"),
        real("sla_rate_per_second", "rows/s", "the rate that was asked for"),
        real("sla_minimum_ratio"),
        real("sla_ratio", meaning="inserts over the rate asked for"),
        yes_no("sla_met", "null: no SLA, or parts are missing"),
        *LATENCIES,
        whole("errors", meaning="all kinds, all streams"),
        whole("retries"),
        whole("reconnects"),
        real("start_error_seconds", "s", "first event minus T0, the worst host's"),
        real("clock_bound_seconds", "s", "error bound of the clock, the worst host's"),
        real("load_cpu_seconds", "s", "CPU of the load processes"),
        text("taints", "kinds, separated by commas"),
    ),
)

_ERRORS = tuple(
    whole(f"errors_{kind}")
    for kind in ("deadlock", "lock_wait", "connection", "commit_unknown", "other")
)

STREAMS = Table(
    "streams",
    "one stream of a step, on one host and on all together",
    (
        *STEP_KEY,
        STREAM,
        HOST,
        whole("threads"),
        whole("operations"),
        whole("rows"),
        whole("statements"),
        *_ERRORS,
        whole("retries"),
        whole("reconnects"),
        real("first_event_second", "s", "since T0"),
        real("last_event_second", "s", "since T0"),
        real("overlap_operations", meaning="within the overlap, interpolated"),
        real("overlap_rows", meaning="within the overlap, interpolated"),
        real("operations_per_second", "1/s", "over the overlap"),
        real("rows_per_second", "1/s", "over the overlap"),
        real("service_mean_us", "us"),
        real("response_mean_us", "us"),
        *LATENCIES,
        yes_no("partial", "the host's journal has no end of this stream"),
    ),
)

HISTOGRAMS = Table(
    "histograms",
    "one bucket of a latency histogram over a whole step",
    (
        *STEP_KEY,
        STREAM,
        HOST,
        text("kind", "service or response"),
        whole("bucket"),
        real("lower_us", "us"),
        real("upper_us", "us"),
        whole("count"),
    ),
)

SERIES = Table(
    "series",
    "one second of one stream; for single hosts one interval as it was written",
    (
        *STEP_KEY,
        STREAM,
        HOST,
        real("second", "s", "start of the interval, since T0"),
        real("covered_seconds", "s", "the part of it that was observed"),
        real("operations"),
        real("rows"),
        real("errors"),
        real("operations_per_second", "1/s"),
        real("rows_per_second", "1/s"),
        real("service_p99_us", "us"),
        real("service_worst_us", "us", "upper bound of the highest bucket"),
        real("response_p99_us", "us"),
        real("response_worst_us", "us", "upper bound of the highest bucket"),
    ),
)

START_PROOF = Table(
    "start_proof",
    "one host of one step: when it really started",
    (
        *STEP_KEY,
        HOST,
        text("role"),
        real("offset_seconds", "s", "host clock minus controller clock"),
        real("offset_bound_seconds", "s"),
        real("round_trip_seconds", "s"),
        real("release_confirmed_seconds_before_t0", "s"),
        real("start_error_seconds", "s", "first event minus T0"),
        real("first_event_second", "s", "since T0"),
        real("last_event_second", "s", "since T0"),
        text("reason", "how the job ended; empty: its journal has no end"),
    ),
)
