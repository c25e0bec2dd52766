"""A report document -> Markdown with tables and footnotes, as code hosts show them."""

from collections.abc import Iterator

from fleetmark.analyse.tones import Tone
from fleetmark.report.document import (
    Block,
    Cell,
    Charts,
    Document,
    Line,
    Listing,
    Paragraph,
    Table,
)

_SIGNS = {Tone.GOOD: "▲ ", Tone.BAD: "▼ ", Tone.FAILED: "✗ ", Tone.LOWER: "↓ ", Tone.HIGHER: "↑ "}


def render(document: Document) -> str:
    """The whole report but the charts, whose words stand in their place."""
    lines = [f"# {_escape(document.title)}", ""]
    if document.description:
        lines += [_escape(document.description), ""]
    if not document.complete:
        words = (
            "files were changed after the run: its numbers cannot be trusted"
            if document.state == "damaged"
            else "this report does not hold all results"
        )
        lines += [f"> **{document.state.upper()}: {words}.**"]
        lines += [f"> - {_escape(reason)}" for reason in document.partial_because] + [""]
    lines += [f"- **{_escape(name)}**: {_escape(value)}" for name, value in document.facts] + [""]
    lines += [f"- {_verdict(v.good)}{_escape(v.text)}" for v in document.verdicts] + [""]
    lines += [
        "Signs: ▲ top quartile, ▼ bottom quartile of the column's range, ✗ SLA missed,"
        " ↓ below 0.95 or different, ↑ above 1.05 or different.",
        "",
    ]
    for section in document.sections:
        lines += [f"{'#' * section.level} {_escape(section.title)}", ""]
        for block in section.blocks:
            lines += [*_block(block), ""]
    lines += [f"[^{note.number}]: {_escape(note.text)}" for note in document.notes]
    lines += ["", _escape(document.footer), ""]
    return "\n".join(lines)


def _verdict(good: bool | None) -> str:
    if good is None:
        return ""
    return "✓ " if good else "**✗** "


def _escape(text: str) -> str:
    for sign in ("\\", "|", "*", "_", "`", "<", "[", "]"):
        text = text.replace(sign, f"\\{sign}")
    return text.replace("\n", " ")


def _block(block: Block) -> Iterator[str]:
    if isinstance(block, Table):
        yield from _table(block)
    elif isinstance(block, Charts):
        for chart in block.charts:
            title, words = _escape(chart.title), _escape(chart.description)
            yield f"*{title}* (picture in report.html): {words}."
            yield ""
    elif isinstance(block, Listing):
        yield from _listing(block)
    elif isinstance(block, Paragraph):
        yield _escape(block.text)


def _listing(block: Listing) -> Iterator[str]:
    # A fence longer than any in the text, so that the text cannot end it.
    fence = "```"
    while fence in block.text:
        fence += "`"
    yield f"{_escape(block.title)}:"
    yield ""
    yield fence
    yield block.text.rstrip("\n")
    yield fence


def _table(table: Table) -> Iterator[str]:
    yield f"**{_escape(table.caption)}**"
    yield ""
    headings = [_escape(f"{c.heading}, {c.unit}" if c.unit else c.heading) for c in table.columns]
    yield _row([_escape(table.corner), *headings])
    yield _row(["---", *("---:" if c.numeric else "---" for c in table.columns)])
    for line in table.lines:
        yield _line(line)
    if table.note:
        yield ""
        yield f"{_escape(table.note)}"


def _line(line: Line) -> str:
    label = f"**{_escape(line.label)}**" if line.strong else _escape(line.label)
    return _row([label, *(_cell(cell) for cell in line.cells)])


def _cell(cell: Cell) -> str:
    text = _SIGNS.get(cell.tone, "") + _escape(cell.text)
    if cell.detail:
        text += f" ({_escape(cell.detail)})"
    return text + "".join(f"[^{mark}]" for mark in cell.marks)


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"
