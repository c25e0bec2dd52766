"""The summary: rows are target.build.config, columns are the steps in the order of the plan."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fleetmark.analyse.repeats import Estimate, estimate
from fleetmark.tables.schema import Row
from fleetmark.tables.steps import NEVER_BEGAN


@dataclass(frozen=True)
class Measured:
    """One step of one row, all its repeats together. `inserts` is the rate of the writes.

    Partial repeats are left out of the estimates while any whole one is there.
    """

    throughput: Estimate | None
    inserts: Estimate | None
    sla_rate_per_second: float | None
    sla_minimum_ratio: float | None
    sla_failed: bool
    partial: bool
    steps: tuple[Row, ...]

    @property
    def began(self) -> bool:
        """Whether any repeat of the step left anything."""
        return any(s["partial_because"] != NEVER_BEGAN for s in self.steps)

    @property
    def all_partial(self) -> bool:
        """Whether no repeat is whole."""
        return all(s["partial"] for s in self.steps)

    @property
    def sla_ratio(self) -> float | None:
        """The worst inserts over the rate asked for, of the repeats that can be judged."""
        judged = [s for s in self.steps if s["sla_met"] is not None]
        return min((s["sla_ratio"] for s in judged), default=None)


@dataclass(frozen=True)
class Summary:
    """One workload: row labels and step names in order, and what was measured in each cell.

    A step that a row never reached has no cell.
    """

    workload: str
    rows: tuple[str, ...]
    steps: tuple[str, ...]
    cells: dict[tuple[str, str], Measured]
    settle_steps: frozenset[str]

    def get(self, row: str, step: str) -> Measured | None:
        """What was measured, or null."""
        return self.cells.get((row, step))

    def column(self, step: str) -> list[float | None]:
        """The throughput of every row in a step."""
        return [_median(self.get(row, step)) for row in self.rows]

    @property
    def measured_steps(self) -> tuple[str, ...]:
        """The steps that have a throughput; waits are left out."""
        return tuple(s for s in self.steps if s not in self.settle_steps)


def _median(cell: Measured | None) -> float | None:
    return cell.throughput.median if cell and cell.throughput else None


def row_label(row: Row) -> str:
    """What a line of the report stands for: target.build.config."""
    return f"{row['target']}.{row['build']}.{row['config']}"


def summarise(trials: Sequence[Row], steps: Sequence[Row]) -> list[Summary]:
    """One summary a workload, from the rows of the tables trials and steps.

    Rows stand in the order of target, then of first appearance; trials that were planned and
    never began keep their line, so that nothing is missing silently.
    """
    summaries = []
    for workload in dict.fromkeys(t["workload"] for t in trials):
        own = [t for t in trials if t["workload"] == workload]
        # Trials may run rotated; the report shows them as planned for the first repeat.
        rows = tuple(dict.fromkeys(row_label(t) for t in sorted(own, key=lambda t: t["repeat"])))
        mine = [s for s in steps if s["workload"] == workload]
        names = {s["step_index"]: s["name"] for s in mine}
        cells = {
            (row, name): _measured(found)
            for row in rows
            for name in names.values()
            if (found := [s for s in mine if s["name"] == name and row_label(s) == row])
        }
        waits = frozenset(s["name"] for s in mine if s["kind"] == "settle")
        order = tuple(names[index] for index in sorted(names))
        summaries.append(Summary(workload, rows, order, cells, waits))
    return summaries


def _measured(steps: Sequence[Row]) -> Measured:
    counted = [s for s in steps if not s["partial"]] or steps
    rates = [s["sla_rate_per_second"] for s in steps if s["sla_rate_per_second"] is not None]
    ratios = [s["sla_minimum_ratio"] for s in steps if s["sla_minimum_ratio"] is not None]
    return Measured(
        throughput=estimate(s["throughput"] for s in counted),
        inserts=estimate(s["inserts_per_second"] for s in counted),
        sla_rate_per_second=rates[0] if rates else None,
        sla_minimum_ratio=ratios[0] if ratios else None,
        sla_failed=any(s["sla_met"] is False for s in steps),
        partial=any(s["partial"] for s in steps),
        steps=tuple(steps),
    )


def relative(values: Sequence[float | None]) -> list[float | None]:
    """Each value over the first one; null where either is missing or the first is zero."""
    base = values[0] if values else None
    return [v / base if v is not None and base else None for v in values]


def relative_of(
    summary: Summary, step: str, value: Callable[[Measured], float | None]
) -> list[float | None]:
    """Any value of a step for every row, relative to the first row."""
    cells = [summary.get(row, step) for row in summary.rows]
    return relative([value(cell) if cell else None for cell in cells])
