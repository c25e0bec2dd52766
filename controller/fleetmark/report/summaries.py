"""The first part of the report: summary tables and the proof of the common start."""

from collections.abc import Callable, Sequence

from fleetmark.analyse import tones
from fleetmark.analyse.summary import Measured, Summary, relative
from fleetmark.analyse.tones import Tone
from fleetmark.report.context import Context
from fleetmark.report.document import Block, Cell, Column, Line, Paragraph, Section, Table
from fleetmark.report.figures import MISSING, number, percent, ratio
from fleetmark.tables.steps import NEVER_BEGAN

_CORNER = "target.build.config"


def sections(context: Context) -> list[Section]:
    """One section for each workload."""
    many = len(context.summaries) > 1
    return [
        Section(
            f"summary-{n}",
            f"Summary: {summary.workload}" if many else "Summary",
            2,
            tuple(_blocks(context, summary, n)),
        )
        for n, summary in enumerate(context.summaries, 1)
    ]


def _blocks(context: Context, summary: Summary, n: int) -> list[Block]:
    if not summary.measured_steps:
        return [Paragraph("No step of this workload was measured.")]
    blocks: list[Block] = [
        _absolute(context, summary, f"absolute-{n}"),
        _relative(context, summary, f"relative-{n}"),
    ]
    if background := _background(context, summary, f"background-{n}"):
        blocks.append(background)
    blocks.append(_proof(context, summary, f"start-{n}"))
    return blocks


def _detail(measured: Measured | None, repeats: int) -> str:
    """What stands small below a throughput: the spread of its repeats, a missed SLA."""
    if measured and not measured.began:
        return NEVER_BEGAN
    parts = []
    estimate = measured.throughput if measured else None
    if estimate and estimate.n > 1:
        parts.append(f"{number(estimate.minimum)}–{number(estimate.maximum)}")
    if estimate and estimate.n < repeats:
        parts.append(f"{estimate.n} of {repeats} repeats")
    if measured and measured.sla_failed:
        parts.append("SLA missed")
    if measured and measured.partial:
        parts.append("partial" if measured.all_partial else "a partial repeat left out")
    return "\n".join(parts)


def _columns(summary: Summary, steps: Sequence[str]) -> tuple[Column, ...]:
    units = {}
    for (_, step), measured in summary.cells.items():
        by_rows = measured.steps[0]["measure"] == "rows"
        units[step] = "rows/s" if by_rows else "queries/s"
    return tuple(Column(step, units.get(step, "")) for step in steps)


def _repeats_note(summary: Summary) -> str:
    estimates = [m.throughput for m in summary.cells.values() if m.throughput]
    words = dict.fromkeys(e.words for e in sorted(estimates, key=lambda e: e.n))
    text = "; ".join(words)
    if any(e.n > 1 for e in estimates):
        return f"Median of the repeats, smallest to largest below it ({text})."
    return f"{text[:1].upper()}{text[1:]}; small differences may be noise." if text else ""


def _hint(measured: Measured | None, tone: Tone) -> str:
    hints = {
        Tone.GOOD: "top quartile of the column's range",
        Tone.BAD: "bottom quartile of the column's range",
        Tone.FAILED: "SLA missed: left out of the comparison",
    }
    parts = [hints[tone]] if tone in hints else []
    if measured and any(s["throughput_basis"] == "step" for s in measured.steps):
        parts.append("total over wall time: too few operations to cut at the overlap")
    return "; ".join(parts)


def _lines(
    context: Context, summary: Summary, steps: Sequence[str], cell: Callable[[str, str], Cell]
) -> list[Line]:
    """A line for each row of the summary; `cell` makes that of a row and a step."""
    return [
        Line(row, tuple(cell(row, step) for step in steps), context.colour(row))
        for row in summary.rows
    ]


