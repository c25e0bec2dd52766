"""Processes of this host: start them detached, recognise them again, end them.

A process is known by its number and its start time together, since numbers come back: nothing
that somebody else started is ever signalled.
"""

import ctypes
import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import Callable, Dict, List, Optional

from fleetmark_agent.errors import HostError

_POLL_SECONDS = 0.02
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Identity:
    """One process: its number and its start time in clock ticks since boot."""

    pid: int
    start_ticks: int


def stat_fields(pid: int) -> Optional[List[str]]:
    """The fields of /proc/PID/stat from the state on (index 0), None when it is gone."""
    try:
        with open("/proc/%d/stat" % pid, "rb") as handle:
            text = handle.read()
    except OSError:
        return None
    # The name stands in parentheses and may hold anything, so count from the last one.
    return text[text.rfind(b")") + 2 :].decode("ascii").split()


def identify(pid: int) -> Optional[Identity]:
    """Identity of a running process; None when there is none, or only its zombie."""
    fields = stat_fields(pid)
    if fields is None or fields[0] in ("Z", "X"):
        return None
    return Identity(pid, int(fields[19]))


def alive(identity: Optional[Identity]) -> bool:
    """Whether that very process still runs."""
    return identity is not None and identify(identity.pid) == identity


def write_pid_file(path: str, identity: Identity) -> None:
    """Record a process; the file appears whole or not at all."""
    beside = path + ".new"
    with open(beside, "w", encoding="ascii") as handle:
        json.dump({"pid": identity.pid, "start_ticks": identity.start_ticks}, handle)
    os.replace(beside, path)


def read_pid_file(path: str) -> Optional[Identity]:
    """The process a pid file names, None when there is no such file or it is damaged."""
    try:
        with open(path, encoding="ascii") as handle:
            data = json.load(handle)
        return Identity(int(data["pid"]), int(data["start_ticks"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def send_signal(identity: Identity, number: int) -> bool:
    """Signal that very process; False when it is gone."""
    if not alive(identity):
        return False
    try:
        os.kill(identity.pid, number)
    except ProcessLookupError:
        return False
    except PermissionError:
        raise HostError(
            "process %d belongs to another user" % identity.pid,
            next_step="run the agent as the user who started it",
        ) from None
    return True


def wait_until(condition: Callable[[], bool], timeout_seconds: float) -> bool:
    """Poll a condition up to a limit; whether it became true."""
    limit = time.monotonic() + timeout_seconds
    while not condition():
        if time.monotonic() >= limit:
            return False
        time.sleep(_POLL_SECONDS)
    return True


def end(identity: Optional[Identity], grace_seconds: float) -> bool:
    """SIGTERM, then SIGKILL after a grace; True when the process ended by itself in time."""
    if identity is None or not send_signal(identity, signal.SIGTERM):
        return True
    if wait_until(lambda: not alive(identity), grace_seconds):
        return True
    send_signal(identity, signal.SIGKILL)
    wait_until(lambda: not alive(identity), grace_seconds)
    return False


def systemd_runs() -> bool:
    """Whether systemd is the service manager of this host."""
    return os.path.isdir("/run/systemd/system")


def systemd_reaches_here() -> bool:
    """Whether systemd would start a unit in our own view of network and files.

    In a namespace of our own it would not: the unit would run beside it, on the machine.
    """
    try:
        return systemd_runs() and all(
            os.readlink("/proc/self/ns/" + kind) == os.readlink("/proc/1/ns/" + kind)
            for kind in ("net", "mnt", "pid")
        )
    except OSError:
        return False


def agent_command() -> List[str]:
    """How to start this same agent again: the zipapp, or the installed package."""
    place = os.path.dirname(os.path.abspath(__file__))
    while place != "/":
        if os.path.isfile(place):
            return [sys.executable, place]
        place = os.path.dirname(place)
    return [sys.executable, "-m", "fleetmark_agent"]


def unit_command(unit: str, argv: List[str], properties: Dict[str, str]) -> List[str]:
    """The systemd-run call that starts a program as a service of its own."""
    command = ["systemd-run", "--quiet", "--collect", "--unit=" + unit]
    command += ["--property=%s=%s" % item for item in sorted(properties.items())]
    return [*command, "--", *argv]


def start_detached(argv: List[str], output: str, unit: str) -> Optional["subprocess.Popen[bytes]"]:
    """Start a program that outlives this one and its session; both outputs go to a file.

    With systemd and as root it becomes a unit of its own, and None is returned; else a child
    in a session of its own is returned, so that its death can be seen. Raises HostError.
    """
    if os.geteuid() == 0 and systemd_reaches_here():
        properties = {
            "StandardOutput": "append:" + output,
            "StandardError": "append:" + output,
            "LimitNOFILE": "1048576",
            "LimitMEMLOCK": "infinity",
            # The agent ends what it started, in its own order and with its own patience.
            "KillMode": "process",
            "SendSIGKILL": "no",
        }
        done = subprocess.run(
            unit_command(unit, argv, properties), capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise HostError("systemd-run did not start the unit", evidence=done.stderr.strip())
        return None
    with open(output, "ab") as handle:
        return subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=handle,
            stderr=handle,
            start_new_session=True,
            preexec_fn=_raise_limits,  # noqa: PLW1509 (this program has one thread)
            cwd="/",
        )


def _raise_limits() -> None:
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if os.geteuid() == 0:
        try:
            # With little lockable memory a server falls back from io_uring without a word.
            unlimited = resource.RLIM_INFINITY
            resource.setrlimit(resource.RLIMIT_MEMLOCK, (unlimited, unlimited))
        except (OSError, ValueError):
            return


def limits(pid: int) -> Dict[str, Optional[int]]:
    """What a running process may have, as the kernel says; None is unlimited or not readable."""
    try:
        with open("/proc/%d/limits" % pid, encoding="ascii") as handle:
            said = handle.read()
    except OSError:
        said = ""
    found: Dict[str, Optional[int]] = {}
    for key, name in (("open_files", "Max open files"), ("locked_bytes", "Max locked memory")):
        match = re.search(r"^%s\s+(\d+)" % name, said, re.MULTILINE)
        found[key] = int(match.group(1)) if match else None
    return found


def die_with_parent() -> None:
    """For a child before it executes: be killed when the parent dies.

    A load whose supervisor is gone has nobody to count it or to end it.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
