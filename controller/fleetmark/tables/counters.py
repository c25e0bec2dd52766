"""Rows of the table counters: what one operation cost on the database host.

Means over the time in which both the host was sampled and the streams overlapped, divided by
the rate of operations in it. Denominators as the Insert Benchmark publishes them: rows where
the step measures rows, queries where it measures queries; for writes, written KB and fsyncs
always the inserted rows.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from fleetmark.tables.counts import Window, within
from fleetmark.tables.disks import data_disk, disk_totals
from fleetmark.tables.journals import DbmsSample, HostJournal, HostSample
from fleetmark.tables.schema import COUNTERS, Row
from fleetmark.tables.series import cpu_seconds
from fleetmark.tables.steps import MINIMUM_OPERATIONS_PER_THREAD, StepRuns

_FSYNCS = "innodb_data_fsyncs"
"""Counts the redo log's fsyncs too, so Innodb_os_log_fsyncs, where there, is a part of it."""

_KB = 1024.0

S = TypeVar("S", HostSample, DbmsSample)


@dataclass(frozen=True)
class _Sampled:
    """Sums over the window: seconds observed, and the total of a quantity in them."""

    seconds: float
    total: float

    @property
    def per_second(self) -> float | None:
        return self.total / self.seconds if self.seconds > 0 else None


def _sum(samples: Sequence[S], window: Window, value: Callable[[S], float]) -> _Sampled:
    """Add a quantity over a window; an interval that the window cuts counts with its share."""
    seconds = total = 0.0
    for sample in samples:
        start = max(window.start, sample.t - sample.interval_seconds)
        inside = min(window.end, sample.t) - start
        if inside > 0 and sample.interval_seconds > 0:
            seconds += inside
            total += value(sample) * inside / sample.interval_seconds
    return _Sampled(seconds, total)


def _divide(value: float | None, by: float | None) -> float | None:
    return value / by if value is not None and by else None


def counter_row(step: StepRuns) -> Row | None:
    """The counters of a step; null when nothing ran or the database host sent no samples."""
    window = _window(step)
    db = next((h.journal for h in step.raw.hosts if h.role == "db"), None)
    if window is None or not window.seconds or db is None or not db.host_samples:
        return None
    plan = step.raw.plan
    rate, inserts = _rate(step, plan.measure_stream, plan.measure, window), None
    if plan.write_stream:
        inserts = _rate(step, plan.write_stream, "rows", window)
    row: Row = dict.fromkeys(COUNTERS.names)
    row.update(step.raw.trial.step_key(plan))
    row.update(per=plan.measure, per_second=rate, writes_per_second_base=inserts)
    row.update(_host_columns(db.host_samples, step.raw.data_device, window, rate, inserts))
    row.update(_dbms_columns(db, window, rate, inserts))
    row.update(_client_columns(step, window))
    return row


def _window(step: StepRuns) -> Window | None:
    """The overlap; the whole step where counts are too few to be cut at a moment."""
    runs = step.of(step.raw.plan.measure_stream)
    threads = sum(r.totals.threads for r in runs)
    operations = sum(r.totals.operations for r in runs)
    if threads and operations < MINIMUM_OPERATIONS_PER_THREAD * threads:
        wall = step.wall_seconds
        return Window(step.t0, step.t0 + wall) if step.t0 is not None and wall else None
    return step.window


def _rate(step: StepRuns, stream: str, measure: str, window: Window) -> float | None:
    runs = step.of(stream)
    if not runs:
        return None
    done = sum(within(r.points, window)[1 if measure == "rows" else 0] for r in runs)
    return done / window.seconds


def _host_columns(
    samples: Sequence[HostSample],
    device: str,
    window: Window,
    rate: float | None,
    inserts: float | None,
) -> Row:
    disk = data_disk(samples, device)
    cpu = _sum(samples, window, cpu_seconds)
    cpus = max(s.cpus for s in samples)
    switches = _sum(samples, window, lambda s: s.context_switches).per_second
    reads = _sum(samples, window, lambda s: disk_totals(s, disk).reads).per_second
    read = _sum(samples, window, lambda s: disk_totals(s, disk).read_bytes).per_second
    writes = _sum(samples, window, lambda s: disk_totals(s, disk).writes).per_second
    written = _sum(samples, window, lambda s: disk_totals(s, disk).write_bytes).per_second
    read_kb, written_kb = _divide(read, _KB), _divide(written, _KB)
    busy = cpu.per_second
    return {
        "sampled_seconds": cpu.seconds,
        "disk": disk,
        "cpu_percent": busy * 100.0 / cpus if busy is not None else None,
        "cpu_us_per_operation": _divide(busy * 1e6 if busy is not None else None, rate),
        "context_switches_per_operation": _divide(switches, rate),
        "reads_per_operation": _divide(reads, rate),
        "read_kb_per_operation": _divide(read_kb, rate),
        "writes_per_insert": _divide(writes, inserts),
        "write_kb_per_insert": _divide(written_kb, inserts),
        "read_mb_per_second": _divide(read_kb, _KB),
        "write_mb_per_second": _divide(written_kb, _KB),
    }


def _dbms_columns(
    db: HostJournal, window: Window, rate: float | None, inserts: float | None
) -> Row:
    samples = db.dbms_samples
    if not samples:
        return {}
    server = _sum(samples, window, lambda s: s.process.get("cpu_seconds", 0.0)).per_second
    fsyncs = _sum(samples, window, _fsyncs_of).per_second
    told = any(name.lower() == _FSYNCS for s in samples for name in s.status)
    rss = [s.process["rss_bytes"] for s in samples if "rss_bytes" in s.process]
    has_cpu = any("cpu_seconds" in s.process for s in samples)
    return {
        "server_cpu_us_per_operation": _divide(
            server * 1e6 if has_cpu and server is not None else None, rate
        ),
        "fsyncs_per_insert": _divide(fsyncs, inserts) if told else None,
        "server_rss_bytes": int(max(rss)) if rss else None,
    }


def _fsyncs_of(sample: DbmsSample) -> float:
    return sum(v for name, v in sample.status.items() if name.lower() == _FSYNCS)


def _client_columns(step: StepRuns, window: Window) -> Row:
    """CPU of the load processes over all that they did; the busiest load host's CPU."""
    plan = step.raw.plan
    runs = step.of(plan.measure_stream)
    done = sum(r.totals.rows if plan.measure == "rows" else r.totals.operations for r in runs)
    used = [
        h.journal.ended["load_cpu_seconds"]
        for h in step.raw.hosts
        if h.journal and h.journal.ended and h.journal.ended.get("load_cpu_seconds") is not None
    ]
    busiest = []
    for host in step.raw.hosts:
        samples = host.journal.host_samples if host.journal and host.role == "load" else []
        busy = _sum(samples, window, cpu_seconds).per_second
        if busy is not None:
            busiest.append(busy * 100.0 / max(s.cpus for s in samples))
    return {
        "client_cpu_us_per_operation": _divide(sum(used) * 1e6, done) if used else None,
        "client_cpu_percent": max(busiest, default=None),
    }
