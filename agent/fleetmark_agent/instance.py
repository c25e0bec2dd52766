"""A running instance as its files know it: state, clean stop, sizes, removal."""

import os
import shutil
import time
from dataclasses import dataclass
from typing import Any, Dict, Optional

from fleetmark_agent import process, spool
from fleetmark_agent.errors import UsageError
from fleetmark_agent.load_process import tail

STATE_FILE = "state.json"
PID_FILE = "pid"
ERROR_LOG = "error.log"

_TAIL_BYTES = 4000
_FORCED_GRACE_SECONDS = 30.0


@dataclass(frozen=True)
class Instance:
    """One instance's directory and what was written down at its start."""

    path: str
    state: Dict[str, Any]

    @property
    def identity(self) -> Optional[process.Identity]:
        """The server's process."""
        return process.read_pid_file(os.path.join(self.path, PID_FILE))


def find(path: str) -> Optional[Instance]:
    """The instance in a directory, None when none was begun there."""
    state = spool.read_json(os.path.join(path, STATE_FILE))
    return None if state is None else Instance(path, state)


def describe(path: str) -> Dict[str, Any]:
    """An instance in the answer of `status`."""
    found = find(path)
    identity = found.identity if found else None
    return {
        "run": os.path.basename(os.path.dirname(os.path.dirname(path))),
        "trial": os.path.basename(os.path.dirname(path)),
        "running": process.alive(identity),
        "pid": identity.pid if identity else None,
        "port": found.state["port"] if found else None,
        "data_dir": found.state["data_dir"] if found else None,
    }


def disk_bytes(path: str) -> int:
    """What a directory takes on disk, as `du` counts: blocks, each file once."""
    total = 0
    seen = set()
    for directory, _, names in os.walk(path):
        for name in [".", *names]:
            try:
                stat = os.lstat(os.path.join(directory, name))
            except FileNotFoundError:
                continue
            if (stat.st_dev, stat.st_ino) not in seen:
                seen.add((stat.st_dev, stat.st_ino))
                total += stat.st_blocks * 512
    return total


def remove_data(data_dir: str) -> None:
    """Delete an instance's data, and its run's directory when that is empty then."""
    if os.path.isdir(data_dir):
        shutil.rmtree(data_dir)
    parent = os.path.dirname(data_dir)
    if os.path.isdir(parent) and not os.listdir(parent):
        os.rmdir(parent)


def stop(path: str) -> Dict[str, Any]:
    """Stop an instance cleanly, measure its data, delete it.

    `clean` is false when the server was gone already or had to be killed. Raises UsageError
    when there is no instance.
    """
    found = find(path)
    if found is None:
        raise UsageError("there is no instance in %s" % path)
    start = time.monotonic()
    was_running = process.alive(found.identity)
    ended = process.end(found.identity, float(found.state["stop_timeout_seconds"]))
    seconds = time.monotonic() - start
    data_dir = str(found.state["data_dir"])
    answer = {
        "clean": was_running and ended,
        "seconds": round(seconds, 3),
        "data_bytes": disk_bytes(data_dir),
        "database_bytes": disk_bytes(os.path.join(data_dir, str(found.state["database"]))),
        "error_log_tail": tail(os.path.join(path, ERROR_LOG), _TAIL_BYTES),
    }
    remove_data(data_dir)
    _forget(path)
    spool.write_manifest(path)
    return answer


def _forget(path: str) -> None:
    for name in (*spool.SECRET_FILES, PID_FILE, "server.pid", "run.sock", STATE_FILE):
        spool.remove(os.path.join(path, name))


def end_leftovers(path: str) -> bool:
    """End and remove an instance that nobody stopped; whether it still ran."""
    found = find(path)
    if found is None:
        _forget(path)
        return False
    running = process.alive(found.identity)
    process.end(found.identity, _FORCED_GRACE_SECONDS)
    remove_data(str(found.state["data_dir"]))
    _forget(path)
    return running
