"""From the telemetry file to journal records: one line a stream and interval, one at the end."""

from dataclasses import dataclass
from typing import Any, Dict, List, Sequence, Tuple

from fleetmark_agent import histogram, shm

_COUNTERS: Dict[str, int] = {
    "operations": shm.S_OPERATIONS,
    "rows": shm.S_ROWS,
    "statements": shm.S_STATEMENTS,
    "retries": shm.S_RETRIES,
    "reconnects": shm.S_RECONNECTS,
}


@dataclass(frozen=True)
class StreamTotals:
    """A stream's threads taken together, from the start of the step to one moment."""

    threads: int
    running: int
    counters: Dict[str, int]
    errors: Dict[str, int]
    first_event: float
    last_event: float
    lag_seconds: float
    sums_us: Dict[str, float]
    user: List[float]
    service: histogram.Sparse
    response: histogram.Sparse


def totals(slots: Sequence[shm.Slot]) -> StreamTotals:
    """Merge the slots of one stream: counts add, times and maxima take the extreme."""
    words = [slot.words for slot in slots]
    firsts = [w[shm.S_FIRST_EVENT_TIME] for w in words if w[shm.S_FIRST_EVENT_TIME]]
    return StreamTotals(
        threads=len(slots),
        running=sum(1 for w in words if w[shm.S_STATE] == shm.STATE_RUNNING),
        counters={name: int(sum(w[at] for w in words)) for name, at in _COUNTERS.items()},
        errors={name: int(sum(w[at] for w in words)) for name, at in shm.ERROR_WORDS.items()},
        first_event=min(firsts, default=0.0),
        last_event=max((w[shm.S_LAST_EVENT_TIME] for w in words), default=0.0),
        lag_seconds=max((w[shm.S_LAG_SECONDS] for w in words), default=0.0),
        sums_us={
            "service_sum_us": sum(w[shm.S_SERVICE_SUM_US] for w in words),
            "service_max_us": max((w[shm.S_SERVICE_MAX_US] for w in words), default=0.0),
            "response_sum_us": sum(w[shm.S_RESPONSE_SUM_US] for w in words),
            "response_max_us": max((w[shm.S_RESPONSE_MAX_US] for w in words), default=0.0),
        },
        user=[sum(w[shm.S_USER + n] for w in words) for n in range(shm.USER_WORDS)],
        service=histogram.merge(slot.service for slot in slots),
        response=histogram.merge(slot.response for slot in slots),
    )


def _grown(now: Dict[Any, int], before: Dict[Any, int]) -> Dict[Any, int]:
    return {key: value - before.get(key, 0) for key, value in now.items()}


class Telemetry:
    """Reads the load of one job. Interval records hold what was counted since the last one."""

    def __init__(self, path: str, stream_threads: Sequence[Tuple[str, Sequence[int]]]) -> None:
        self._file = shm.SharedFile(path)
        self._streams = [(name, list(threads)) for name, threads in stream_threads]
        nothing = totals([])
        self._before = {name: nothing for name, _ in self._streams}

    @property
    def threads(self) -> int:
        """How many threads the load has."""
        return self._file.threads

    @property
    def release_time(self) -> float:
        """T0 on this host's clock, 0 while it is not set."""
        return self._file.release_time

    def stop(self) -> None:
        """Ask the threads to end."""
        self._file.stop()

    def states(self) -> List[int]:
        """The state of each thread (shm.STATE_*)."""
        return [self._file.state(thread) for thread in range(self._file.threads)]

    def _read(self) -> Dict[str, StreamTotals]:
        return {
            name: totals([self._file.slot(thread) for thread in threads])
            for name, threads in self._streams
        }

    def interval(self, interval_seconds: float) -> List[Dict[str, Any]]:
        """The `load` records of the time since the last call."""
        now = self._read()
        records = []
        for name, after in now.items():
            before = self._before[name]
            records.append(
                {
                    "stream": name,
                    "interval_seconds": round(interval_seconds, 6),
                    "threads": after.running,
                    **_grown(after.counters, before.counters),
                    "errors": _nonzero(_grown(after.errors, before.errors)),
                    "service": histogram.to_pairs(_grown(after.service, before.service)),
                    "response": histogram.to_pairs(_grown(after.response, before.response)),
                    "lag_seconds": round(after.lag_seconds, 6),
                    "total_operations": after.counters["operations"],
                    "total_rows": after.counters["rows"],
                    "first_event": after.first_event or None,
                    "user": after.user,
                }
            )
        self._before = now
        return records

    def ends(self) -> List[Dict[str, Any]]:
        """The `stream_end` records: the whole step."""
        return [
            {
                "stream": name,
                "threads": total.threads,
                **total.counters,
                "errors": _nonzero(total.errors),
                "first_event": total.first_event or None,
                "last_event": total.last_event or None,
                "service": histogram.to_pairs(total.service),
                "response": histogram.to_pairs(total.response),
                **total.sums_us,
                "user": total.user,
            }
            for name, total in self._read().items()
        ]


def _nonzero(counts: Dict[Any, int]) -> Dict[Any, int]:
    return {key: value for key, value in counts.items() if value}
