"""What the controller asks of a host: jobs and DBMS instances, as they go over the wire.

The decoding is written by hand: `typing.get_type_hints` fails on Python 3.9 for newer
annotations, and an unknown field must be an error, since it means that the two ends differ.
"""

import dataclasses
import json
from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional, Type, TypeVar

JOB_VERSION = 1

T = TypeVar("T")


class JobError(ValueError):
    """A job that cannot be read: wrong version, unknown or missing field."""


@dataclass(frozen=True)
class Connection:
    """How load and samplers reach the DBMS. The password travels in a file of its own."""

    host: str
    port: int
    user: str
    database: str
    socket: str = ""


@dataclass(frozen=True)
class Stream:
    """The threads of a step that do one thing on one load host.

    `rate_per_second` is in operations a second over all threads of the stream on this host;
    0 means as fast as possible. `defining` streams decide when the step ends: when all of
    them are done, the others are stopped. `options` are read by the Lua script.
    """

    name: str
    threads: int
    role: str
    rate_per_second: float = 0.0
    defining: bool = True
    options: Dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Load:
    """The load that one host brings in one step.

    `script` names a Lua file of the package (`insert_benchmark`) or a path on the host.
    `duration_seconds` 0 means that the script ends by count. `pacing` is `catch_up` (keep the
    schedule, make up a deficit) or `published` (bursts once a second, a deficit is lost).
    `on_error` is `retry` (deadlocks, lock waits, lost connections), `count` or `stop`.
    """

    script: str
    connection: Connection
    streams: List[Stream]
    options: Dict[str, Any] = field(default_factory=dict)
    duration_seconds: float = 0.0
    pacing: str = "catch_up"
    on_error: str = "retry"


@dataclass(frozen=True)
class Settle:
    """The wait between load and queries: analyse tables, write dirty pages back, then wait.

    `minimum_seconds` is the length of the whole step, the work inside it included.
    """

    connection: Connection
    tables: List[str]
    minimum_seconds: float
    engine: str = "innodb"


@dataclass(frozen=True)
class Samplers:
    """What is sampled beside the load; an interval of 0 seconds switches a sampler off."""

    host_interval_seconds: float = 1.0
    dbms_interval_seconds: float = 0.0
    dbms_connection: Optional[Connection] = None
    dbms_pid_file: str = ""
    data_dir: str = ""


@dataclass(frozen=True)
class Job:
    """One step on one host.

    `deadline_seconds` counts from the release: a job that outlives it is stopped by its own
    supervisor, so that a host does not work for ever when its controller is gone.
    `arm_timeout_seconds` bounds connecting and preparing, and then the wait for the release.
    """

    run: str
    trial: str
    step: str
    host: str
    samplers: Samplers
    deadline_seconds: float
    load: Optional[Load] = None
    settle: Optional[Settle] = None
    arm_timeout_seconds: float = 120.0
    minimum_free_bytes: int = 256 * 1024 * 1024
    version: int = JOB_VERSION


@dataclass(frozen=True)
class Dbms:
    """A DBMS instance for one trial: a fresh data directory and a rendered my.cnf.

    `basedir` empty means the distribution's package (binaries on PATH or in /usr/sbin).
    `config_text` holds the user's settings only; the agent adds paths, port and socket.
    `expected_variables` are the names and values asked for, checked after the start.
    `engines` are the storage engines that the load uses; plugins are loaded for them.
    """

    run: str
    trial: str
    flavour: str
    data_dir: str
    port: int
    bind_address: str
    config_text: str
    expected_variables: Dict[str, str] = field(default_factory=dict)
    basedir: str = ""
    engines: List[str] = field(default_factory=list)
    user: str = "fleetmark"
    database: str = "fleetmark"
    start_timeout_seconds: float = 120.0
    stop_timeout_seconds: float = 600.0
    version: int = JOB_VERSION


def encode(value: Any) -> str:
    """A job or a DBMS instance as JSON text, keys sorted so that equal jobs are equal bytes."""
    return json.dumps(dataclasses.asdict(value), sort_keys=True, indent=1) + "\n"


def _fields(cls: Type[T], data: Any, where: str) -> Dict[str, Any]:
    if not isinstance(data, dict):
        raise JobError("%s: expected an object, got %s" % (where, type(data).__name__))
    known = {f.name for f in dataclasses.fields(cls)}  # type: ignore[arg-type]
    unknown = sorted(set(data) - known)
    if unknown:
        raise JobError("%s: unknown field %s; are both ends of one version?" % (where, unknown[0]))
    return dict(data)


def _build(cls: Type[T], values: Dict[str, Any], where: str) -> T:
    try:
        return cls(**values)
    except TypeError as error:
        raise JobError("%s: %s" % (where, error)) from None


def _plain(cls: Type[T], data: Any, where: str) -> T:
    return _build(cls, _fields(cls, data, where), where)


def _optional_connection(data: Any, where: str) -> Optional[Connection]:
    return None if data is None else _plain(Connection, data, where)


def _load(data: Any, where: str) -> Load:
    values = _fields(Load, data, where)
    values["connection"] = _plain(Connection, values.get("connection"), where + ".connection")
    values["streams"] = [
        _plain(Stream, stream, "%s.streams[%d]" % (where, index))
        for index, stream in enumerate(values.get("streams", []))
    ]
    return _build(Load, values, where)


def _settle(data: Any, where: str) -> Settle:
    values = _fields(Settle, data, where)
    values["connection"] = _plain(Connection, values.get("connection"), where + ".connection")
    return _build(Settle, values, where)


def _samplers(data: Any, where: str) -> Samplers:
    values = _fields(Samplers, data, where)
    values["dbms_connection"] = _optional_connection(
        values.get("dbms_connection"), where + ".dbms_connection"
    )
    return _build(Samplers, values, where)


def _parse(text: str, what: str) -> Dict[str, Any]:
    try:
        data = json.loads(text)
    except ValueError as error:
        raise JobError("%s is not JSON: %s" % (what, error)) from None
    if not isinstance(data, dict):
        raise JobError("%s: expected an object" % what)
    if data.get("version") != JOB_VERSION:
        raise JobError(
            "%s has version %r, this agent reads %d: deploy the agent again"
            % (what, data.get("version"), JOB_VERSION)
        )
    return data


def decode_job(text: str) -> Job:
    """Read a job. Raises JobError that names the field at fault."""
    values = _fields(Job, _parse(text, "job"), "job")
    values["samplers"] = _samplers(values.get("samplers"), "job.samplers")
    if values.get("load") is not None:
        values["load"] = _load(values["load"], "job.load")
    if values.get("settle") is not None:
        values["settle"] = _settle(values["settle"], "job.settle")
    return _build(Job, values, "job")


def decode_dbms(text: str) -> Dbms:
    """Read a DBMS instance. Raises JobError that names the field at fault."""
    return _plain(Dbms, _parse(text, "dbms"), "dbms")
