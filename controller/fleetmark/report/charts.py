"""Charts as inline SVG: small, with text as text, colours left to the page's style.

Colours are written as marks and then replaced by CSS variables, so that one picture serves a
light page, a dark page and paper.
"""

import io
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import matplotlib as mpl
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

COLOURS = 7
"""How many rows get a colour of their own; later ones share, with another dash."""

LONGEST_LINE = 1000
"""Points a line may have before it is thinned out."""

_INK, _GRID = "#010203", "#010204"
_SERIES = [f"#0101{n:02x}" for n in range(16, 16 + COLOURS)]
_DASHES: list[Any] = ["-", (0, (5, 1.5)), (0, (1.5, 1.2)), (0, (5, 1.2, 1.2, 1.2))]

_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "fleetmark",
    "font.family": "sans-serif",
    "font.size": 9.5,
    "text.color": _INK,
    "axes.edgecolor": _GRID,
    "axes.labelcolor": _INK,
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 9.5,
    "axes.titlelocation": "left",
    "xtick.color": _INK,
    "ytick.color": _INK,
    "grid.color": _GRID,
    "grid.linewidth": 0.6,
    "figure.facecolor": "none",
    "path.simplify": False,
}


@dataclass(frozen=True)
class Trace:
    """One line: which row of the report it belongs to, and its points (null breaks it)."""

    colour: int
    points: Sequence[tuple[float, float | None]]


@dataclass(frozen=True)
class Panel:
    """One plot: what is drawn, in which unit, and whether the scale is logarithmic."""

    title: str
    traces: Sequence[Trace]
    logarithmic: bool = False
    limit: float | None = None


def thin_out(
    points: Sequence[tuple[float, float | None]], longest: int = LONGEST_LINE
) -> list[tuple[float, float | None]]:
    """Shorten a long line: of each bin the smallest and the largest, in order of time.

    So a stall of one second, or a single slow operation, stays in the picture.
    """
    if len(points) <= longest:
        return list(points)
    bins = longest // 2
    kept: list[tuple[float, float | None]] = []
    for n in range(bins):
        part = points[n * len(points) // bins : (n + 1) * len(points) // bins]
        known = [(x, y) for x, y in part if y is not None]
        if not known:
            kept.append((part[0][0], None))
            continue
        ends = {min(known, key=lambda p: p[1]), max(known, key=lambda p: p[1])}
        kept += sorted(ends)
    return kept


def time_chart(chart_id: str, title: str, description: str, panels: Sequence[Panel]) -> str:
    """Panels below one another over the seconds since the release."""
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(7.6, 0.5 + 1.75 * len(panels)), layout="constrained")
        axes = figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
        for axis, panel in zip(axes, panels, strict=True):
            _draw(axis, panel)
        axes[-1].set_xlabel("seconds since the release")
        axes[-1].xaxis.set_major_locator(MaxNLocator(8, integer=True))
        axes[-1].set_xlim(left=0)
        return _svg(figure, chart_id, title, description)


def curve_chart(chart_id: str, title: str, description: str, panel: Panel) -> str:
    """Latency over the share of operations, both scales logarithmic.

    Points are (percent, milliseconds); the axis runs over 1 / (1 - percent/100).
    """
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(4.6, 4.0), layout="constrained")
        axis = figure.subplots()
        moved = [
            Trace(t.colour, [(100.0 / (100.0 - x), y) for x, y in t.points]) for t in panel.traces
        ]
        _draw(axis, Panel(panel.title, moved, logarithmic=True))
        axis.set_xscale("log")
        ends = [t.points[-1][0] for t in moved if t.points]
        nines = max(2, math.ceil(math.log10(max(ends, default=100.0))))
        ticks = [1.0, 2.0, *(10.0**n for n in range(1, nines + 1))]
        axis.set_xticks(ticks, [f"{100 - 100 / tick:.8g}" for tick in ticks])
        axis.xaxis.set_minor_locator(NullLocator())
        axis.set_xlim(left=1.0)
        axis.set_xlabel("% of operations that were at least as fast")
        return _svg(figure, chart_id, title, description)