def _absolute(context: Context, summary: Summary, table_id: str) -> Table:
    steps = summary.measured_steps
    tone_of = {}
    for step in steps:
        found = [summary.get(row, step) for row in summary.rows]
        failed = [bool(m and m.sla_failed) for m in found]
        column = tones.of_column(summary.column(step), failed)
        tone_of.update({(row, step): t for row, t in zip(summary.rows, column, strict=True)})
    repeats = max((len(m.steps) for m in summary.cells.values()), default=1)

    def cell(row: str, step: str) -> Cell:
        measured = summary.get(row, step)
        estimate = measured.throughput if measured else None
        tone = tone_of[row, step]
        return Cell(
            number(estimate.median if estimate else None),
            tone,
            context.marks(measured),
            _detail(measured, repeats),
            _hint(measured, tone),
        )

    return Table(
        table_id,
        "Throughput while all load hosts ran",
        _CORNER,
        _columns(summary, steps),
        tuple(_lines(context, summary, steps, cell)),
        "Green: top quartile of the column's range. Red: bottom quartile; none where the smallest"
        " is at least 0.8 of the largest. Gray: the SLA was missed, the cell is left out of the"
        f" largest. {_repeats_note(summary)}",
    )


def _relative(context: Context, summary: Summary, table_id: str) -> Table:
    steps = summary.measured_steps
    values = {
        (row, step): value
        for step in steps
        for row, value in zip(summary.rows, relative(summary.column(step)), strict=True)
    }

    def cell(row: str, step: str) -> Cell:
        value = values[row, step]
        return Cell(ratio(value), tones.of_ratio(value), context.marks(summary.get(row, step)))

    return Table(
        table_id,
        f"Throughput relative to {summary.rows[0]}",
        _CORNER,
        tuple(Column(step) for step in steps),
        tuple(_lines(context, summary, steps, cell)),
        "Yellow: below 0.95. Blue: above 1.05.",
    )


def _background(context: Context, summary: Summary, table_id: str) -> Table | None:
    rates = {
        step: m.sla_rate_per_second
        for (_, step), m in summary.cells.items()
        if m.sla_rate_per_second is not None
    }
    steps = [step for step in summary.steps if step in rates]
    if not steps:
        return None

    def cell(row: str, step: str) -> Cell:
        measured = summary.get(row, step)
        inserts = measured.inserts if measured else None
        share = measured.sla_ratio if measured else None
        minimum = (measured.sla_minimum_ratio if measured else None) or 0.0
        return Cell(
            number(inserts.median if inserts else None),
            tones.of_sla(share, minimum),
            context.marks(measured),
            f"{percent(share)} %" if share is not None else "",
        )

    asked = tuple(Cell(number(rates[step])) for step in steps)
    return Table(
        table_id,
        "Background inserts while queries ran",
        _CORNER,
        tuple(Column(step, "rows/s") for step in steps),
        (*_lines(context, summary, steps, cell), Line("target", asked, strong=True)),
        "Over the real duration of the step; the last row is the rate that was asked for."
        " Red: below 95 % of it, so the query rate of that step does not count.",
    )


def _proof(context: Context, summary: Summary, table_id: str) -> Table:
    steps = summary.measured_steps

    def cell(row: str, step: str) -> Cell:
        return _proof_cell(summary.get(row, step))

    return Table(
        table_id,
        "Proof of the common start: worst start error, clock bound, overlap",
        _CORNER,
        tuple(Column(step, "ms") for step in steps),
        tuple(_lines(context, summary, steps, cell)),
        "Start error: the first operation of a load host minus the release time, with the error"
        " bound of the clocks (±). Overlap: the window in which every stream of every host ran,"
        " and its share of the longest stream; throughput is counted in it.",
    )


def _proof_cell(measured: Measured | None) -> Cell:
    if measured is None:
        return Cell(MISSING)
    detail = (
        f"± {_in_ms(measured, 'clock_bound_seconds')}\n"
        f"{number(_smallest(measured, 'overlap_seconds'))} s ·"
        f" {percent(_smallest(measured, 'overlap_share'))} %"
    )
    return Cell(_in_ms(measured, "start_error_seconds"), detail=detail)


def _in_ms(measured: Measured, column: str) -> str:
    known = [s[column] for s in measured.steps if s[column] is not None]
    return number(max(known, key=abs) * 1000.0, 2) if known else MISSING


def _smallest(measured: Measured, column: str) -> float | None:
    return min((s[column] for s in measured.steps if s[column] is not None), default=None)
