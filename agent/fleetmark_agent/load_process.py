"""The load's process: start, watch, end, and what it came to."""

import os
import signal
import subprocess
from typing import Any, Optional, Sequence, Tuple

from fleetmark_agent import process
from fleetmark_agent.spool import JobPlace

PID_FILE = "load.pid"

_KILL_SECONDS = 30.0
"""A process that waits for its disk ends only when the disk has answered."""


class LoadProcess:
    """One load generator under this supervisor. It dies with its supervisor."""

    def __init__(self, place: JobPlace, argv: Sequence[str], log_path: str) -> None:
        with open(log_path, "ab") as log:
            self._child = subprocess.Popen(
                list(argv),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                preexec_fn=process.die_with_parent,  # noqa: PLW1509 (one system call)
                cwd=place.path,
                start_new_session=True,
            )
        identity = process.identify(self._child.pid)
        if identity is not None:
            process.write_pid_file(place.file(PID_FILE), identity)
        self._result: Optional[Tuple[int, Any]] = None

    @property
    def running(self) -> bool:
        """Whether the process has not ended; takes its status and resource usage when it has."""
        if self._result is None:
            pid, status, usage = os.wait4(self._child.pid, os.WNOHANG)
            if pid:
                self._result = (status, usage)
                # Popen must not wait again for a process that is gone.
                self._child.returncode = self.returncode
        return self._result is None

    @property
    def returncode(self) -> int:
        """Exit status, or minus the signal that ended it, as subprocess says it."""
        if self._result is None:
            raise ValueError("the load still runs")
        status = self._result[0]
        return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)

    @property
    def cpu_seconds(self) -> Optional[float]:
        """User and system time of the ended process."""
        if self._result is None:
            return None
        usage = self._result[1]
        return round(float(usage.ru_utime + usage.ru_stime), 6)

    def kill(self) -> None:
        """End it at once and wait for it, so that it counts nothing any more."""
        if self.running:
            os.killpg(self._child.pid, signal.SIGKILL)
            process.wait_until(lambda: not self.running, _KILL_SECONDS)


def tail(path: str, limit_bytes: int = 4000) -> str:
    """The last whole lines of a text file, empty when there is none."""
    try:
        with open(path, "rb") as handle:
            start = max(0, os.path.getsize(path) - limit_bytes)
            handle.seek(start)
            text = handle.read().decode("utf-8", "replace")
    except OSError:
        return ""
    return (text.partition("\n")[2] if start else text).strip()
