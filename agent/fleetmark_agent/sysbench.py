"""Start of the load: sysbench with the Lua frame, and what its end means.

`prepare` lays out a job directory so that one command line runs the load; the supervisor starts
that, and `classify` reads its end. No password on the command line: sysbench takes it from a
file of mode 0600.
"""

import importlib.resources
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Sequence, Tuple

from fleetmark_agent import shm
from fleetmark_agent.errors import HostError, UsageError
from fleetmark_agent.job import Load
from fleetmark_agent.lua_text import to_lua

LUA_DIRECTORY = "lua"
LOG_NAME = "sysbench.log"
SHM_NAME = "shm"
FRAME_OPTIONS = ("reconnect_seconds",)
"""Options of a load that the frame itself reads; a stock script does not get them."""

PACKAGE_SCRIPTS = ("insert_benchmark",)
"""Scripts of the package; its other Lua files are parts of the frame."""

_EVENTS = re.compile(r"^\s*total number of events:\s+(\d+)\s*$", re.MULTILINE)
_FATAL = re.compile(r"^FATAL: (.*)$", re.MULTILINE)
_FRAME_FATAL = re.compile(r"^FATAL: `?\w+'? function failed: (.*)$", re.MULTILINE)
_HOST_WORDS = (
    "telemetry file",
    "failed to initialize within",
    "Thread initialization failed",
    "pthread_create",
    "No DB drivers",
)
_NO_CONNECTION = "connection creation failed"


@dataclass(frozen=True)
class Prepared:
    """A load that is ready to be started."""

    argv: List[str]
    threads: int
    stream_threads: List[Tuple[str, range]]
    shm_path: str
    log_path: str


@dataclass(frozen=True)
class Outcome:
    """How the load process ended. `klass` is `ok`, `workload` or `host`."""

    klass: str
    exit_code: int
    signal: int
    message: str
    sysbench_events: Optional[int]


def find() -> Optional[str]:
    """The path of the sysbench binary, or None."""
    return shutil.which("sysbench")


def version() -> Optional[str]:
    """The version of sysbench as it says itself (`1.0.20`), or None without one."""
    binary = find()
    if binary is None:
        return None
    said = subprocess.run([binary, "--version"], capture_output=True, text=True, check=False)
    match = re.search(r"(\d+\.\d+\.\d+)", said.stdout)
    return match.group(1) if match else None


def prepare(load: Load, job_dir: str, password: str) -> Prepared:
    """Unpack the Lua files and write what sysbench reads into `job_dir`.

    Raises HostError when sysbench is missing, UsageError for a password or an option that
    sysbench cannot take, or a load without threads.
    """
    binary = find()
    if binary is None:
        raise HostError(
            "sysbench is not installed", next_step="run `fleetmark provision`, or install it"
        )
    threads = sum(stream.threads for stream in load.streams)
    if threads < 1:
        raise UsageError("the load has no threads")
    job_dir = os.path.abspath(job_dir)
    lua_dir = os.path.join(job_dir, LUA_DIRECTORY)
    _unpack(lua_dir)
    kind = _script_kind(load.script)
    _write_private(os.path.join(job_dir, "params.lua"), "return " + to_lua(_params(load, kind)))
    _write_private(os.path.join(job_dir, "sysbench.cnf"), _config(load, password))
    shm_path = os.path.join(job_dir, SHM_NAME)
    shm.SharedFile.create(shm_path, threads).close()
    argv = [
        binary,
        "--config-file=" + os.path.join(job_dir, "sysbench.cnf"),
        "--threads=%d" % threads,
        "--time=0",
        "--events=0",
        "--report-interval=0",
    ]
    if kind == "stock":
        argv += _stock_arguments(load.options)
    argv += [os.path.join(lua_dir, "frame.lua"), "run"]
    return Prepared(argv, threads, _stream_threads(load), shm_path, os.path.join(job_dir, LOG_NAME))


def classify(returncode: int, log: str, states: Sequence[int]) -> Outcome:
    """What the end of sysbench means.

    `returncode` as subprocess gives it (negative for a signal), `log` all that it printed,
    `states` the threads' last states from the telemetry file.
    """
    match = _EVENTS.search(log)
    events = int(match.group(1)) if match else None
    if returncode == 0:
        klass, message = _quiet_end(events, states)
        return Outcome(klass, 0, 0, message, events)
    signal = -returncode if returncode < 0 else returncode - 128 if returncode > 128 else 0
    if signal:
        message = "sysbench was ended by signal %d" % signal
        said = _cause(log)
        return Outcome("host", returncode, signal, message + (": " + said if said else ""), events)
    message = _cause(log) or "sysbench ended with exit code %d and gave no reason" % returncode
    host = returncode not in (1, 2) or any(word in message for word in _HOST_WORDS)
    return Outcome("host" if host else "workload", returncode, 0, message, events)


