"""Offset, bound and drift from four-timestamp exchanges."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetmark.clock import Exchange, Offset, drift_seconds, offset_of, parse_answer


def exchange(offset: float, there: float, back: float, work: float = 0.001) -> Exchange:
    """An exchange with a host whose clock is ahead by `offset`; the two ways take their time."""
    sent = 1_800_000_000.0
    arrived = sent + there
    return Exchange(sent, arrived + offset, arrived + work + offset, arrived + work + back)


def test_equal_ways_give_the_exact_offset() -> None:
    found = offset_of([exchange(offset=2.5, there=0.010, back=0.010)])
    assert found.seconds == pytest.approx(2.5, abs=1e-6)
    assert found.round_trip_seconds == pytest.approx(0.020, abs=1e-6)
    assert found.bound_seconds == pytest.approx(0.010, abs=1e-6)


def test_the_smallest_round_trip_wins() -> None:
    slow = exchange(offset=1.0, there=0.5, back=0.001)
    quick = exchange(offset=1.0, there=0.002, back=0.001)
    found = offset_of([slow, quick, slow])
    assert found.bound_seconds == pytest.approx(0.0015, abs=1e-6)
    assert found.seconds == pytest.approx(1.0005, abs=1e-6)


@given(
    offset=st.floats(-1e5, 1e5),
    ways=st.lists(st.tuples(st.floats(0, 3), st.floats(0, 3)), min_size=1, max_size=20),
)
def test_the_true_offset_lies_within_the_bound(
    offset: float, ways: list[tuple[float, float]]
) -> None:
    found = offset_of([exchange(offset, there, back) for there, back in ways])
    assert abs(found.seconds - offset) <= found.bound_seconds + 2e-6


def test_both_directions_of_translation() -> None:
    found = Offset(seconds=-3.0, bound_seconds=0.001, round_trip_seconds=0.002, at=0.0)
    assert found.to_host(100.0) == 97.0
    assert found.to_controller(97.0) == 100.0


def test_drift_is_what_the_bounds_do_not_explain() -> None:
    before = Offset(0.000, 0.001, 0.002, at=0.0)
    assert drift_seconds(before, Offset(0.0015, 0.001, 0.002, at=10.0)) == 0.0
    assert drift_seconds(before, Offset(-0.005, 0.001, 0.002, at=10.0)) == pytest.approx(0.003)


def test_no_exchange_is_no_offset() -> None:
    with pytest.raises(ValueError, match="empty"):
        offset_of([])


def test_answers() -> None:
    assert parse_answer("1796127477.25 1796127477.5") == (1796127477.25, 1796127477.5)
    with pytest.raises(ValueError, match="not enough values"):
        parse_answer("hello")
