"""The supervisor: one detached process a job, from arming to the last record.

It starts the load, waits for all threads, for the release, then writes what is counted each
second on ticks of T0, and ends the job: by the load's own end, by a request, at the deadline,
before the disk is full. Whatever happens, the journal's last record says why it ended.
"""

import dataclasses
import errno
import hashlib
import os
import select
import signal
import sys
import time
import traceback
from dataclasses import dataclass
from typing import Any, Optional

from fleetmark_agent import __version__, journal, process, spool
from fleetmark_agent.errors import AgentError
from fleetmark_agent.job import Job, decode_job
from fleetmark_agent.metrics import MetricsServer
from fleetmark_agent.outcome import Ended
from fleetmark_agent.running import Running, make_running
from fleetmark_agent.sampling import Sampling, Ticks

STOP_FILE = "stop"
SUPERVISOR_LOG = "supervisor.log"

_RESERVE_BYTES = 1 << 20
_POLL_SECONDS = 0.02
_KILL_GRACE_SECONDS = 5.0
_LOAD_INTERVAL_SECONDS = 1.0
_FULL = (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True)
class Stop:
    """Why a job is to end before its own end."""

    reason: str
    klass: str
    message: str
    at: float


class Wakeup:
    """Lets signals (a stop request, the end of a child) and threads end the supervisor's sleep."""

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        os.set_blocking(self._writer, False)
        signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        self.terminated = False
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
            signal.signal(number, self._handle)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    def _handle(self, number: int, _frame: Any) -> None:
        if number != signal.SIGCHLD:
            self.terminated = True

    def notify(self) -> None:
        """End the sleep from another thread."""
        try:
            os.write(self._writer, b"\0")
        except BlockingIOError:
            return  # The pipe is full of wake-ups already.

    def sleep(self, seconds: float) -> None:
        """Sleep, at most so long."""
        if select.select([self._reader], [], [], max(0.0, seconds))[0]:
            os.read(self._reader, 4096)


