"""The journal of one load host in one step, added up as it grows."""

from collections import Counter, deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fleetmark.tables.journals import LoadRecord, StreamEnd, load_record, stream_end
from fleetmark.watch.tail import Tail
from fleetmark_agent import histogram
from fleetmark_agent.journal import ENDED, LOAD, RELEASED, STREAM_END, JournalError, decode
from fleetmark_exporters.snapshot import StreamSnapshot

RECENT_INTERVALS = 60
_OWN_CLOCK = 0.0
"""No offset: what is shown of a host is read on its own clock."""


class StreamFollower:
    """One stream of one host: totals of the step, and its last interval."""

    def __init__(self, stream: str, host: str) -> None:
        self.stream = stream
        self.host = host
        self.rows = 0
        self.last_event: float | None = None
        self.first_event: float | None = None
        self._operations = 0
        self._counts: Counter[str] = Counter()
        self._errors: Counter[str] = Counter()
        self._service: Counter[int] = Counter()
        self._response: Counter[int] = Counter()
        self._threads = 0
        self._lag_seconds = 0.0
        self._operations_per_second = 0.0
        self._rows_per_second = 0.0
        self._worst_us = 0.0
        self._ended = False
        self.recent: deque[tuple[float, float]] = deque(maxlen=RECENT_INTERVALS)
        """(operations, rows) a second of the last intervals, the oldest first."""

    def add(self, record: LoadRecord) -> None:
        """Take in one interval."""
        self.rows = record.total_rows
        self.first_event = record.first_event
        self._operations = record.total_operations
        self._errors.update(record.errors)
        self._counts.update(retries=record.retries, reconnects=record.reconnects)
        self._service.update(record.service)
        self._response.update(record.response)
        self._threads = record.threads
        self._lag_seconds = record.lag_seconds
        seconds = record.interval_seconds or float("inf")
        self._operations_per_second = record.operations / seconds
        self._rows_per_second = record.rows / seconds
        self._worst_us = histogram.highest_us(record.service)
        self.recent.append((self._operations_per_second, self._rows_per_second))

    def end(self, totals: StreamEnd) -> None:
        """Take in the exact totals of the step, in place of the sums."""
        self.rows = totals.rows
        self.first_event = totals.first_event
        self.last_event = totals.last_event
        self._operations = totals.operations
        self._errors = Counter(totals.errors)
        self._counts = Counter(retries=totals.retries, reconnects=totals.reconnects)
        self._service = Counter(totals.service)
        self._response = Counter(totals.response)
        self._threads = 0
        self._lag_seconds = 0.0
        self._operations_per_second = self._rows_per_second = self._worst_us = 0.0
        self._ended = True

    def snapshot(self) -> StreamSnapshot:
        """The stream now; nothing in it changes afterwards."""
        return StreamSnapshot(
            stream=self.stream,
            host=self.host,
            threads=self._threads,
            operations=self._operations,
            rows=self.rows,
            errors=dict(+self._errors),
            retries=self._counts["retries"],
            reconnects=self._counts["reconnects"],
            service=dict(self._service),
            response=dict(self._response),
            lag_seconds=self._lag_seconds,
            operations_per_second=self._operations_per_second,
            rows_per_second=self._rows_per_second,
            worst_us=self._worst_us,
            step_worst_us=histogram.highest_us(self._service),
            ended=self._ended,
        )


class JournalFollower:
    """Follows one journal. All times in it are of the host's own clock."""

    def __init__(self, path: Path, host: str) -> None:
        self.host = host
        self._tail = Tail(path)
        self._forget()

    def _forget(self) -> None:
        self.streams: dict[str, StreamFollower] = {}
        self.released_at: float | None = None
        self.last_load: float | None = None
        self.last_record: float | None = None
        self.ended = False
        self.damage = ""
        self._next_seq = 0

    def poll(self) -> None:
        """Take in what is new.

        A step that is tried again has a new journal at the same place: what does not continue
        the old one is read again from its start. What is still wrong then is damage; it is
        kept in `damage`, and the records that can be read count.
        """
        if not self._take_in():
            self._forget()
            self._tail.rewind()
            self._take_in(forgiving=True)

    def _take_in(self, forgiving: bool = False) -> bool:
        """Read on. False when a line does not continue what was read, unless forgiving."""
        forgiving = forgiving or bool(self.damage)
        for line in self._tail.lines():
            try:
                record = decode(line)
                if record["seq"] != self._next_seq:
                    problem = f"record {record['seq']} where {self._next_seq} belongs"
                    self._next_seq = record["seq"]
                    if not forgiving:
                        return False
                    self.damage = f"{self._tail.path}: {problem}"
                self._next_seq += 1
                self._record(record)
            except (JournalError, KeyError, TypeError, ValueError) as error:
                if not forgiving:
                    return False
                self.damage = f"{self._tail.path}: {error!r}"
        return True

    def _record(self, record: Mapping[str, Any]) -> None:
        kind = record["kind"]
        self.last_record = record["t"]
        if kind == RELEASED:
            self.released_at = record["at"]
        elif kind == LOAD:
            self.last_load = record["t"]
            load = load_record(record, _OWN_CLOCK)
            self._stream(load.stream).add(load)
        elif kind == STREAM_END:
            totals = stream_end(record, _OWN_CLOCK)
            self._stream(totals.stream).end(totals)
        elif kind == ENDED:
            self.ended = True

    def _stream(self, name: str) -> StreamFollower:
        return self.streams.setdefault(name, StreamFollower(name, self.host))

    @property
    def start_error_seconds(self) -> float | None:
        """First operation of any stream minus the release time."""
        first = [s.first_event for s in self.streams.values() if s.first_event is not None]
        if not first or self.released_at is None:
            return None
        return min(first) - self.released_at

    def elapsed_seconds(self, stream: str) -> float:
        """From the release to the end of a stream, or to its last interval while it runs."""
        totals = self.streams.get(stream)
        until = self.last_load if totals is None or totals.last_event is None else totals.last_event
        if until is None or self.released_at is None:
            return 0.0
        return max(0.0, until - self.released_at)