def _draw(axis: Any, panel: Panel) -> None:
    for trace in panel.traces:
        points = thin_out(trace.points)
        axis.plot(
            [x for x, _ in points],
            [math.nan if y is None else y for _, y in points],
            color=_SERIES[trace.colour % COLOURS],
            linestyle=_DASHES[trace.colour // COLOURS % len(_DASHES)],
            linewidth=1.4,
            solid_joinstyle="round",
            marker="o" if len(points) == 1 else None,
            markersize=3,
        )
    if panel.limit is not None:
        axis.axhline(panel.limit, color=_INK, linewidth=0.8, linestyle=(0, (4, 3)))
    axis.set_title(panel.title)
    axis.grid(visible=True)
    axis.tick_params(length=0)
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _tick(value)))
    if panel.logarithmic and any(y for t in panel.traces for _, y in t.points if y):
        axis.set_yscale("log")
        axis.yaxis.set_major_locator(LogLocator(subs=_subs(panel)))
        axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _tick(value)))
        axis.yaxis.set_minor_locator(NullLocator())
    else:
        known = [y for t in panel.traces for _, y in t.points if y] + [panel.limit or 0.0]
        axis.set_ylim(0, max(known) * 1.08 or 1.0)


def _subs(panel: Panel) -> tuple[float, ...]:
    """Ticks within a decade: more of them where the values span less than two."""
    known = [y for t in panel.traces for _, y in t.points if y]
    decades = math.log10(max(known) / min(known)) if known else 0.0
    return (1.0, 2.0, 5.0) if decades < 2 else (1.0,)


def _tick(value: float) -> str:
    if value and abs(value) < 0.001:
        return f"{value:.0e}"
    return f"{value:,.0f}" if abs(value) >= 10 else f"{value:g}"


def _rounded(attribute: re.Match[str]) -> str:
    """Coordinates to a tenth of a point; the picture is the same and half as long."""
    return re.sub(r"\d+\.\d{2,}", lambda number: f"{float(number[0]):.1f}", attribute[0])


def _svg(figure: Figure, chart_id: str, title: str, description: str) -> str:
    buffer = io.StringIO()
    FigureCanvasSVG(figure).print_svg(  # type: ignore[no-untyped-call]
        buffer, metadata={"Date": None}
    )
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.S)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.S)
    text = re.sub(r' xmlns(:xlink)?="[^"]*"', "", text).replace("xlink:href", "href")
    # A style element would reach the whole page, and so would ids that other charts have too.
    text = re.sub(r"<style.*?</style>", "", text, flags=re.S)
    text = re.sub(r"font-family: [^;\"]*;? ?", "", text)
    text = re.sub(r'<g id="[^"]*"', "<g", text)
    text = re.sub(r'\bid="([^"]+)"', rf'id="{chart_id}-\1"', text)
    text = re.sub(r"url\(#([^)]+)\)", rf"url(#{chart_id}-\1)", text)
    text = re.sub(r'href="#([^"]+)"', rf'href="#{chart_id}-\1"', text)
    text = re.sub(r'\b(d|x|y|transform)="[^"]*"', _rounded, text)
    text = re.sub(r">\s+<", "><", text)
    for mark, variable in [(_INK, "--ink"), (_GRID, "--grid")] + [
        (colour, f"--s{n}") for n, colour in enumerate(_SERIES)
    ]:
        text = text.replace(mark, f"var({variable})")
    head = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', text)
    box = head[0] if head else ""
    labels = f"{chart_id}-title {chart_id}-desc"
    opening = (
        f'<svg {box} role="img" aria-labelledby="{labels}">'
        f'<title id="{chart_id}-title">{escape(title)}</title>'
        f'<desc id="{chart_id}-desc">{escape(description)}</desc>'
    )
    return opening + text[text.index(">") + 1 :].strip()