def _quiet_end(events: Optional[int], states: Sequence[int]) -> Tuple[str, str]:
    failed = sum(1 for state in states if state == shm.STATE_FAILED)
    unfinished = sum(1 for state in states if state not in (shm.STATE_DONE, shm.STATE_FAILED))
    if failed:
        return "workload", "%d of %d threads failed" % (failed, len(states))
    if unfinished:
        return "host", "sysbench ended while %d threads were not done" % unfinished
    if events is None:
        return "host", "sysbench ended without its summary"
    return "ok", ""


def _cause(log: str) -> str:
    """The reason in the log: the frame's own words first, they hold the server's."""
    fatal = [m for m in _FATAL.findall(log) if m != "Thread initialization failed!"]
    told = _FRAME_FATAL.findall(log)
    if told and _NO_CONNECTION not in told[0]:
        return str(told[0])[:1000]
    if told and len(fatal) > 1:
        # What the client library said stands in the two lines before.
        return "; ".join(fatal[:2])[:1000]
    if fatal:
        return str(fatal[0])[:1000]
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    return lines[-1][:1000] if lines else ""


def _unpack(lua_dir: str) -> None:
    """Copy the Lua files out of the package, which may be a zip file that Lua cannot read."""
    os.makedirs(lua_dir, mode=0o700, exist_ok=True)
    for item in importlib.resources.files("fleetmark_agent").joinpath("lua").iterdir():
        if item.name.endswith(".lua"):
            with open(os.path.join(lua_dir, item.name), "wb") as target:
                target.write(item.read_bytes())


def _script_kind(script: str) -> str:
    """`package` for one of ours, else `stock`: a script of sysbench or the user's file."""
    if script in PACKAGE_SCRIPTS:
        return "package"
    if "/" in script and not os.path.isfile(script):
        raise UsageError("there is no Lua script %s on this host" % script)
    return "stock"


def _params(load: Load, kind: str) -> Dict[str, Any]:
    streams: List[Dict[str, Any]] = []
    first = 0
    for stream in load.streams:
        streams.append(
            {
                "name": stream.name,
                "role": stream.role,
                "first_thread": first,
                "threads": stream.threads,
                "rate_per_second": stream.rate_per_second,
                "defining": stream.defining,
                "options": stream.options,
            }
        )
        first += stream.threads
    return {
        "script": load.script,
        "kind": kind,
        "streams": streams,
        "options": load.options,
        "duration_seconds": load.duration_seconds,
        "pacing": load.pacing,
        "on_error": load.on_error,
    }


def _stream_threads(load: Load) -> List[Tuple[str, range]]:
    result = []
    first = 0
    for stream in load.streams:
        result.append((stream.name, range(first, first + stream.threads)))
        first += stream.threads
    return result


def _config(load: Load, password: str) -> str:
    connection = load.connection
    values = {
        "db-driver": "mysql",
        "mysql-host": connection.host,
        "mysql-port": str(connection.port),
        "mysql-user": connection.user,
        "mysql-password": password,
        "mysql-db": connection.database,
    }
    if connection.socket:
        values["mysql-socket"] = connection.socket
    lines = []
    for name, value in values.items():
        # sysbench cuts a value at a blank and a comma, and has no way to quote them.
        if re.search(r"[\s,\x00-\x1f\x7f]", value):
            raise UsageError("sysbench cannot take a blank or a comma in %s" % name)
        if value:
            lines.append("%s=%s\n" % (name, value))
    return "".join(lines)


def _stock_arguments(options: Dict[str, Any]) -> List[str]:
    arguments = []
    for name, value in sorted(options.items()):
        if name in FRAME_OPTIONS:
            continue
        if not re.match(r"^[A-Za-z][A-Za-z0-9_-]*$", name):
            raise UsageError("%r is not the name of a sysbench option" % name)
        text = {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)
        arguments.append("--%s=%s" % (name.replace("_", "-"), text))
    return arguments


def _write_private(path: str, text: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(fd, "w", encoding="utf-8") as target:
        target.write(text)
