"""One section for each step: charts, latencies, counters by operation, errors."""

from collections.abc import Sequence

from fleetmark.analyse import latency, tones
from fleetmark.analyse.summary import Summary, relative, row_label
from fleetmark.report import charts
from fleetmark.report.context import Context, cells, mean
from fleetmark.report.document import (
    Block,
    Cell,
    Chart,
    Charts,
    Column,
    Line,
    Paragraph,
    Section,
    Table,
)
from fleetmark.report.figures import milliseconds, number, ratio, whole
from fleetmark.tables.schema import Row
from fleetmark_agent.shm import ERROR_WORDS

_COUNTERS = (
    ("cpu_us_per_operation", "cpu/o", "us", "us + sy of the whole database host"),
    ("server_cpu_us_per_operation", "server cpu/o", "us", "the server's process alone"),
    ("client_cpu_us_per_operation", "client cpu/o", "us", "the load processes"),
    ("context_switches_per_operation", "cs/o", "", "context switches of the database host"),
    ("reads_per_operation", "r/o", "", "storage reads"),
    ("read_kb_per_operation", "rKB/o", "KB", "read from storage"),
    ("writes_per_insert", "w/i", "", "storage writes for each inserted row"),
    ("write_kb_per_insert", "wKB/i", "KB", "written to storage for each inserted row"),
    ("fsyncs_per_insert", "fsync/i", "", "fsyncs of data and redo log for each inserted row"),
)
_SHORTEST_SECOND = 0.9
"""A second of which less was observed is left out of the charts: its rate would mislead."""


def sections(context: Context) -> list[Section]:
    """A heading for each workload with a section below it for each measured step."""
    found = []
    for n, summary in enumerate(context.summaries, 1):
        if not summary.measured_steps:
            continue
        title = f"Steps: {summary.workload}" if len(context.summaries) > 1 else "Steps"
        intro = (
            "Charts show one second a point, on the controller's clock. Latencies of several"
            " hosts and repeats are merged by adding histogram buckets, each at most 3\u00a0%"
            " wide."
        )
        found.append(Section(f"steps-{n}", title, 2, (Paragraph(intro),)))
        found += [
            Section(f"step-{n}-{m}", step, 3, tuple(_blocks(context, summary, step, f"{n}-{m}")))
            for m, step in enumerate(summary.measured_steps, 1)
        ]
    return found


def _blocks(context: Context, summary: Summary, step: str, place: str) -> list[Block]:
    if not any(m.began for row in summary.rows if (m := summary.get(row, step))):
        return [Paragraph("This step never began.")]
    blocks: list[Block] = [Charts(_charts(context, summary, step, place))]
    blocks.append(_latencies(context, summary, step, f"latency-{place}"))
    if counters := context.of_step("counters", summary.workload, step):
        blocks += _counters(context, summary, counters, place)
    blocks.append(_errors(context, summary, step, f"errors-{place}"))
    return blocks


def _traces(
    context: Context, series: Sequence[Row], stream: str, column: str, scale: float = 1.0
) -> list[charts.Trace]:
    """One line for each trial. A second without a value breaks the line."""
    traces = []
    own = [r for r in series if r["stream"] == stream]
    for trial in dict.fromkeys(r["trial"] for r in own):
        rows = [r for r in own if r["trial"] == trial]
        full = [r for r in rows if r["covered_seconds"] >= _SHORTEST_SECOND] or rows
        points: list[tuple[float, float | None]] = []
        for row in full:
            if points and row["second"] - points[-1][0] > 1.5:
                points.append((points[-1][0] + 1.0, None))
            value = row[column]
            points.append((row["second"], None if value is None else value * scale))
        traces.append(charts.Trace(context.colour(row_label(rows[0])), points))
    return traces


