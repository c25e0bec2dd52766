"""What all parts of a report need: the run's tables, its summaries, its notes and its colours."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from fleetmark import store
from fleetmark.analyse.summary import Measured, Summary, row_label, summarise
from fleetmark.analyse.tones import Tone
from fleetmark.report.document import Cell, Notebook
from fleetmark.report.figures import MISSING, percent
from fleetmark.tables.build import RunTables
from fleetmark.tables.schema import Row
from fleetmark.tables.steps import NEVER_BEGAN


@dataclass(frozen=True)
class Context:
    """One run, read once. `labels` are the rows of the report, in the order of their colours.

    `damage` is what the checksums show, null while the run has none.
    """

    tables: RunTables
    run_document: dict[str, Any]
    plan_document: dict[str, Any]
    summaries: tuple[Summary, ...]
    labels: tuple[str, ...]
    damage: tuple[store.Damage, ...] | None
    notebook: Notebook = field(default_factory=Notebook)
    _by_step: dict[str, dict[tuple[str, str], list[Row]]] = field(default_factory=dict, repr=False)

    def colour(self, label: str) -> int:
        """The place of a row in the legend."""
        return self.labels.index(label)

    def taints_of(self, trial: str, step: str) -> list[Row]:
        """The taints of a step, those of its whole trial included."""
        return [
            t for t in self.tables.rows("taints") if t["trial"] == trial and t["step"] in ("", step)
        ]

    def of_step(self, table: str, workload: str, name: str) -> list[Row]:
        """The rows of a step of a workload, all hosts together where the table has hosts."""
        if table not in self._by_step:
            index: dict[tuple[str, str], list[Row]] = {}
            for row in self.tables.merged_rows(table):
                index.setdefault((row["workload"], row["name"]), []).append(row)
            self._by_step[table] = index
        return self._by_step[table].get((workload, name), [])

    def marks(self, measured: Measured | None) -> tuple[int, ...]:
        """The notes that belong beside a number: taints, a missed SLA, missing parts."""
        found: dict[int, None] = {}
        for step in measured.steps if measured else ():
            for text in self._reasons(step):
                found[self.notebook.mark(text)] = None
        return tuple(found)

    def _reasons(self, step: Row) -> list[str]:
        row = row_label(step)
        repeat = f" (repeat {step['repeat']})" if step["repeat"] > 1 else ""
        place = f"{row}, {step['name']}{repeat}"
        taints = self.taints_of(step["trial"], step["step"])
        texts = [
            f"{place if t['step'] else row + repeat}: {t['kind']}: {t['text']}" for t in taints
        ]
        kinds = {t["kind"] for t in taints}
        if step["sla_met"] is False and "sla" not in kinds:
            texts.append(
                f"{place}: sla: inserts reached {percent(step['sla_ratio'])} % of the rate asked"
                f" for, at least {percent(step['sla_minimum_ratio'], 0)} % is needed"
            )
        # A step that never began shows so in its cell: there is no number to doubt.
        if step["partial"] and "partial" not in kinds and step["partial_because"] != NEVER_BEGAN:
            texts.append(f"{place}: partial: {step['partial_because']}")
        return texts


def open_context(tables: RunTables, run: dict[str, Any], plan: dict[str, Any]) -> Context:
    """Read what every part of the report needs."""
    summaries = tuple(summarise(tables.rows("trials"), tables.rows("steps")))
    labels = tuple(dict.fromkeys(row for s in summaries for row in s.rows))
    has_sums = (tables.run.path / store.SUMS_NAME).is_file()
    damage = tuple(store.verify_sums(tables.run)[1]) if has_sums else None
    return Context(tables, run, plan, summaries, labels, damage)


def cells(
    values: Sequence[float | None],
    text: Callable[[float | None], str],
    tones: Sequence[Tone] = (),
) -> tuple[Cell, ...]:
    """Plain numbers as cells."""
    shown = tones or [Tone.NONE] * len(values)
    return tuple(Cell(text(v), tone) for v, tone in zip(values, shown, strict=True))


def mean(values: Sequence[float | None]) -> float | None:
    """The mean of the values that are there; null when there is none."""
    known = [v for v in values if v is not None]
    return sum(known) / len(known) if known else None


def text_or_missing(value: object) -> str:
    """A stored text, or the sign for a missing one."""
    return MISSING if value is None or value == "" else str(value)
