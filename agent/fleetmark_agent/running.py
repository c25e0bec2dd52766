"""What a job runs between release and end: a load, a settle, or nothing but its samplers.

The three look alike to the supervisor, so that it has one main loop.
"""

import abc
import threading
from typing import Any, Callable, Dict, List, Optional

from fleetmark_agent import load_process, shm, sysbench
from fleetmark_agent.job import Job, Load
from fleetmark_agent.journal import NOTE
from fleetmark_agent.load_process import LoadProcess
from fleetmark_agent.outcome import Ended, of_load
from fleetmark_agent.settle import Settling
from fleetmark_agent.spool import JobPlace, read_json
from fleetmark_agent.telemetry import Telemetry

RELEASE_FILE = "release.json"


class Running(abc.ABC):
    """What the supervisor asks of the work that it supervises."""

    threads = 0

    def version(self) -> Optional[str]:
        """The version of the load generator, None without one."""
        return None

    @abc.abstractmethod
    def start(self) -> None:
        """Get ready for the release."""

    @property
    @abc.abstractmethod
    def ready(self) -> bool:
        """Whether the release may come."""

    @property
    @abc.abstractmethod
    def alive(self) -> bool:
        """Whether it has not ended."""

    @property
    @abc.abstractmethod
    def release_time(self) -> float:
        """T0 on this host's wall clock, 0 while it is not set."""

    def begin(self) -> None:  # noqa: B027 (most have nothing to do)
        """T0 has come. Called more than once."""

    @abc.abstractmethod
    def stop(self) -> None:
        """Ask it to end soon."""

    def kill(self) -> None:  # noqa: B027 (threads end with the supervisor)
        """End it at once, if it still runs."""

    def interval(self, interval_seconds: float) -> List[Dict[str, Any]]:
        """`load` records since the last call."""
        del interval_seconds
        return []

    def ends(self) -> List[Dict[str, Any]]:
        """`stream_end` records."""
        return []

    @abc.abstractmethod
    def ended(self) -> Ended:
        """How it ended, by itself or killed."""


class RunningLoad(Running):
    """sysbench with its telemetry file."""

    def __init__(self, place: JobPlace, load: Load, password: str) -> None:
        self._place = place
        self._load = load
        self._password = password
        self._prepared: Optional[sysbench.Prepared] = None
        self._telemetry: Optional[Telemetry] = None
        self._process: Optional[LoadProcess] = None
        self.threads = sum(stream.threads for stream in load.streams)

    def version(self) -> Optional[str]:
        """What `sysbench --version` says."""
        return sysbench.version()

    def start(self) -> None:
        """Start the load: its threads connect and wait in the barrier."""
        prepared = sysbench.prepare(self._load, self._place.path, self._password)
        self._telemetry = Telemetry(prepared.shm_path, prepared.stream_threads)
        self._process = LoadProcess(self._place, prepared.argv, prepared.log_path)
        self._prepared = prepared

    @property
    def ready(self) -> bool:
        """All threads are in the barrier."""
        if self._telemetry is None:
            return False
        return all(state == shm.STATE_READY for state in self._telemetry.states())

    @property
    def alive(self) -> bool:
        """The process runs. Its frame stops the other streams when the defining ones are done."""
        return self._process is not None and self._process.running

    @property
    def release_time(self) -> float:
        """The release word of the telemetry file."""
        return self._telemetry.release_time if self._telemetry else 0.0

    def stop(self) -> None:
        """Set the stop word."""
        if self._telemetry is not None:
            self._telemetry.stop()

    def kill(self) -> None:
        """End the process and wait for it, so that it counts nothing any more."""
        if self._process is not None:
            self._process.kill()

    def interval(self, interval_seconds: float) -> List[Dict[str, Any]]:
        """From the telemetry file."""
        return self._telemetry.interval(interval_seconds) if self._telemetry else []

    def ends(self) -> List[Dict[str, Any]]:
        """From the telemetry file, whatever became of the process."""
        return self._telemetry.ends() if self._telemetry else []

    def ended(self) -> Ended:
        """As the load engine reads exit status, log and thread states."""
        if self._process is None or self._prepared is None or self._telemetry is None:
            return Ended(reason="failed", klass="host", message="the load was not started")
        if self._process.running:
            return Ended(reason="failed", klass="host", message="the load cannot be ended")
        outcome = sysbench.classify(
            self._process.returncode,
            load_process.tail(self._prepared.log_path, limit_bytes=1 << 16),
            self._telemetry.states(),
        )
        return of_load(outcome, self._process.cpu_seconds)


class RunningWithoutLoad(Running):
    """A job of samplers only: it lasts until somebody ends it."""

    def __init__(self, place: JobPlace) -> None:
        self._release_path = place.file(RELEASE_FILE)
        self._stopped = threading.Event()
        self._release_time = 0.0

    def start(self) -> None:
        """Nothing to prepare."""

    @property
    def ready(self) -> bool:
        """From the start."""
        return True

    @property
    def alive(self) -> bool:
        """Until it is stopped."""
        return not self._stopped.is_set()

    @property
    def release_time(self) -> float:
        """From the release file."""
        if not self._release_time:
            self._release_time = float((read_json(self._release_path) or {}).get("at", 0.0))
        return self._release_time

    def stop(self) -> None:
        """Ends at once."""
        self._stopped.set()

    def ended(self) -> Ended:
        """Always well: why it was stopped is for the supervisor to say."""
        return Ended(reason="completed")


class RunningSettle(RunningWithoutLoad):
    """A settle, in a thread of its own so that the samplers go on."""

    def __init__(self, place: JobPlace, settling: Settling, notify: Callable[[], None]) -> None:
        super().__init__(place)
        self._settling = settling
        self._notify = notify
        self._thread: Optional[threading.Thread] = None
        self._failure = ""

    @property
    def alive(self) -> bool:
        """Until the settle is done; one that is stopped first puts its variables back."""
        if self._thread is None:
            return not self._stopped.is_set()
        return self._thread.is_alive()

    def begin(self) -> None:
        """Start the settle."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="settle", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        try:
            self._settling.run(self._stopped)
        except Exception as error:  # what a thread raises would go nowhere
            self._failure = "settle: %s: %s" % (type(error).__name__, error)
        finally:
            self._notify()

    def ended(self) -> Ended:
        """Well, or with the error that ended it."""
        if self._failure:
            return Ended(reason="failed", klass="workload", message=self._failure)
        return Ended(reason="completed")


def make_running(
    place: JobPlace,
    job: Job,
    password: str,
    notify: Callable[[], None],
    write: Callable[..., None],
) -> Running:
    """The work of a job."""
    if job.load is not None:
        return RunningLoad(place, job.load, password)
    if job.settle is not None:
        settling = Settling(job.settle, password, lambda **fields: write(NOTE, **fields))
        return RunningSettle(place, settling, notify)
    return RunningWithoutLoad(place)
