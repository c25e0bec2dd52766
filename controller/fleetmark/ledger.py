"""The ledger of a run: what happened, in order, append-only. `resume` derives from it.

One JSON object a line (docs/formats.md). Every line is on the disk before the next thing is
done, so that after a crash of the controller the ledger says what had begun.
"""

import fcntl
import json
import os
import re
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleetmark.errors import InfrastructureError, ResultError

_ATTEMPT = re.compile(r"^(?P<trial>.+)\.a(?P<attempt>[1-9]\d*)$")


class Ledger:
    """Appends events; safe to use from several threads."""

    def __init__(self, path: Path) -> None:
        """Open the ledger, after its last whole line where it exists already.

        Raises InfrastructureError while another process writes it: a run has one conductor.
        """
        self._lock = threading.Lock()
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._fd)
            raise InfrastructureError(
                f"run {path.parent.name} is being conducted by another process",
                next_step=f"look at it: fleetmark watch {path.parent.name}",
            ) from None
        self._next = len(read(path))
        if path.stat().st_size and not path.read_bytes().endswith(b"\n"):
            # The half line of a crash stays, as evidence; it must not swallow the next one.
            os.write(self._fd, b"\n")

    def append(self, event: str, **fields: Any) -> None:
        """Write one event and make it durable."""
        with self._lock:
            record = {"seq": self._next, "t": round(time.time(), 6), "event": event, **fields}
            os.write(self._fd, json.dumps(record, separators=(",", ":")).encode() + b"\n")
            os.fsync(self._fd)
            self._next += 1

    def close(self) -> None:
        """End writing."""
        with self._lock:
            os.close(self._fd)


def read(path: Path) -> list[dict[str, Any]]:
    """All whole events, oldest first; an empty list when there is no ledger yet.

    Raises ResultError on damage in the middle: a line that is not an event and has no crash to
    explain it, or a gap in the sequence.
    """
    if not path.is_file():
        return []
    events: list[dict[str, Any]] = []
    broken = 0
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        try:
            event = json.loads(line)
        except ValueError:
            broken = number
            continue
        if not isinstance(event, dict) or event.get("seq") != len(events):
            raise ResultError(
                f"{path}:{number}: event {len(events)} is missing or damaged"
                + (f" (line {broken} is not JSON)" if broken else "")
            )
        events.append(event)
    return events


@dataclass(frozen=True)
class TrialState:
    """How often a trial was begun, and how its last attempt ended ("" = it did not)."""

    attempts: int
    state: str


def directory_name(trial: str, attempt: int) -> str:
    """The directory of one attempt: the trial's id, from the second on with `.a<n>`."""
    return trial if attempt == 1 else f"{trial}.a{attempt}"


def trial_of(directory: str) -> tuple[str, int]:
    """The trial's id and the attempt that a directory name stands for."""
    match = _ATTEMPT.match(directory)
    return (match["trial"], int(match["attempt"])) if match else (directory, 1)


def trial_states(events: Iterable[dict[str, Any]]) -> dict[str, TrialState]:
    """What became of each trial that was begun, by the trial's id."""
    states: dict[str, TrialState] = {}
    for event in events:
        if event["event"] not in ("trial_started", "trial_ended"):
            continue
        trial, attempt = trial_of(event["trial"])
        ended = str(event.get("state", "")) if event["event"] == "trial_ended" else ""
        known = states.get(trial)
        if known is None or attempt >= known.attempts:
            states[trial] = TrialState(attempt, ended)
    return states
