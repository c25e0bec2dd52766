"""A report document -> one HTML file that needs nothing else."""

import jinja2
from markupsafe import Markup

from fleetmark.analyse.tones import Tone
from fleetmark.report import document as model
from fleetmark.report.charts import COLOURS

_SIGNS = {
    Tone.GOOD: ("▲", "good"),
    Tone.BAD: ("▼", "bad"),
    Tone.FAILED: ("SLA", "missed its SLA"),
    Tone.LOWER: ("", ""),
    Tone.HIGHER: ("", ""),
    Tone.NONE: ("", ""),
}
_LONG_NAME = 14
_DASHES = ("", "6 2", "2 2", "6 2 2 2")


def render(document: model.Document) -> str:
    """The whole page. All text is escaped; only charts are taken as they are."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("fleetmark.report"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters["breakable"] = _breakable
    environment.tests["table"] = lambda block: isinstance(block, model.Table)
    environment.tests["charts"] = lambda block: isinstance(block, model.Charts)
    environment.tests["paragraph"] = lambda block: isinstance(block, model.Paragraph)
    style, _, _ = environment.loader.get_source(environment, "report.css")  # type: ignore[union-attr]
    return environment.get_template("report.html.j2").render(
        document=document,
        style=Markup(style),  # noqa: S704 (our own style sheet)
        note_text={note.number: note.text for note in document.notes},
        sign=lambda tone: _SIGNS[tone],
        colours=COLOURS,
        dash=lambda n: _DASHES[n // COLOURS % len(_DASHES)],
        picture=Markup,
    )


def _breakable(text: str) -> Markup:
    """Let a long dotted name break after its dots and underscores."""
    escaped = str(Markup.escape(text))
    if len(text) < _LONG_NAME:
        return Markup(escaped)  # noqa: S704 (escaped above)
    for sign in (".", "_", "/"):
        escaped = escaped.replace(sign, f"{sign}<wbr>")
    return Markup(escaped)  # noqa: S704 (escaped above)