def _charts(context: Context, summary: Summary, step: str, place: str) -> tuple[Chart, ...]:
    series = context.of_step("series", summary.workload, step)
    found = [m for row in summary.rows if (m := summary.get(row, step))]
    first = found[0].steps[0]
    stream, by_rows = first["measure_stream"], first["measure"] == "rows"
    column = "rows_per_second" if by_rows else "operations_per_second"
    unit = "rows" if by_rows else "queries"
    panels = [
        charts.Panel(f"{stream}: {unit} a second", _traces(context, series, stream, column)),
        charts.Panel(
            f"{stream}: worst latency in each second, ms",
            _traces(context, series, stream, "response_worst_us", 0.001),
            logarithmic=True,
        ),
    ]
    if first["sla_rate_per_second"] is not None:
        writes = first["write_stream"]
        panels.append(
            charts.Panel(
                f"{writes}: rows a second (dashed: the rate asked for)",
                _traces(context, series, writes, "rows_per_second"),
                limit=first["sla_rate_per_second"],
            )
        )
    title = f"{step}: throughput and worst latency, second by second"
    description = _spoken(summary, step, unit)
    chart_id = f"chart-{place}"
    over_time = charts.time_chart(f"{chart_id}t", title, description, panels)
    distribution = _distribution(context, summary, step, stream, f"{chart_id}p")
    return (Chart(f"{chart_id}t", title, description, over_time), distribution)


def _spoken(summary: Summary, step: str, unit: str) -> str:
    parts = []
    for row in summary.rows:
        measured = summary.get(row, step)
        if measured and measured.throughput:
            worst = max((s["response_max_us"] or 0.0 for s in measured.steps), default=0.0)
            parts.append(
                f"{row}: {number(measured.throughput.median)} {unit} a second,"
                f" worst latency {milliseconds(worst)} ms"
            )
    return "; ".join(parts) or "nothing was measured"


def _merged(rows: Sequence[Row], label: str, stream: str, kind: str) -> dict[int, int]:
    return latency.merged(
        r for r in rows if r["stream"] == stream and r["kind"] == kind and row_label(r) == label
    )


def _highest(rows: Sequence[Row], label: str, stream: str, kind: str) -> float:
    return max(
        (
            r[f"{kind}_max_us"] or 0.0
            for r in rows
            if r["stream"] == stream and row_label(r) == label
        ),
        default=0.0,
    )


def _distribution(
    context: Context, summary: Summary, step: str, stream: str, chart_id: str
) -> Chart:
    histograms = context.of_step("histograms", summary.workload, step)
    streams = context.of_step("streams", summary.workload, step)
    traces = []
    spoken = []
    for row in summary.rows:
        counts = _merged(histograms, row, stream, "response")
        points = latency.curve(counts, _highest(streams, row, stream, "response"))
        if points:
            line = [(p.percent, p.latency_us / 1000.0) for p in points]
            traces.append(charts.Trace(context.colour(row), line))
            spoken.append(f"{row}: maximum {milliseconds(points[-1].latency_us)} ms")
    title = f"{step}: response time of {stream} by percentile"
    description = "; ".join(spoken) or "nothing was measured"
    panel = charts.Panel(f"{stream}: response time, ms", traces, logarithmic=True)
    svg = charts.curve_chart(chart_id, title, description, panel)
    return Chart(chart_id, title, description, svg, wide=False)


def _latencies(context: Context, summary: Summary, step: str, table_id: str) -> Table:
    histograms = context.of_step("histograms", summary.workload, step)
    streams = context.of_step("streams", summary.workload, step)
    first = next(m for row in summary.rows if (m := summary.get(row, step))).steps[0]
    names = dict.fromkeys([first["measure_stream"], *(r["stream"] for r in streams)])
    lines = []
    for stream in names:
        for row in summary.rows:
            service = _merged(histograms, row, stream, "service")
            response = _merged(histograms, row, stream, "response")
            kinds = {"service": service, "response": response}
            if service == response:
                # A stream without a schedule is due when it is sent.
                kinds = {"service = response": response}
            for kind, counts in kinds.items():
                if not counts:
                    continue
                highest = _highest(streams, row, stream, kind.rpartition(" ")[2])
                values = latency.percentiles_us(counts, highest)
                marks = context.marks(summary.get(row, step))
                lines.append(
                    Line(
                        row,
                        (
                            Cell(stream),
                            Cell(kind, marks=marks),
                            Cell(whole(sum(counts.values()))),
                            *(Cell(milliseconds(v)) for v in [*values, highest]),
                        ),
                        context.colour(row),
                    )
                )
    headings = ("p50", "p95", "p99", "p99.9", "max")
    return Table(
        table_id,
        f"{step}: latency",
        "target.build.config",
        (
            Column("stream", numeric=False),
            Column("kind", numeric=False, explanation="service from the send; response from due"),
            Column("operations"),
            *(Column(h, "ms") for h in headings),
        ),
        tuple(lines),
        "Service time runs from the send of an operation, response time from the moment it was"
        " due, so a stall is not hidden.",
    )


