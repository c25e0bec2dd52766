"""When samplers run, and what becomes of their records: ticks, the DBMS thread, failures."""

import threading
import time
from typing import Any, Callable, Optional

from fleetmark_agent import journal
from fleetmark_agent.job import Samplers
from fleetmark_agent.samplers import HostSampler

Write = Callable[..., None]

_SHORTEST_INTERVAL_SECONDS = 0.05
_DBMS_WAIT_SECONDS = 5.0
_BEFORE_RELEASE_SECONDS = 0.025
"""How long before T0 the first values are taken: on a small machine samplers that wake up at T0
itself take the processor from the threads that start there."""


class Ticks:
    """Moments at a fixed distance on the monotonic clock; missed ones are left out."""

    def __init__(self, interval_seconds: float, start: float) -> None:
        self.interval_seconds = interval_seconds
        self.next = start
        self._origin = start

    def restart(self, origin: float, early_seconds: float = 0.0) -> None:
        """Count from a new origin. The next moment is the origin or, for what must not disturb
        there, `early_seconds` before it; the one after it is an interval after the origin."""
        self._origin = origin
        self.next = origin - early_seconds

    def due(self, now: float) -> bool:
        """Whether a moment has come; moves on to the next one in the future."""
        if now < self.next:
            return False
        passed = max(0.0, (now - self._origin) // self.interval_seconds)
        self.next = self._origin + self.interval_seconds * (1 + passed)
        return True


class DbmsThread:
    """Samples the DBMS beside the main loop: a server that hangs must not stop the rest.

    One thread, one connection. A request that comes while the last one still waits for the
    server is dropped; the next record covers the longer time.
    """

    def __init__(self, samplers: Samplers, password: str, write: Write) -> None:
        # Imported here: jobs without a DBMS connection are most of a fleet.
        from fleetmark_agent.dbms_status import DbmsSampler

        if samplers.dbms_connection is None:
            raise ValueError("a DBMS sampler needs a connection")
        self._sampler = DbmsSampler(samplers.dbms_connection, password, samplers.dbms_pid_file)
        self._write_record = write
        self._condition = threading.Condition()
        self._request: Optional[Callable[[], None]] = None
        self._busy = False
        self._closing = False
        self._hangs = False
        self._failing = False
        self._thread = threading.Thread(target=self._run, name="dbms", daemon=True)
        self._thread.start()

    def begin(self) -> None:
        """Take the first values."""
        self._ask(self._sampler.begin, wait=True)

    def sample(self) -> None:
        """Ask for one record; does not wait."""
        self._ask(self._sample, wait=False)

    def whole_status(self, name: str) -> None:
        """Note all of SHOW GLOBAL STATUS under a name; waits for it, within limits."""
        self._ask(lambda: self._whole_status(name), wait=True)

    def close(self) -> None:
        """End the thread; one that hangs in the server is left behind, and writes no more."""
        with self._condition:
            if not self._hangs:
                self._condition.wait_for(self._idle, _DBMS_WAIT_SECONDS)
            self._closing = True
            self._condition.notify_all()

    def _ask(self, work: Callable[[], None], wait: bool) -> None:
        with self._condition:
            if wait:
                self._hangs = not self._condition.wait_for(self._idle, _DBMS_WAIT_SECONDS)
            if not self._idle():
                return
            self._request = work
            self._condition.notify_all()
            if wait:
                self._hangs = not self._condition.wait_for(self._idle, _DBMS_WAIT_SECONDS)

    def _idle(self) -> bool:
        return self._request is None and not self._busy

    def _run(self) -> None:
        while True:
            with self._condition:
                self._condition.wait_for(lambda: self._request is not None or self._closing)
                work, self._request = self._request, None
                if work is None:
                    break
                self._busy = True
            self._guarded(work)
            with self._condition:
                self._busy = False
                self._condition.notify_all()
        self._sampler.close()

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:
            # Whatever it was, the thread must live on. Noted once an outage, not each second.
            if not self._failing:
                self._write(journal.NOTE, level="warning", text="DBMS sampler: %s" % error)
            self._failing = True
        else:
            self._failing = False

    def _write(self, kind: str, **fields: Any) -> None:
        with self._condition:
            # What comes after the job's last record would damage the journal.
            if not self._closing:
                self._write_record(kind, **fields)

    def _sample(self) -> None:
        self._write(journal.DBMS, **self._sampler.sample())

    def _whole_status(self, name: str) -> None:
        status = self._sampler.whole_status()
        self._write(journal.NOTE, level="info", text="global status", name=name, status=status)


class Sampling:
    """All samplers of one job on their ticks."""

    def __init__(self, samplers: Samplers, password: str, write: Write) -> None:
        now = time.monotonic()
        self._write = write
        self._host: Optional[HostSampler] = None
        self._dbms: Optional[DbmsThread] = None
        host_interval = samplers.host_interval_seconds or 1.0
        dbms_interval = samplers.dbms_interval_seconds or 1.0
        self._host_ticks = Ticks(host_interval, now + host_interval)
        self._dbms_ticks = Ticks(dbms_interval, now + dbms_interval)
        if samplers.host_interval_seconds > 0:
            self._host = HostSampler()
        if samplers.dbms_interval_seconds > 0 and samplers.dbms_connection is not None:
            self._dbms = DbmsThread(samplers, password, write)
            self._dbms.begin()
        self._last_host = time.monotonic()

    @property
    def next(self) -> float:
        """When there is something to do, on the monotonic clock."""
        ticks = [self._host_ticks] if self._host else []
        ticks += [self._dbms_ticks] if self._dbms else []
        return min((t.next for t in ticks), default=float("inf"))

    def released(self, start: float) -> None:
        """Line the ticks up with the release at `start` (monotonic clock), and note the status
        before the load. The first values are taken shortly before T0."""
        if self._dbms:
            self._dbms.whole_status("status_before")
        self._host_ticks.restart(start, _BEFORE_RELEASE_SECONDS)
        self._dbms_ticks.restart(start, _BEFORE_RELEASE_SECONDS)

    def turn(self, now: float) -> None:
        """Take what is due."""
        if self._host and self._host_ticks.due(now):
            self._sample_host(now)
        if self._dbms and self._dbms_ticks.due(now):
            self._dbms.sample()

    def _sample_host(self, now: float) -> None:
        if self._host and now - self._last_host >= _SHORTEST_INTERVAL_SECONDS:
            self._last_host = now
            self._write(journal.HOST, **self._host.sample())

    def finish(self, after_release: bool) -> None:
        """Take the last, shorter interval and the status after the load."""
        self._sample_host(time.monotonic())
        if self._dbms:
            self._dbms.sample()
            if after_release:
                self._dbms.whole_status("status_after")
            self._dbms.close()
        if self._host:
            self._host.close()
