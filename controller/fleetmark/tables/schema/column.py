"""What a table is made of: columns with type, unit and meaning, and those that many share.

Nothing here knows how tables are stored, so whoever only reads rows need not load an engine.
"""

from dataclasses import dataclass
from typing import Any, Literal

Row = dict[str, Any]
"""One row of a table; its keys are exactly the columns declared in the schema."""

Kind = Literal["text", "whole", "real", "yes_no"]


@dataclass(frozen=True)
class Column:
    """One column. `unit` is empty for names and plain counts."""

    name: str
    kind: Kind
    unit: str = ""
    meaning: str = ""


@dataclass(frozen=True)
class Table:
    """One table: what a row is, and its columns in order."""

    name: str
    row: str
    columns: tuple[Column, ...]

    @property
    def names(self) -> list[str]:
        """Column names in order."""
        return [column.name for column in self.columns]


def text(name: str, meaning: str = "") -> Column:
    """A name or a text."""
    return Column(name, "text", meaning=meaning)


def whole(name: str, unit: str = "", meaning: str = "") -> Column:
    """A whole number."""
    return Column(name, "whole", unit, meaning)


def real(name: str, unit: str = "", meaning: str = "") -> Column:
    """A number with a fraction."""
    return Column(name, "real", unit, meaning)


def yes_no(name: str, meaning: str = "") -> Column:
    """True, false, or null for not known."""
    return Column(name, "yes_no", meaning=meaning)


def _latency(kind: str, meaning: str) -> tuple[Column, ...]:
    """The percentiles of one kind of latency, in microseconds."""
    names = ("p50", "p95", "p99", "p999", "max")
    return tuple(real(f"{kind}_{name}_us", "us", meaning) for name in names)


TRIAL_KEY = (
    text("trial", "the trial's id"),
    text("target"),
    text("build"),
    text("config"),
    text("workload"),
    whole("repeat", meaning="counted from 1"),
)
STEP_KEY = (
    *TRIAL_KEY,
    text("step", "the step's directory name"),
    whole("step_index", meaning="position in the trial, from 1"),
    text("name", "the step's name in the workload"),
)
STREAM = text("stream")
HOST = text("host", "empty: all hosts together")
LATENCIES = (
    *_latency("service", "from the send of an operation to its end"),
    *_latency("response", "from the moment an operation was due to its end"),
)
