"""The journal of one job on one host -> records with checked fields, on the controller's clock.

`parse` reads a whole journal; who follows a growing one reads record by record with `load_record`
and `stream_end`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fleetmark.errors import ResultError
from fleetmark_agent import histogram, journal
from fleetmark_agent.shm import ERROR_WORDS


@dataclass(frozen=True)
class LoadRecord:
    """One interval of one stream. `t` is its end on the controller's clock."""

    t: float
    stream: str
    interval_seconds: float
    threads: int
    operations: int
    rows: int
    errors: dict[str, int]
    retries: int
    reconnects: int
    service: histogram.Sparse
    response: histogram.Sparse
    lag_seconds: float
    total_operations: int
    total_rows: int
    first_event: float | None


@dataclass(frozen=True)
class StreamEnd:
    """The whole step of one stream. Events are null if there were none."""

    stream: str
    threads: int
    operations: int
    rows: int
    statements: int
    errors: dict[str, int]
    retries: int
    reconnects: int
    first_event: float | None
    last_event: float | None
    service: histogram.Sparse
    response: histogram.Sparse
    service_sum_us: float
    service_max_us: float
    response_sum_us: float
    response_max_us: float


@dataclass(frozen=True)
class HostSample:
    """One sample of a host. `cpu` holds CPU seconds of the interval, by state."""

    t: float
    interval_seconds: float
    cpu: dict[str, float]
    cpus: int
    context_switches: float
    memory: dict[str, int]
    disks: dict[str, dict[str, float]]
    network: dict[str, dict[str, float]]
    throttled: int | None
    cost_seconds: float | None


@dataclass(frozen=True)
class DbmsSample:
    """One sample of a DBMS: status (changes for counters, values for gauges) and its process."""

    t: float
    interval_seconds: float
    status: dict[str, float]
    process: dict[str, float]


@dataclass(frozen=True)
class HostJournal:
    """All records of one job. `ended` is null when the job was cut off or still runs."""

    loads: list[LoadRecord] = field(default_factory=list)
    ends: list[StreamEnd] = field(default_factory=list)
    host_samples: list[HostSample] = field(default_factory=list)
    dbms_samples: list[DbmsSample] = field(default_factory=list)
    notes: list[tuple[str, str]] = field(default_factory=list)
    ended: dict[str, Any] | None = None


def parse(data: bytes, where: str, offset_seconds: float) -> HostJournal:
    """Read a journal; a cut last line is left out, as the next gathering brings it.

    `offset_seconds` is host clock minus controller clock. Raises ResultError naming `where`
    and the line for anything unknown, damaged or missing.
    """
    parsed = HostJournal()
    ended = None
    for number, line in enumerate(journal.split_lines(data)[0], 1):
        try:
            record = journal.decode(line)
            if record.get("seq") != number - 1:
                raise ValueError(f"record {record.get('seq')} stands where {number - 1} belongs")
            if record["kind"] == journal.ENDED:
                ended = record
            _add(parsed, record, offset_seconds)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            what = f"field {error} is missing" if isinstance(error, KeyError) else str(error)
            raise ResultError(
                f"{where}:{number}: {what}",
                next_step="fleetmark results verify shows whether the file was changed",
            ) from None
    return HostJournal(
        parsed.loads, parsed.ends, parsed.host_samples, parsed.dbms_samples, parsed.notes, ended
    )


def _add(parsed: HostJournal, record: dict[str, Any], offset: float) -> None:
    kind = record["kind"]
    if kind == journal.LOAD:
        parsed.loads.append(load_record(record, offset))
    elif kind == journal.STREAM_END:
        parsed.ends.append(stream_end(record, offset))
    elif kind == journal.HOST:
        parsed.host_samples.append(_host(record, offset))
    elif kind == journal.DBMS:
        parsed.dbms_samples.append(_dbms(record, offset))
    elif kind == journal.NOTE:
        parsed.notes.append((str(record["level"]), str(record["text"])))


def _moment(value: Any, offset: float) -> float | None:
    # The telemetry file holds 0 where nothing happened yet.
    return float(value) - offset if value else None


def _errors(value: dict[str, Any]) -> dict[str, int]:
    unknown = set(value) - set(ERROR_WORDS)
    if unknown:
        raise ValueError(f"unknown kind of error {sorted(unknown)[0]!r}")
    return {kind: int(value.get(kind, 0)) for kind in ERROR_WORDS}


def load_record(record: Mapping[str, Any], offset: float) -> LoadRecord:
    """A `load` record. Raises KeyError, TypeError or ValueError for what is missing or wrong.

    `offset` is host clock minus the clock that times are wanted on, in seconds.
    """
    return LoadRecord(
        t=float(record["t"]) - offset,
        stream=str(record["stream"]),
        interval_seconds=float(record["interval_seconds"]),
        threads=int(record["threads"]),
        operations=int(record["operations"]),
        rows=int(record["rows"]),
        errors=_errors(record["errors"]),
        retries=int(record["retries"]),
        reconnects=int(record["reconnects"]),
        service=histogram.from_pairs(record["service"]),
        response=histogram.from_pairs(record["response"]),
        lag_seconds=float(record["lag_seconds"]),
        total_operations=int(record["total_operations"]),
        total_rows=int(record["total_rows"]),
        first_event=_moment(record["first_event"], offset),
    )


def stream_end(record: Mapping[str, Any], offset: float) -> StreamEnd:
    """A `stream_end` record; offset and errors as those of `load_record`."""
    return StreamEnd(
        stream=str(record["stream"]),
        threads=int(record["threads"]),
        operations=int(record["operations"]),
        rows=int(record["rows"]),
        statements=int(record["statements"]),
        errors=_errors(record["errors"]),
        retries=int(record["retries"]),
        reconnects=int(record["reconnects"]),
        first_event=_moment(record["first_event"], offset),
        last_event=_moment(record["last_event"], offset),
        service=histogram.from_pairs(record["service"]),
        response=histogram.from_pairs(record["response"]),
        service_sum_us=float(record["service_sum_us"]),
        service_max_us=float(record["service_max_us"]),
        response_sum_us=float(record["response_sum_us"]),
        response_max_us=float(record["response_max_us"]),
    )


def _numbers(value: dict[str, Any]) -> dict[str, float]:
    """The numeric entries; what a kernel or a server does not tell is null and left out."""
    return {
        name: float(v)
        for name, v in value.items()
        if isinstance(v, (int, float)) and not isinstance(v, bool)
    }


def _host(record: dict[str, Any], offset: float) -> HostSample:
    return HostSample(
        t=float(record["t"]) - offset,
        interval_seconds=float(record["interval_seconds"]),
        cpu=_numbers(record["cpu"]),
        cpus=int(record["cpus"]),
        context_switches=float(record["context_switches"]),
        memory={name: int(v) for name, v in _numbers(record["memory"]).items()},
        disks={name: _numbers(v) for name, v in record["disks"].items()},
        network={name: _numbers(v) for name, v in record["network"].items()},
        throttled=record.get("throttled"),
        cost_seconds=record.get("cost_seconds"),
    )


def _dbms(record: dict[str, Any], offset: float) -> DbmsSample:
    return DbmsSample(
        t=float(record["t"]) - offset,
        interval_seconds=float(record["interval_seconds"]),
        status=_numbers(record["status"]),
        process=_numbers(record.get("process") or {}),
    )