def _counted(summary: Summary, step: str) -> set[str]:
    """The trials whose step is whole; of a row that has none, all of its trials."""
    trials: set[str] = set()
    for row in summary.rows:
        if measured := summary.get(row, step):
            whole_steps = [s for s in measured.steps if not s["partial"]] or measured.steps
            trials |= {s["trial"] for s in whole_steps}
    return trials


def _counters(
    context: Context, summary: Summary, counters: Sequence[Row], place: str
) -> list[Block]:
    step, per = counters[0]["name"], counters[0]["per"]
    counters = [r for r in counters if r["trial"] in _counted(summary, step)]
    used = [c for c in _COUNTERS if any(r[c[0]] is not None for r in counters)]
    values = {
        name: [mean([r[name] for r in counters if row_label(r) == row]) for row in summary.rows]
        for name, *_ in used
    }
    ratios = {name: relative(column) for name, column in values.items()}
    columns = tuple(
        Column(heading, unit, explanation=explanation) for _, heading, unit, explanation in used
    )
    # Marks once a row: every number in it comes from the same step.
    absolute, compared = [], []
    for n, row in enumerate(summary.rows):
        shown = cells([values[name][n] for name, *_ in used], number)
        marks = context.marks(summary.get(row, step))
        marked = (Cell(shown[0].text, marks=marks), *shown[1:]) if shown else ()
        absolute.append(Line(row, marked, context.colour(row)))
        row_ratios = [ratios[name][n] for name, *_ in used]
        shades = [tones.of_ratio(value) for value in row_ratios]
        compared.append(Line(row, cells(row_ratios, ratio, shades), context.colour(row)))
    operation = "a row" if per == "rows" else "a query"
    note = (
        f"o is {operation}, i an inserted row; KB is 1,024 bytes. Means over the overlap."
        f" Storage is counted on {', '.join(dict.fromkeys(r['disk'] for r in counters))}."
    )
    corner = "target.build.config"
    blocks: list[Block] = [
        Table(
            f"counters-{place}",
            f"{step}: cost by operation",
            corner,
            columns,
            tuple(absolute),
            note,
        )
    ]
    if len(summary.rows) > 1:
        blocks.append(
            Table(
                f"counters-relative-{place}",
                f"{step}: cost by operation, relative to {summary.rows[0]}",
                corner,
                tuple(Column(c.heading, explanation=c.explanation) for c in columns),
                tuple(compared),
                "Yellow: below 0.95. Blue: above 1.05. Less is better here.",
            )
        )
    return blocks


def _errors(context: Context, summary: Summary, step: str, table_id: str) -> Block:
    streams = context.of_step("streams", summary.workload, step)
    counted = (*(f"errors_{kind}" for kind in ERROR_WORDS), "retries", "reconnects")
    if not any(r[name] for r in streams for name in counted):
        return Paragraph("No errors, no retries, no reconnects.")
    lines = []
    for row in summary.rows:
        for stream in dict.fromkeys(r["stream"] for r in streams):
            own = [r for r in streams if r["stream"] == stream and row_label(r) == row]
            sums = [Cell(whole(sum(r[name] for r in own))) for name in counted]
            lines.append(Line(row, (Cell(stream), *sums), context.colour(row)))
    headings = ("deadlocks", "lock waits", "lost connections", "unknown commits", "other")
    return Table(
        table_id,
        f"{step}: errors",
        "target.build.config",
        (
            Column("stream", numeric=False),
            *(Column(h) for h in (*headings, "retries", "reconnects")),
        ),
        tuple(lines),
        "Unknown commits: the connection was lost during COMMIT, so the outcome is not known.",
    )
