"""Counts over time: how much a stream had done at a moment, and how much in a window.

A host writes cumulative counts at its own ticks. Between two of them the count is taken to grow
evenly, so a window that cuts an interval gets its share of it.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

from fleetmark.tables.journals import HostJournal, LoadRecord, StreamEnd
from fleetmark_agent import histogram
from fleetmark_agent.shm import ERROR_WORDS


@dataclass(frozen=True)
class Point:
    """Cumulative counts at a moment of the controller's clock."""

    t: float
    operations: float
    rows: float


@dataclass(frozen=True)
class Window:
    """A span of the controller's clock, in seconds since the epoch."""

    start: float
    end: float

    @property
    def seconds(self) -> float:
        """Its length; 0 when it is empty or turned around."""
        return max(0.0, self.end - self.start)


@dataclass(frozen=True)
class StreamRun:
    """One stream on one host over a whole step.

    `partial` says that its end is missing: totals are those of the records that came.
    """

    host: str
    totals: StreamEnd
    points: tuple[Point, ...]
    partial: bool
    records: tuple[LoadRecord, ...] = field(repr=False)

    @property
    def stream(self) -> str:
        """The stream's name."""
        return self.totals.stream

    @property
    def first_event(self) -> float | None:
        """When its first operation began, on the controller's clock."""
        return self.points[0].t if self.points else None

    @property
    def last_event(self) -> float | None:
        """When its last operation ended (partial: when it was last heard of)."""
        return self.points[-1].t if self.points else None


def stream_runs(host: str, journal: HostJournal) -> list[StreamRun]:
    """The streams of one host's journal, in the order in which they appear."""
    ends = {end.stream: end for end in journal.ends}
    names = dict.fromkeys([*(r.stream for r in journal.loads), *ends])
    runs = []
    for name in names:
        records = tuple(r for r in journal.loads if r.stream == name)
        totals = ends.get(name) or _so_far(records)
        runs.append(StreamRun(host, totals, _points(totals, records), name not in ends, records))
    return runs


def _points(totals: StreamEnd, records: Sequence[LoadRecord]) -> tuple[Point, ...]:
    """The counts from the first event to the last one, none when there was no event."""
    first, last = totals.first_event, totals.last_event
    if first is None or last is None:
        return ()
    between = (Point(r.t, r.total_operations, r.total_rows) for r in records if first < r.t < last)
    end = Point(max(last, first), totals.operations, totals.rows)
    return (Point(first, 0.0, 0.0), *between, end)


def _so_far(records: Sequence[LoadRecord]) -> StreamEnd:
    """What is known of a stream whose end is missing; statements are not, and stay 0."""
    service = histogram.merge(r.service for r in records)
    response = histogram.merge(r.response for r in records)
    return StreamEnd(
        stream=records[0].stream,
        threads=0,
        operations=records[-1].total_operations,
        rows=records[-1].total_rows,
        statements=0,
        errors={k: sum(r.errors[k] for r in records) for k in ERROR_WORDS},
        retries=sum(r.retries for r in records),
        reconnects=sum(r.reconnects for r in records),
        first_event=next((r.first_event for r in records if r.first_event is not None), None),
        last_event=records[-1].t,
        service=service,
        response=response,
        service_sum_us=_estimated_sum_us(service),
        service_max_us=histogram.highest_us(service),
        response_sum_us=_estimated_sum_us(response),
        response_max_us=histogram.highest_us(response),
    )


def _estimated_sum_us(counts: histogram.Sparse) -> float:
    """The sum of all latencies, each taken as the middle of its bucket."""
    return sum(
        count * (histogram.lower_bound_us(b) + histogram.upper_bound_us(b)) / 2.0
        for b, count in counts.items()
    )


def at(points: Sequence[Point], t: float) -> tuple[float, float]:
    """Operations and rows done at moment `t`, by linear interpolation; flat outside."""
    if not points or t <= points[0].t:
        return 0.0, 0.0
    after = bisect_right(points, t, key=lambda p: p.t)
    if after == len(points):
        return points[-1].operations, points[-1].rows
    left, right = points[after - 1], points[after]
    share = (t - left.t) / (right.t - left.t)
    return (
        left.operations + share * (right.operations - left.operations),
        left.rows + share * (right.rows - left.rows),
    )


def within(points: Sequence[Point], window: Window) -> tuple[float, float]:
    """Operations and rows done inside a window."""
    operations_end, rows_end = at(points, window.end)
    operations_start, rows_start = at(points, window.start)
    return max(0.0, operations_end - operations_start), max(0.0, rows_end - rows_start)


def overlap_of(runs: Sequence[StreamRun]) -> Window | None:
    """The window in which every stream of every host ran; null when any never began."""
    if not runs or any(not run.points for run in runs):
        return None
    start = max(run.points[0].t for run in runs)
    return Window(start, max(start, min(run.points[-1].t for run in runs)))
