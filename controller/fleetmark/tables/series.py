"""Rows of the tables series, host_series and dbms_series."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from fleetmark.tables.counts import StreamRun
from fleetmark.tables.disks import data_disk, disk_totals
from fleetmark.tables.journals import HostSample, LoadRecord
from fleetmark.tables.schema import Row
from fleetmark.tables.steps import StepRuns
from fleetmark_agent import histogram

_CHARTED_STATUS = frozenset(
    {
        "questions",
        "threads_running",
        "innodb_buffer_pool_pages_dirty",
        "innodb_buffer_pool_pages_data",
        "innodb_buffer_pool_reads",
        "innodb_buffer_pool_read_requests",
        "innodb_buffer_pool_wait_free",
        "innodb_checkpoint_age",
        "innodb_data_fsyncs",
        "innodb_data_read",
        "innodb_data_written",
        "innodb_dblwr_pages_written",
        "innodb_history_list_length",
        "innodb_log_waits",
        "innodb_os_log_fsyncs",
        "innodb_os_log_written",
        "innodb_row_lock_waits",
        "innodb_rows_deleted",
        "innodb_rows_inserted",
        "innodb_rows_read",
    }
)
"""What goes into dbms_series; the journals hold all that the server told."""


@dataclass
class _Second:
    """One second of a stream, added up over hosts and intervals."""

    covered_seconds: float = 0.0
    operations: float = 0.0
    rows: float = 0.0
    errors: float = 0.0
    service: list[histogram.Sparse] = field(default_factory=list)
    response: list[histogram.Sparse] = field(default_factory=list)


def _percentile(counts: histogram.Sparse) -> float | None:
    value = histogram.percentile_us(counts, 99.0)
    return None if math.isnan(value) else value


def _row(key: Row, second: float, data: _Second, maxima: tuple[float, float]) -> Row:
    service, response = histogram.merge(data.service), histogram.merge(data.response)
    covered = data.covered_seconds
    return {
        **key,
        "second": second,
        "covered_seconds": covered,
        "operations": data.operations,
        "rows": data.rows,
        "errors": data.errors,
        "operations_per_second": data.operations / covered if covered else None,
        "rows_per_second": data.rows / covered if covered else None,
        "service_p99_us": _percentile(service),
        # No value lies above the largest of the whole step.
        "service_worst_us": min(histogram.highest_us(service), maxima[0]) if service else None,
        "response_p99_us": _percentile(response),
        "response_worst_us": min(histogram.highest_us(response), maxima[1]) if response else None,
    }


def _maxima(runs: Iterable[StreamRun]) -> tuple[float, float]:
    runs = list(runs)
    return max(r.totals.service_max_us for r in runs), max(r.totals.response_max_us for r in runs)


def series_rows(step: StepRuns) -> list[Row]:
    """Each interval of each stream and host as written, then whole seconds of all hosts."""
    if step.t0 is None:
        return []
    rows = []
    for run in step.runs:
        key = {**step.raw.trial.step_key(step.raw.plan), "stream": run.stream, "host": run.host}
        for record in run.records:
            start, end = _span(run, record)
            if end <= start:
                continue
            data = _Second(
                end - start,
                record.operations,
                record.rows,
                sum(record.errors.values()),
                [record.service],
                [record.response],
            )
            rows.append(_row(key, start - step.t0, data, _maxima([run])))
    for stream in dict.fromkeys(run.stream for run in step.runs):
        rows += _merged_rows(step, stream, step.t0)
    return rows


def _span(run: StreamRun, record: LoadRecord) -> tuple[float, float]:
    """The part of an interval in which the stream ran."""
    first = run.first_event if run.first_event is not None else record.t
    last = run.last_event if run.last_event is not None else record.t
    return max(record.t - record.interval_seconds, first), min(record.t, last)


def _merged_rows(step: StepRuns, stream: str, t0: float) -> list[Row]:
    runs = step.of(stream)
    seconds: dict[int, _Second] = {}
    spans: dict[int, list[float]] = {}
    for run in runs:
        per_host: dict[int, float] = {}
        for record in run.records:
            start, end = _span(run, record)
            if end > start:
                _spread(seconds, per_host, record, (start - t0, end - t0))
        for second, covered in per_host.items():
            spans.setdefault(second, []).append(covered)
    key = {**step.raw.trial.step_key(step.raw.plan), "stream": stream, "host": ""}
    maxima = _maxima(runs) if runs else (0.0, 0.0)
    rows = []
    for second in sorted(seconds):
        # Hosts run side by side: their counts add up, their time does not.
        seconds[second].covered_seconds = max(spans.get(second, [0.0]))
        rows.append(_row(key, float(second), seconds[second], maxima))
    return rows


def _spread(
    seconds: dict[int, _Second],
    per_host: dict[int, float],
    record: LoadRecord,
    span: tuple[float, float],
) -> None:
    """Divide an interval's counts over whole seconds; its latencies go where its middle is."""
    start, end = span
    for second in range(math.floor(start), math.ceil(end)):
        covered = min(end, second + 1) - max(start, second)
        if covered <= 0:
            continue
        share = covered / (end - start)
        data = seconds.setdefault(second, _Second())
        data.operations += record.operations * share
        data.rows += record.rows * share
        data.errors += sum(record.errors.values()) * share
        per_host[second] = per_host.get(second, 0.0) + covered
    middle = seconds.setdefault(math.floor((start + end) / 2), _Second())
    middle.service.append(record.service)
    middle.response.append(record.response)


