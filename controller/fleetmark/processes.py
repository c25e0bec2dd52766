"""Finding processes by what they work on, and ending them by pid."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from fleetmark.errors import InfrastructureError

_END_SECONDS = 10.0
_POLL_SECONDS = 0.02


def inside_directory(path: Path) -> set[int]:
    """The detached processes that work in `path`, and all that descend from them.

    They name it in their arguments, or it is their working directory. What has a terminal is
    somebody's shell or editor that happens to be there. This process and its ancestors are
    never among them.
    """
    prefix = f"{path}/"
    parents: dict[int, int] = {}
    found: set[int] = set()
    for entry in _all():
        try:
            parents[int(entry.name)], terminal = _parent_and_terminal(entry)
            named = os.fsencode(prefix) in (entry / "cmdline").read_bytes()
            works_there = named or f"{os.readlink(entry / 'cwd')}/".startswith(prefix)
            if works_there and not terminal:
                found.add(int(entry.name))
        except OSError:
            continue  # it ended meanwhile, or is another user's
    found |= {pid for pid in parents if found.intersection(_ancestors(pid, parents))}
    return found - {os.getpid(), *_ancestors(os.getpid(), parents)}


def with_environment(text: str) -> set[int]:
    """The processes whose environment holds `text`, this one aside.

    Children inherit it, also those that leave their process group or lose their parent.
    """
    found = set()
    for entry in _all():
        try:
            if os.fsencode(text) in (entry / "environ").read_bytes():
                found.add(int(entry.name))
        except OSError:
            continue
    return found - {os.getpid()}


def _all() -> Iterator[Path]:
    """The directories of all processes; none on a system without /proc."""
    if Path("/proc/self").exists():
        yield from (entry for entry in Path("/proc").iterdir() if entry.name.isdecimal())


def _parent_and_terminal(entry: Path) -> tuple[int, int]:
    # The name in brackets may hold anything, so fields are counted from its end.
    fields = (entry / "stat").read_text().rpartition(")")[2].split()
    return int(fields[1]), int(fields[4])


def _ancestors(pid: int, parents: dict[int, int]) -> set[int]:
    line: set[int] = set()
    while (pid := parents.get(pid, 0)) > 0 and pid not in line:
        line.add(pid)
    return line


def end_all(find: Callable[[], set[int]], what: str) -> int:
    """Kill what `find` returns until it returns nothing; how many were killed.

    Killed at once and not asked: whatever they would save is removed next. Raises
    InfrastructureError when some are left after ten seconds.
    """
    killed: set[int] = set()
    deadline = time.monotonic() + _END_SECONDS
    while pids := find():
        if time.monotonic() > deadline:
            raise InfrastructureError(
                f"processes of {what} do not end: {', '.join(map(str, sorted(pids)))}",
                next_step="they may wait for a device; try again when it has recovered",
            )
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
                killed.add(pid)
            except ProcessLookupError:
                pass
        time.sleep(_POLL_SECONDS)
    return len(killed)
