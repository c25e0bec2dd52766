"""What a report holds, before it is HTML or Markdown."""

from dataclasses import dataclass, field

from fleetmark.analyse.tones import Tone


@dataclass(frozen=True)
class Cell:
    """One cell as text. `marks` are numbers of notes, `detail` stands small below it."""

    text: str
    tone: Tone = Tone.NONE
    marks: tuple[int, ...] = ()
    detail: str = ""
    hint: str = ""


@dataclass(frozen=True)
class Column:
    """A heading with its unit; numbers stand to the right."""

    heading: str
    unit: str = ""
    numeric: bool = True
    explanation: str = ""


@dataclass(frozen=True)
class Line:
    """One row: its heading, its colour in the charts if it has one, and its cells."""

    label: str
    cells: tuple[Cell, ...]
    colour: int | None = None
    strong: bool = False


@dataclass(frozen=True)
class Table:
    """A table. `corner` heads the column of row headings; `folded` hides it until asked for."""

    id: str
    caption: str
    corner: str
    columns: tuple[Column, ...]
    lines: tuple[Line, ...]
    note: str = ""
    folded: bool = False


@dataclass(frozen=True)
class Chart:
    """A picture as inline SVG, with words for who cannot see it."""

    id: str
    title: str
    description: str
    svg: str
    wide: bool = True


@dataclass(frozen=True)
class Charts:
    """Charts that stand together under one legend."""

    charts: tuple[Chart, ...]


@dataclass(frozen=True)
class Paragraph:
    """A sentence or two."""

    text: str


@dataclass(frozen=True)
class Listing:
    """A file as it was, folded."""

    title: str
    text: str


Block = Table | Charts | Paragraph | Listing


@dataclass(frozen=True)
class Section:
    """A part of the report. `level` is 2 for a part, 3 for one below it."""

    id: str
    title: str
    level: int
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Note:
    """A footnote: why a number must not be trusted."""

    number: int
    text: str


@dataclass(frozen=True)
class Verdict:
    """One statement of the head; `good` is null for a plain fact."""

    text: str
    good: bool | None = None


@dataclass(frozen=True)
class Document:
    """The whole report. `legend` names the rows in the order of their colours."""

    title: str
    description: str
    run_id: str
    state: str
    partial_because: tuple[str, ...]
    facts: tuple[tuple[str, str], ...]
    verdicts: tuple[Verdict, ...]
    sections: tuple[Section, ...]
    legend: tuple[str, ...]
    notes: tuple[Note, ...] = ()
    footer: str = ""

    @property
    def complete(self) -> bool:
        """Whether all of the experiment is in it."""
        return self.state == "complete"


@dataclass
class Notebook:
    """Numbers the notes while the report is put together; equal texts get one number."""

    _numbers: dict[str, int] = field(default_factory=dict)

    def mark(self, text: str) -> int:
        """The number of a note, a new one where it is new."""
        return self._numbers.setdefault(text, len(self._numbers) + 1)

    @property
    def notes(self) -> tuple[Note, ...]:
        """All notes so far, in order."""
        return tuple(Note(number, text) for text, number in self._numbers.items())

    def text(self, number: int) -> str:
        """The text of a note."""
        return next(text for text, n in self._numbers.items() if n == number)
