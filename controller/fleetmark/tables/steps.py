"""Rows of the tables steps, streams, histograms and start_proof."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fleetmark.tables.counts import StreamRun, Window, overlap_of, stream_runs, within
from fleetmark.tables.raw import RawStep
from fleetmark.tables.schema import Row
from fleetmark_agent import histogram
from fleetmark_agent.shm import ERROR_WORDS

MINIMUM_OPERATIONS_PER_THREAD = 10
"""Below this a thread's count jumps too rarely to be cut at a moment (an index build is one
operation), and the number of the report is total over wall time instead."""

NEVER_BEGAN = "never began"
"""Stands in partial_because of a planned step that left no file."""

_PERCENTS = {"p50": 50.0, "p95": 95.0, "p99": 99.0, "p999": 99.9}


@dataclass(frozen=True)
class StepRuns:
    """A step with its streams, ready for counting. `window` is the overlap."""

    raw: RawStep
    runs: tuple[StreamRun, ...]
    window: Window | None
    t0: float | None
    missing_hosts: tuple[str, ...]
    cut_off_hosts: tuple[str, ...]

    def of(self, stream: str) -> list[StreamRun]:
        """One stream on all its hosts."""
        return [run for run in self.runs if run.stream == stream]

    @property
    def wall_seconds(self) -> float | None:
        """T0 to the last event of the streams that decide the end; null when nothing ran."""
        defining = self.raw.plan.defining
        lasts = [
            run.last_event
            for run in self.runs
            if run.last_event is not None and (not defining or run.stream in defining)
        ]
        if not lasts or self.t0 is None:
            return None
        return max(lasts) - self.t0


def collect(raw: RawStep) -> StepRuns:
    """Count the streams of a step.

    The overlap is the one that step.json proves; for a step without it, it is found from what
    came. Without a T0 the first event stands for it.
    """
    runs = [
        run
        for host in raw.hosts
        if host.journal is not None
        for run in stream_runs(host.name, host.journal)
    ]
    stored = (raw.document or {}).get("overlap") or {}
    window = (
        Window(float(stored["start"]), float(stored["end"]))
        if stored.get("start") is not None and stored.get("end") is not None
        else overlap_of(runs)
    )
    firsts = [run.first_event for run in runs if run.first_event is not None]
    return StepRuns(
        raw=raw,
        runs=tuple(runs),
        window=window,
        t0=raw.t0 if raw.t0 is not None else min(firsts, default=None),
        missing_hosts=tuple(h.name for h in raw.hosts if h.journal is None),
        cut_off_hosts=tuple(
            h.name for h in raw.hosts if h.journal is not None and h.journal.ended is None
        ),
    )


def latencies(
    service: histogram.Sparse, response: histogram.Sparse, maxima: tuple[float, float]
) -> Row:
    """The columns of service and response percentiles; null for an empty histogram."""
    row: Row = {}
    for kind, counts, highest in (
        ("service", service, maxima[0]),
        ("response", response, maxima[1]),
    ):
        empty = histogram.count_of(counts) == 0
        for name, percent in _PERCENTS.items():
            # The middle of a bucket may lie above the largest value in it.
            value = None if empty else min(histogram.percentile_us(counts, percent), highest)
            row[f"{kind}_{name}_us"] = value
        row[f"{kind}_max_us"] = None if empty else highest
    return row


def _merged_latencies(runs: Sequence[StreamRun]) -> Row:
    return latencies(
        histogram.merge(r.totals.service for r in runs),
        histogram.merge(r.totals.response for r in runs),
        (
            max((r.totals.service_max_us for r in runs), default=0.0),
            max((r.totals.response_max_us for r in runs), default=0.0),
        ),
    )


def _per_second(count: float, seconds: float | None) -> float | None:
    return count / seconds if seconds else None


def _partial_because(step: StepRuns) -> list[str]:
    if not step.raw.hosts:
        return [NEVER_BEGAN]
    reasons = []
    if step.raw.document is None:
        reasons.append("the step did not end")
    elif step.raw.document.get("state") != "ok":
        reasons.append(f"state {step.raw.document.get('state')}")
    reasons += [f"nothing from {host}" for host in step.missing_hosts]
    reasons += [f"journal of {host} has no end" for host in step.cut_off_hosts]
    reasons += [
        f"no end of stream {r.stream} on {r.host}"
        for r in step.runs
        if r.partial and r.host not in step.cut_off_hosts
    ]
    return reasons


def _measured(step: StepRuns) -> Row:
    """Throughput of the measured stream, over the overlap and over the whole step."""
    plan = step.raw.plan
    runs = step.of(plan.measure_stream)
    by_rows = plan.measure == "rows"
    total = sum(r.totals.rows if by_rows else r.totals.operations for r in runs)
    whole = _per_second(total, step.wall_seconds)
    row: Row = {
        "operations": sum(r.totals.operations for r in runs),
        "rows": sum(r.totals.rows for r in runs),
        "step_throughput": whole,
        "throughput": None,
        "throughput_basis": None,
    }
    if not runs:
        return row
    threads = sum(r.totals.threads for r in runs)
    too_few = threads and row["operations"] < MINIMUM_OPERATIONS_PER_THREAD * threads
    if too_few or step.window is None or not step.window.seconds:
        return {**row, "throughput": whole, "throughput_basis": "step"}
    inside = sum(within(r.points, step.window)[1 if by_rows else 0] for r in runs)
    return {
        **row,
        "throughput": inside / step.window.seconds,
        "throughput_basis": "overlap",
    }


def _sla(step: StepRuns) -> Row:
    """Inserts a second over the real duration, against the rate that was asked for."""
    plan = step.raw.plan
    runs = step.of(plan.write_stream)
    lasts = [r.last_event for r in runs if r.last_event is not None]
    seconds = max(lasts) - step.t0 if lasts and step.t0 is not None else None
    inserts = _per_second(sum(r.totals.rows for r in runs), seconds)
    row: Row = {
        "write_stream": plan.write_stream,
        "inserts_per_second": inserts,
        "sla_rate_per_second": None,
        "sla_minimum_ratio": None,
        "sla_ratio": None,
        "sla_met": None,
    }
    if plan.sla is None:
        return row
    ratio = inserts / plan.sla.rate_per_second if inserts is not None else None
    # Rows that were not gathered may have been inserted: neither met nor missed.
    judged = ratio is not None and not step.missing_hosts and not any(r.partial for r in runs)
    return {
        **row,
        "sla_rate_per_second": plan.sla.rate_per_second,
        "sla_minimum_ratio": plan.sla.minimum_ratio,
        "sla_ratio": ratio,
        "sla_met": ratio >= plan.sla.minimum_ratio if ratio is not None and judged else None,
    }


def _worst(values: list[Any]) -> float | None:
    """The value farthest from zero, its sign kept."""
    numbers = [float(v) for v in values if v is not None]
    return max(numbers, key=abs) if numbers else None


def step_row(step: StepRuns, taints: Sequence[Row]) -> Row:
    """The row of a step. `taints` are those of this step and of its whole trial."""
    raw, plan = step.raw, step.raw.plan
    reasons = _partial_because(step)
    stored = (raw.document or {}).get("overlap") or {}
    ended = [h.journal.ended for h in raw.hosts if h.journal and h.journal.ended]
    cpu = [float(e["load_cpu_seconds"]) for e in ended if e.get("load_cpu_seconds") is not None]
    kinds = dict.fromkeys(t["kind"] for t in taints)
    return {
        **raw.trial.step_key(plan),
        "kind": plan.kind,
        "state": raw.document.get("state") if raw.document else "missing",
        "partial": bool(reasons),
        "partial_because": "; ".join(reasons),
        "measure_stream": plan.measure_stream,
        "measure": plan.measure,
        **_measured(step),
        "wall_seconds": step.wall_seconds,
        "overlap_seconds": step.window.seconds if step.window else None,
        "overlap_share": stored.get("share", _share(step)),
        **_sla(step),
        **_merged_latencies(step.of(plan.measure_stream)),
        "errors": sum(sum(r.totals.errors.values()) for r in step.runs),
        "retries": sum(r.totals.retries for r in step.runs),
        "reconnects": sum(r.totals.reconnects for r in step.runs),
        "start_error_seconds": _worst([h.proof.get("start_error_seconds") for h in raw.hosts]),
        "clock_bound_seconds": _worst([h.proof.get("offset_bound_seconds") for h in raw.hosts]),
        "load_cpu_seconds": sum(cpu) if cpu else None,
        "taints": ",".join(kinds),
    }


def _share(step: StepRuns) -> float | None:
    longest = max((r.points[-1].t - r.points[0].t for r in step.runs if r.points), default=0.0)
    return step.window.seconds / longest if step.window and longest else None


def _stream_row(step: StepRuns, stream: str, host: str, runs: Sequence[StreamRun]) -> Row:
    window = step.window
    inside = [within(r.points, window) if window else (math.nan, math.nan) for r in runs]
    operations, rows = sum(i[0] for i in inside), sum(i[1] for i in inside)
    firsts = [r.first_event for r in runs if r.first_event is not None]
    lasts = [r.last_event for r in runs if r.last_event is not None]
    count = sum(histogram.count_of(r.totals.service) for r in runs)
    t0 = step.t0 or 0.0
    seconds = window.seconds if window else None
    return {
        **step.raw.trial.step_key(step.raw.plan),
        "stream": stream,
        "host": host,
        "threads": sum(r.totals.threads for r in runs),
        "operations": sum(r.totals.operations for r in runs),
        "rows": sum(r.totals.rows for r in runs),
        "statements": sum(r.totals.statements for r in runs),
        **{f"errors_{k}": sum(r.totals.errors[k] for r in runs) for k in ERROR_WORDS},
        "retries": sum(r.totals.retries for r in runs),
        "reconnects": sum(r.totals.reconnects for r in runs),
        "first_event_second": min(firsts) - t0 if firsts else None,
        "last_event_second": max(lasts) - t0 if lasts else None,
        "overlap_operations": operations if window else None,
        "overlap_rows": rows if window else None,
        "operations_per_second": _per_second(operations, seconds),
        "rows_per_second": _per_second(rows, seconds),
        "service_mean_us": sum(r.totals.service_sum_us for r in runs) / count if count else None,
        "response_mean_us": sum(r.totals.response_sum_us for r in runs) / count if count else None,
        **_merged_latencies(runs),
        "partial": any(r.partial for r in runs) or bool(step.missing_hosts),
    }


def stream_rows(step: StepRuns) -> list[Row]:
    """Each stream on each host, then each on all hosts together (`host` empty)."""
    rows = [_stream_row(step, r.stream, r.host, [r]) for r in step.runs]
    names = dict.fromkeys(r.stream for r in step.runs)
    return rows + [_stream_row(step, name, "", step.of(name)) for name in names]


def histogram_rows(step: StepRuns) -> list[Row]:
    """Buckets of each stream on each host, then of all hosts together, added."""
    groups = [(r.stream, r.host, [r]) for r in step.runs]
    groups += [(name, "", step.of(name)) for name in dict.fromkeys(r.stream for r in step.runs)]
    rows = []
    for stream, host, runs in groups:
        for kind in ("service", "response"):
            parts = (r.totals.service if kind == "service" else r.totals.response for r in runs)
            rows += [
                {
                    **step.raw.trial.step_key(step.raw.plan),
                    "stream": stream,
                    "host": host,
                    "kind": kind,
                    "bucket": bucket,
                    "lower_us": histogram.lower_bound_us(bucket),
                    "upper_us": histogram.upper_bound_us(bucket),
                    "count": count,
                }
                for bucket, count in histogram.to_pairs(histogram.merge(parts))
            ]
    return rows


def proof_rows(step: StepRuns) -> list[Row]:
    """When each host really started, and how well that is known."""
    rows = []
    t0 = step.t0 or 0.0
    for host in step.raw.hosts:
        proof = host.proof
        ended = proof.get("ended") or (host.journal.ended if host.journal else None) or {}
        moments = {
            f"{name}_second": float(proof[name]) - t0 if proof.get(name) is not None else None
            for name in ("first_event", "last_event")
        }
        rows.append(
            {
                **step.raw.trial.step_key(step.raw.plan),
                "host": host.name,
                "role": host.role,
                "offset_seconds": proof.get("offset_seconds"),
                "offset_bound_seconds": proof.get("offset_bound_seconds"),
                "round_trip_seconds": proof.get("round_trip_seconds"),
                "release_confirmed_seconds_before_t0": proof.get(
                    "release_confirmed_seconds_before_t0"
                ),
                "start_error_seconds": proof.get("start_error_seconds"),
                **moments,
                "reason": str(ended.get("reason") or ""),
            }
        )
    return rows
