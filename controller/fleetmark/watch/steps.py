"""One step of one target while it runs: the journals of its load hosts, taken together."""

from itertools import zip_longest

from fleetmark.tables.planned import PlannedStep
from fleetmark.watch.journals import JournalFollower
from fleetmark.workloads import Sla
from fleetmark_exporters.snapshot import SlaSnapshot, SlaState, StepSnapshot


class StepFollower:
    """Follows a released step. `t0` and `ended_at` are of the controller's clock."""

    def __init__(self, planned: PlannedStep, t0: float, journals: list[JournalFollower]) -> None:
        self.planned = planned
        self.t0 = t0
        self.ended_at: float | None = None
        self._completed = False
        self._journals = journals

    def poll(self) -> None:
        """Take in what is new in the journals."""
        for journal in self._journals:
            if not journal.ended or self.ended_at is None:
                journal.poll()

    def end(self, at: float, completed: bool) -> None:
        """The ledger says that the step has ended, or that its trial has."""
        if self.ended_at is None:
            self.ended_at = at
            self._completed = completed

    @property
    def damage(self) -> list[str]:
        """What cannot be read of the journals."""
        return [journal.damage for journal in self._journals if journal.damage]

    @property
    def last_news(self) -> float:
        """When a host was last heard, on the controller's clock."""
        return max([self.t0, *(self._heard(journal) for journal in self._journals)])

    def silent_seconds(self, now: float) -> dict[str, float]:
        """How long ago each host that still works was last heard."""
        if self.ended_at is not None:
            return {}
        return {j.host: max(0.0, now - self._heard(j)) for j in self._journals if not j.ended}

    def _heard(self, journal: JournalFollower) -> float:
        if journal.last_record is None or journal.released_at is None:
            return self.t0
        # The release is one moment on both clocks, so it gives their offset.
        return journal.last_record - (journal.released_at - self.t0)

    def rates(self) -> tuple[float, ...]:
        """The measured rate of the last intervals, the oldest first, hosts added."""
        column = 0 if self.planned.measure == "operations" else 1
        recent = [
            [rates[column] for rates in reversed(stream.recent)]
            for journal in self._journals
            if (stream := journal.streams.get(self.planned.measure_stream))
        ]
        return tuple(sum(parts) for parts in zip_longest(*recent, fillvalue=0.0))[::-1]

    def snapshot(self, now: float) -> StepSnapshot:
        """The step at this moment."""
        planned = self.planned
        streams = tuple(
            totals.snapshot() for journal in self._journals for totals in journal.streams.values()
        )
        measured = [s for s in streams if s.stream == planned.measure_stream]
        operations = planned.measure == "operations"
        total = sum(s.operations if operations else s.rows for s in measured)
        elapsed_seconds = self._elapsed_seconds(now)
        progress = self._progress(elapsed_seconds)
        return StepSnapshot(
            name=planned.name,
            directory=planned.directory,
            state="running" if self.ended_at is None else "ended",
            started=self.t0,
            elapsed_seconds=elapsed_seconds,
            expected_seconds=planned.expected_seconds,
            expected_end=self._expected_end(now, progress),
            progress=progress,
            measure=planned.measure,
            measure_stream=planned.measure_stream,
            rate_now=sum(
                s.operations_per_second if operations else s.rows_per_second for s in measured
            ),
            rate_mean=total / elapsed_seconds if elapsed_seconds else 0.0,
            total=total,
            streams=streams,
            start_errors_seconds={
                j.host: j.start_error_seconds
                for j in self._journals
                if j.start_error_seconds is not None
            },
            sla=self._sla(),
        )

    def _elapsed_seconds(self, now: float) -> float:
        """Since the release; once ended, the longest that the measured stream took."""
        if self.ended_at is None:
            return max(0.0, now - self.t0)
        took = self._longest_seconds(self.planned.measure_stream)
        return took or max(0.0, self.ended_at - self.t0)

    def _longest_seconds(self, stream: str) -> float:
        return max((j.elapsed_seconds(stream) for j in self._journals), default=0.0)

    def _rows(self, stream: str) -> int:
        return sum(j.streams[stream].rows for j in self._journals if stream in j.streams)

    def _progress(self, elapsed_seconds: float) -> float:
        planned = self.planned
        if planned.planned_rows:
            return min(1.0, self._rows(planned.row_stream) / planned.planned_rows)
        if self._completed:
            return 1.0
        # A step that takes longer than expected is not done before it says so.
        return min(0.99, elapsed_seconds / max(planned.expected_seconds, 1.0))

    def _expected_end(self, now: float, progress: float) -> float:
        if self.ended_at is not None:
            return self.ended_at
        if self.planned.planned_rows and progress > 0:
            # By the time of the rows that were counted: silence is not slowness.
            paced_seconds = self._longest_seconds(self.planned.row_stream) / progress
            return max(now, self.t0 + paced_seconds)
        return max(now, self.t0 + self.planned.expected_seconds)

    def _sla(self) -> SlaSnapshot | None:
        sla = self.planned.sla
        if sla is None:
            return None
        ratio = self._sla_ratio(sla)
        state: SlaState = "undecided"
        if self._completed and ratio is not None:
            state = "ok" if ratio >= sla.minimum_ratio else "missed"
        return SlaSnapshot(sla.stream, sla.rate_per_second, sla.minimum_ratio, ratio, state)

    def _sla_ratio(self, sla: Sla) -> float | None:
        if self.ended_at is not None:
            # The step lasts as long as its slowest host, so all rows stand over that time.
            longest = self._longest_seconds(sla.stream)
            rate = self._rows(sla.stream) / longest if longest else None
        else:
            # Hosts are heard at different moments: each one's rows over its own time.
            rates = [
                j.streams[sla.stream].rows / j.elapsed_seconds(sla.stream)
                for j in self._journals
                if sla.stream in j.streams and j.elapsed_seconds(sla.stream) > 0
            ]
            rate = sum(rates) if rates else None
        return None if rate is None else rate / sla.rate_per_second