class Supervisor:
    """One job. `run` is called once and returns when the last record is written."""

    def __init__(
        self, place: spool.JobPlace, job: Job, password: str, metrics_address: str
    ) -> None:
        self._place = place
        self._job = job
        self._password = password
        self._stop: Optional[Stop] = None
        self._running: Optional[Running] = None
        self._sampling: Optional[Sampling] = None
        self._released = False
        self._start = 0.0
        self._load_ticks = Ticks(_LOAD_INTERVAL_SECONDS, float("inf"))
        self._load_at = 0.0
        self._wakeup = Wakeup()
        self._metrics = MetricsServer(job, metrics_address)
        self._journal = journal.Writer(place.file(journal.JOURNAL_NAME))

    def run(self) -> None:
        """Arm, wait for the release, observe, end."""
        ended: Optional[Ended] = None
        try:
            self._reserve()
            self._arm()
            if self._stop is None and self._await_release():
                self._observe()
            ended = self._end()
        except AgentError as error:
            # A load that cannot be started as it was asked for is the workload's fault.
            klass = "host" if error.kind == "host" else "workload"
            ended = Ended(reason="failed", klass=klass, message=error.message)
        except Exception as error:
            # The journal must say how it ended, whatever went wrong; the log says where.
            traceback.print_exc()
            message = "the supervisor failed: %s: %s" % (type(error).__name__, error)
            ended = Ended(reason="failed", klass="host", message=message)
        finally:
            self._close(ended)

    # Writing -------------------------------------------------------------------------------

    def _write(self, kind: str, **fields: Any) -> None:
        """Write a record; a disk that fails is a reason to stop and never a crash."""
        try:
            self._journal.append(kind, **fields)
        except OSError as error:
            full = error.errno in _FULL
            self._request_stop(
                "disk_full" if full else "failed", "host", "cannot write the journal: %s" % error
            )
            # The reserve is there for this moment: the end of the journal must find room.
            spool.remove(self._place.file(spool.RESERVE_FILE))
            try:
                self._journal.append(kind, **fields)
            except OSError as again:
                print("lost a %s record: %s" % (kind, again), file=sys.stderr, flush=True)
        self._metrics.observe(kind, fields)

    def _note(self, level: str, text: str) -> None:
        self._write(journal.NOTE, level=level, text=text)

    def _reserve(self) -> None:
        fd = os.open(self._place.file(spool.RESERVE_FILE), os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            os.posix_fallocate(fd, 0, _RESERVE_BYTES)
        except OSError as error:
            self._request_stop("disk_full", "host", "no room for the journal: %s" % error)
        finally:
            os.close(fd)

    def _request_stop(self, reason: str, klass: str, message: str) -> None:
        """The first reason counts."""
        if self._stop is None:
            self._stop = Stop(reason, klass, message, time.monotonic())
            if self._running is not None:
                self._running.stop()

    # Phases --------------------------------------------------------------------------------

    def _arm(self) -> None:
        start = time.monotonic()
        self._running = make_running(
            self._place, self._job, self._password, self._wakeup.notify, self._write
        )
        with open(self._place.file("job.json"), "rb") as handle:
            digest = hashlib.sha256(handle.read()).hexdigest()
        self._write(
            journal.ARMED,
            pid=os.getpid(),
            agent=__version__,
            sysbench=self._running.version(),
            job_sha256=digest,
        )
        self._metrics.start(self._note)
        self._guard_disk()
        if self._stop is None:
            self._running.start()
        self._sampling = Sampling(self._job.samplers, self._password, self._write)
        limit = start + self._job.arm_timeout_seconds
        while self._stop is None and self._running.alive and not self._running.ready:
            if time.monotonic() >= limit:
                self._request_stop(
                    "arm_timeout",
                    "workload",
                    "not all threads were ready after %g s" % self._job.arm_timeout_seconds,
                )
            self._turn(_POLL_SECONDS)
        if self._stop is None and self._running.ready:
            self._write(
                journal.READY,
                threads=self._running.threads,
                seconds=round(time.monotonic() - start, 3),
            )

    def _await_release(self) -> bool:
        """Wait for T0 to be set, then for T0 itself; False when the job ends before."""
        running = self._running
        if running is None or self._sampling is None:
            raise AssertionError("released before it was armed")
        limit = time.monotonic() + self._job.arm_timeout_seconds
        while not running.release_time:
            if time.monotonic() >= limit:
                text = "nobody released the job within %g s" % self._job.arm_timeout_seconds
                self._request_stop("arm_timeout", "host", text)
            if self._stop is not None or not running.alive:
                return False
            self._turn(_POLL_SECONDS)
        at = running.release_time
        # From here on the monotonic clock counts: the wall clock may be set meanwhile.
        self._start = time.monotonic() + at - time.time()
        self._released = True
        self._write(journal.RELEASED, at=at)
        self._sampling.released(self._start)
        self._load_ticks.restart(self._start + _LOAD_INTERVAL_SECONDS)
        self._load_at = self._start
        return True

    def _observe(self) -> None:
        """From the release until the load has ended, by itself or because it must."""
        running = self._running
        if running is None:
            raise AssertionError("observed before it was armed")
        deadline = self._start + self._job.deadline_seconds
        while running.alive:
            now = time.monotonic()
            if now >= self._start:
                running.begin()
            if now >= deadline:
                klass = (
                    "host" if self._job.load is None and self._job.settle is None else "workload"
                )
                text = "not done %g s after the release" % self._job.deadline_seconds
                self._request_stop("deadline", klass, text)
            if self._stop is not None and self._overdue(self._stop, now):
                break
            bound = _POLL_SECONDS if self._stop else 1.0
            self._turn(min(bound, deadline - now if now < deadline else bound))

    def _overdue(self, stop: Stop, now: float) -> bool:
        if now < stop.at + _KILL_GRACE_SECONDS:
            return False
        self._note("error", "the load did not end %g s after it was asked to" % _KILL_GRACE_SECONDS)
        return True

    def _turn(self, longest_seconds: float) -> None:
        """One sleep of the main loop, and whatever is due after it."""
        now = time.monotonic()
        upcoming = self._load_ticks.next
        if self._sampling is not None:
            upcoming = min(upcoming, self._sampling.next)
        if self._job.settle is not None and self._released and self._start > now:
            upcoming = min(upcoming, self._start)
        self._wakeup.sleep(min(longest_seconds, upcoming - now))
        if self._wakeup.terminated or os.path.exists(self._place.file(STOP_FILE)):
            self._request_stop("stopped", "ok", "stopped on request")
        now = time.monotonic()
        if self._load_ticks.due(now):
            self._sample_load(now)
            self._guard_disk()
        if self._sampling is not None:
            self._sampling.turn(now)

    def _sample_load(self, now: float) -> None:
        if self._running is not None and now > self._load_at:
            for record in self._running.interval(now - self._load_at):
                self._write(journal.LOAD, **record)
            self._load_at = now

    def _guard_disk(self) -> None:
        for path in (self._place.path, self._job.samplers.data_dir):
            if path and os.path.isdir(path):
                free = spool.free_bytes(path)
                if free < self._job.minimum_free_bytes:
                    text = "%s has %d bytes free, the job asks for at least %d" % (
                        path,
                        free,
                        self._job.minimum_free_bytes,
                    )
                    self._request_stop("disk_full", "host", text)

    # The end -------------------------------------------------------------------------------

    def _end(self) -> Ended:
        running = self._running
        if running is None:
            raise AssertionError("ended before it was armed")
        if running.alive and not self._released and self._stop is not None:
            # Threads in the barrier see the stop word; those that still connect may not.
            limit = time.monotonic() + _KILL_GRACE_SECONDS
            while running.alive and time.monotonic() < limit:
                self._wakeup.sleep(_POLL_SECONDS)
        running.kill()
        if self._released:
            self._sample_load(time.monotonic())
        if self._sampling is not None:
            self._sampling.finish(after_release=self._released)
        for record in running.ends():
            self._write(journal.STREAM_END, **record)
        return self._judge(running)

    def _judge(self, running: Running) -> Ended:
        came_to = running.ended()
        if self._stop is None:
            return came_to
        return dataclasses.replace(
            came_to, reason=self._stop.reason, klass=self._stop.klass, message=self._stop.message
        )

    def _close(self, ended: Optional[Ended]) -> None:
        place = self._place
        if self._running is not None:
            self._running.kill()
        for name in (*spool.SECRET_FILES, spool.RESERVE_FILE):
            spool.remove(place.file(name))
        if ended is not None:
            self._write(journal.ENDED, **ended.fields())
        self._metrics.close()
        try:
            self._journal.close()
            spool.write_manifest(place.path)
        except OSError as error:
            print("no manifest: %s" % error, file=sys.stderr, flush=True)


def supervise(place: spool.JobPlace, metrics_address: str) -> None:
    """Be the supervisor of an armed job, to its end.

    `metrics_address` is `host:port` for Prometheus, empty for none.
    """
    identity = process.identify(os.getpid())
    if identity is None:
        raise AssertionError("a running process has no entry in /proc")
    process.write_pid_file(place.file("pid"), identity)
    with open(place.file("job.json"), encoding="utf-8") as handle:
        job = decode_job(handle.read())
    os.chdir("/")
    Supervisor(place, job, spool.read_password(place.path), metrics_address).run()
