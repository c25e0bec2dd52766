"""The colour rules at their edges."""

import pytest

from fleetmark.analyse.tones import Tone, of_column, of_ratio, of_sla

NONE, GOOD, BAD, FAILED = Tone.NONE, Tone.GOOD, Tone.BAD, Tone.FAILED


@pytest.mark.parametrize(
    ("values", "failed", "expected"),
    [
        # Range 100..500: bottom quartile up to 200, top from 400.
        ([100, 200, 201, 399, 400, 500], [0, 0, 0, 0, 0, 0], [BAD, BAD, NONE, NONE, GOOD, GOOD]),
        # Nothing is bad where the minimum is at least 0.8 of the maximum.
        ([80, 90, 100], [0, 0, 0], [NONE, NONE, GOOD]),
        ([79, 90, 100], [0, 0, 0], [BAD, NONE, GOOD]),
        # A failed cell is left out of the maximum, and never good.
        ([100, 1000, 120], [0, 1, 0], [NONE, FAILED, GOOD]),
        # Bad wins over failed.
        ([100, 500], [1, 0], [BAD, GOOD]),
        ([300, 100, 500], [1, 0, 0], [FAILED, BAD, GOOD]),
        ([100], [0], [NONE]),
        ([100], [1], [FAILED]),
        ([100, 100], [0, 0], [NONE, NONE]),
        ([None, 100, 200], [0, 0, 0], [NONE, BAD, GOOD]),
        ([100, 200], [1, 1], [FAILED, FAILED]),
        ([], [], []),
    ],
)
def test_quartiles_of_a_column(
    values: list[float | None], failed: list[int], expected: list[Tone]
) -> None:
    assert of_column(values, [bool(f) for f in failed]) == expected


@pytest.mark.parametrize(
    ("ratio", "tone"),
    [
        (None, Tone.NONE),
        (0.9499, Tone.LOWER),
        (0.95, Tone.NONE),
        (1.0, Tone.NONE),
        (1.05, Tone.NONE),
        (1.0501, Tone.HIGHER),
    ],
)
def test_ratio_edges(ratio: float | None, tone: Tone) -> None:
    assert of_ratio(ratio) == tone


def test_sla_edge() -> None:
    assert of_sla(0.9499, 0.95) == Tone.BAD
    assert of_sla(0.95, 0.95) == Tone.NONE
    assert of_sla(None, 0.95) == Tone.NONE