def cpu_seconds(sample: HostSample) -> float:
    """Busy CPU seconds as vmstat counts us + sy: nice, irq and softirq included."""
    return sum(sample.cpu.get(k, 0.0) for k in ("user", "nice", "system", "irq", "softirq"))


def host_series_rows(step: StepRuns) -> list[Row]:
    """Every sample of every host."""
    rows = []
    for host in step.raw.hosts:
        if host.journal is None or step.t0 is None:
            continue
        device = step.raw.data_device if host.role == "db" else ""
        disk = data_disk(host.journal.host_samples, device)
        for sample in host.journal.host_samples:
            if sample.interval_seconds > 0:
                key = {
                    **step.raw.trial.step_key(step.raw.plan),
                    "host": host.name,
                    "role": host.role,
                    "second": sample.t - step.t0,
                }
                rows.append({**key, **_sample_columns(sample, disk)})
    return rows


def _sample_columns(sample: HostSample, disk: str) -> Row:
    seconds = sample.interval_seconds
    all_cpus = 100.0 / (seconds * max(1, sample.cpus))
    totals = disk_totals(sample, disk)
    network = list(sample.network.values())
    return {
        "interval_seconds": seconds,
        "cpu_percent": cpu_seconds(sample) * all_cpus,
        "iowait_percent": sample.cpu.get("iowait", 0.0) * all_cpus,
        "steal_percent": sample.cpu.get("steal", 0.0) * all_cpus,
        "context_switches_per_second": sample.context_switches / seconds,
        "available_bytes": sample.memory.get("available_bytes"),
        "dirty_bytes": sample.memory.get("dirty_bytes"),
        "swap_used_bytes": sample.memory.get("swap_used_bytes"),
        "disk": disk,
        "reads_per_second": totals.reads / seconds,
        "read_bytes_per_second": totals.read_bytes / seconds,
        "writes_per_second": totals.writes / seconds,
        "write_bytes_per_second": totals.write_bytes / seconds,
        "flushes_per_second": totals.flushes / seconds,
        "disk_busy_percent": totals.busy_seconds / seconds * 100.0,
        "received_bytes_per_second": sum(n.get("rx_bytes", 0.0) for n in network) / seconds,
        "sent_bytes_per_second": sum(n.get("tx_bytes", 0.0) for n in network) / seconds,
        "throttled": sample.throttled,
        "agent_cpu_seconds": sample.cost_seconds,
    }


def dbms_series_rows(step: StepRuns) -> list[Row]:
    """The charted status variables of every sample, and what the process itself used."""
    rows = []
    for host in step.raw.hosts:
        if host.journal is None or step.t0 is None:
            continue
        for sample in host.journal.dbms_samples:
            values = {
                name.lower(): value
                for name, value in sample.status.items()
                if name.lower() in _CHARTED_STATUS
            }
            values |= {f"process_{name}": value for name, value in sample.process.items()}
            rows += [
                {
                    **step.raw.trial.step_key(step.raw.plan),
                    "host": host.name,
                    "second": sample.t - step.t0,
                    "interval_seconds": sample.interval_seconds,
                    "variable": name,
                    "value": value,
                }
                for name, value in values.items()
            ]
    return rows
