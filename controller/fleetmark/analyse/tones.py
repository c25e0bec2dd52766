"""How a number stands among its column: the rules of the published reports.

Absolute numbers: the column's range in quartiles, the bottom one bad, the top one good; nothing
is bad where the minimum is at least 0.8 of the maximum. A cell that failed its SLA is left out
of the maximum and is never good; bad wins over failed (M. Callaghan, Insert Benchmark reports).
"""

from collections.abc import Sequence
from enum import StrEnum

CLOSE_COLUMN = 0.8
WORSE_BELOW = 0.95
BETTER_ABOVE = 1.05


class Tone(StrEnum):
    """How a cell is shown; none is an ordinary cell."""

    NONE = ""
    GOOD = "good"
    BAD = "bad"
    FAILED = "failed"
    LOWER = "lower"
    HIGHER = "higher"


def of_column(values: Sequence[float | None], failed: Sequence[bool]) -> list[Tone]:
    """The tone of each absolute number of a column, where more is better.

    `failed` says which cells missed their SLA. A column of one value has nothing to compare.
    """
    known = [v for v in values if v is not None]
    passed = [v for v, f in zip(values, failed, strict=True) if v is not None and not f]
    lowest, highest = min(known, default=0.0), max(passed, default=0.0)
    spread = highest - lowest
    comparable = len(known) > 1 and spread > 0
    may_be_bad = comparable and lowest < CLOSE_COLUMN * highest
    tones = []
    for value, is_failed in zip(values, failed, strict=True):
        if value is None:
            tones.append(Tone.NONE)
        elif may_be_bad and value <= lowest + spread / 4:
            tones.append(Tone.BAD)
        elif is_failed:
            tones.append(Tone.FAILED)
        elif comparable and value >= highest - spread / 4:
            tones.append(Tone.GOOD)
        else:
            tones.append(Tone.NONE)
    return tones


def of_ratio(ratio: float | None) -> Tone:
    """The tone of a number relative to the first row."""
    if ratio is None:
        return Tone.NONE
    if ratio < WORSE_BELOW:
        return Tone.LOWER
    return Tone.HIGHER if ratio > BETTER_ABOVE else Tone.NONE


def of_sla(ratio: float | None, minimum_ratio: float) -> Tone:
    """The tone of a background rate against the rate that was asked for."""
    return Tone.BAD if ratio is not None and ratio < minimum_ratio else Tone.NONE
