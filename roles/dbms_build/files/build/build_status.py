"""The state of one build in its work directory: who works on it, how far it is, how it ended.

Whoever works holds a lock on a file; the lock goes with its process, so that a build that died
is never taken for one that runs.
"""

import fcntl
import json
import os
import time
from dataclasses import dataclass
from typing import Any, Dict, Optional

from build_log import Failure, duration

RUNNING, DONE, FAILED = "running", "done", "failed"


def write_json(path: str, document: Dict[str, Any], mode: int = 0o644) -> None:
    """Write a file beside and rename it into place, so that readers see all of it or nothing."""
    beside = path + ".new"
    fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(fd, "w", encoding="utf-8") as handle:
        json.dump(document, handle, indent=1, sort_keys=True)
        handle.write("\n")
        handle.flush()
        os.fsync(handle.fileno())
    os.replace(beside, path)


def read_json(path: str) -> Optional[Dict[str, Any]]:
    """A JSON object, None where there is none."""
    try:
        with open(path, encoding="utf-8") as handle:
            document = json.load(handle)
    except (OSError, ValueError):
        return None
    return document if isinstance(document, dict) else None


@dataclass(frozen=True)
class Place:
    """The work directory of one build."""

    directory: str

    def path(self, name: str) -> str:
        """A file or directory in it."""
        return os.path.join(self.directory, name)

    def lock(self) -> Optional[int]:
        """Take the lock; its file descriptor, None while somebody works here."""
        fd = os.open(self.path("lock"), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            return None
        return fd

    def worked_on(self) -> bool:
        """Whether somebody works here."""
        fd = self.lock()
        if fd is None:
            return True
        os.close(fd)
        return False

    def status(self) -> Dict[str, Any]:
        """The last status; an empty one before the first."""
        return read_json(self.path("status.json")) or {}

    def forget(self) -> None:
        """Drop the status of an earlier try."""
        if os.path.exists(self.path("status.json")):
            os.remove(self.path("status.json"))


class Reporter:
    """Writes the status of a build that is going on, at most once a second."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._begun = time.time()
        self._stage_begun = time.time()
        self._written = 0.0
        self._stage = ""

    def stage(self, name: str) -> None:
        """Another stage begins."""
        self._stage = name
        self._stage_begun = time.time()
        self._write(RUNNING, text=name)

    def step(self, done: int, total: int) -> None:
        """The stage has got so far."""
        if time.time() - self._written < 1.0:
            return
        spent = time.time() - self._stage_begun
        text = "%s %d of %d, %s" % (self._stage, done, total, duration(spent))
        if done * 20 > total:  # before that, what is left is a guess
            text += ", about %s left" % duration(spent / done * (total - done))
        self._write(RUNNING, text=text, done=done, total=total)

    def failed(self, failure: Failure) -> None:
        """The build has failed."""
        words = {
            "message": failure.message,
            "evidence": failure.evidence,
            "next_step": failure.next_step,
        }
        self._write(FAILED, text=failure.message, error=words)

    def done(self) -> None:
        """The build has ended well."""
        self._write(DONE, text="built in %s" % duration(time.time() - self._begun))

    def _write(self, state: str, **more: Any) -> None:
        self._written = time.time()
        document = {
            "version": 1,
            "state": state,
            "stage": self._stage,
            "t": self._written,
            "seconds": round(self._written - self._begun, 1),
            **more,
        }
        try:
            write_json(self._place.path("status.json"), document)
        except OSError:
            # A full disk must not hide why the build failed: overwrite what is there.
            if state == FAILED:
                self._overwrite(document)

    def _overwrite(self, document: Dict[str, Any]) -> None:
        text = json.dumps(document)
        with open(self._place.path("status.json"), "r+", encoding="utf-8") as handle:
            size = os.fstat(handle.fileno()).st_size
            handle.write(text.ljust(size) if len(text) <= size else text)
            handle.truncate()
