"""Counts at a moment, in a window, and the overlap."""

import pytest

from fleetmark.tables.counts import Point, StreamRun, Window, at, overlap_of, within
from fleetmark.tables.journals import StreamEnd

LINE = (Point(10.0, 0, 0), Point(12.0, 100, 1000), Point(13.0, 100, 1000), Point(15.0, 300, 3000))


@pytest.mark.parametrize(
    ("t", "operations", "rows"),
    [
        (9.0, 0, 0),
        (10.0, 0, 0),
        (11.0, 50, 500),
        (12.0, 100, 1000),
        (12.5, 100, 1000),
        (14.0, 200, 2000),
        (15.0, 300, 3000),
        (99.0, 300, 3000),
    ],
)
def test_count_at_a_moment_is_interpolated_and_flat_outside(
    t: float, operations: float, rows: float
) -> None:
    assert at(LINE, t) == (operations, rows)


def test_window_gets_its_share_of_the_intervals_that_it_cuts() -> None:
    assert within(LINE, Window(11.0, 14.0)) == (150, 1500)
    assert within(LINE, Window(14.0, 14.0)) == (0, 0)
    assert within((), Window(1.0, 2.0)) == (0, 0)


def _run(host: str, first: float, last: float) -> StreamRun:
    totals = StreamEnd(
        stream="insert",
        threads=1,
        operations=10,
        rows=10,
        statements=10,
        errors={},
        retries=0,
        reconnects=0,
        first_event=first,
        last_event=last,
        service={},
        response={},
        service_sum_us=0.0,
        service_max_us=0.0,
        response_sum_us=0.0,
        response_max_us=0.0,
    )
    return StreamRun(host, totals, (Point(first, 0, 0), Point(last, 10, 10)), False, ())


def test_overlap_begins_with_the_last_and_ends_with_the_first() -> None:
    overlap = overlap_of([_run("a", 1.0, 9.0), _run("b", 3.0, 12.0)])
    assert overlap == Window(3.0, 9.0)
    assert overlap.seconds == 6.0


def test_streams_that_never_ran_together_have_an_empty_overlap() -> None:
    overlap = overlap_of([_run("a", 1.0, 2.0), _run("b", 3.0, 4.0)])
    assert overlap is not None
    assert overlap.seconds == 0.0
    assert overlap_of([]) is None
