"""Several runs side by side: the same step of the same workload, relative to the first row."""

from collections.abc import Sequence
from dataclasses import dataclass

from fleetmark.analyse.summary import Summary, relative


@dataclass(frozen=True)
class ComparedRow:
    """One row of one run."""

    run: str
    label: str
    absolute: tuple[float | None, ...]
    relative: tuple[float | None, ...]
    sla_failed: tuple[bool, ...]
    tainted: tuple[bool, ...]


@dataclass(frozen=True)
class Comparison:
    """One workload over all runs that have it; columns are the steps found in any of them."""

    workload: str
    steps: tuple[str, ...]
    rows: tuple[ComparedRow, ...]


def compare(runs: Sequence[tuple[str, Sequence[Summary]]]) -> list[Comparison]:
    """Line up the summaries of runs, oldest given first; the first row is the base.

    A workload that only one run has is left out: there is nothing to compare it with, unless
    a single run is given.
    """
    names = dict.fromkeys(s.workload for _, summaries in runs for s in summaries)
    comparisons = []
    for name in names:
        found = [(run, s) for run, summaries in runs for s in summaries if s.workload == name]
        if len(found) > 1 or len(runs) == 1:
            comparisons.append(_compare_workload(name, found))
    return comparisons


def _compare_workload(name: str, found: Sequence[tuple[str, Summary]]) -> Comparison:
    steps = tuple(dict.fromkeys(step for _, s in found for step in s.measured_steps))
    lines = [(run, summary, label) for run, summary in found for label in summary.rows]
    columns = []
    for step in steps:
        cells = [summary.get(label, step) for _, summary, label in lines]
        values = [c.throughput.median if c and c.throughput else None for c in cells]
        failed = [bool(c and c.sla_failed) for c in cells]
        tainted = [bool(c and (c.partial or any(s["taints"] for s in c.steps))) for c in cells]
        columns.append((values, relative(values), failed, tainted))
    return Comparison(
        name,
        steps,
        tuple(
            ComparedRow(
                run,
                label,
                tuple(c[0][n] for c in columns),
                tuple(c[1][n] for c in columns),
                tuple(c[2][n] for c in columns),
                tuple(c[3][n] for c in columns),
            )
            for n, (run, _, label) in enumerate(lines)
        ),
    )
