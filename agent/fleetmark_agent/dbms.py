"""The life of a DBMS instance for one trial: check, fresh data, start, proof of its config.

MariaDB and MySQL. Nothing of an earlier instance is used: an own data directory, an own my.cnf
(the distribution's is not read), an own socket. As root the server runs as user `mysql`.
"""

import contextlib
import os
import re
import socket
import subprocess
import tempfile
import time
from dataclasses import dataclass
from typing import Any, Dict, List, Optional

import pymysql

from fleetmark_agent import build_facts, engines, process, spool
from fleetmark_agent.dbms_files import Layout, first_lines, initialise, layout, write_files
from fleetmark_agent.dbms_status import connect
from fleetmark_agent.errors import HostError, UsageError, WorkloadError
from fleetmark_agent.instance import PID_FILE, STATE_FILE, remove_data
from fleetmark_agent.job import Connection, Dbms, JobError, decode_dbms
from fleetmark_agent.load_process import tail
from fleetmark_agent.variables import Kind, compare

_ERROR_LINE = re.compile(r"^.*(?:\[ERROR\]|\bERROR:).*$", re.MULTILINE)
_CHECK_SECONDS = 60.0
_POLL_SECONDS = 0.05


@dataclass(frozen=True)
class Server:
    """The server program of a build."""

    binary: str
    version: str


def read_dbms(path: str) -> Dbms:
    """The instance asked for in a file. Raises UsageError."""
    try:
        with open(path, encoding="utf-8") as handle:
            dbms = decode_dbms(handle.read())
    except OSError as error:
        raise UsageError("cannot read the instance", evidence=str(error)) from None
    except JobError as error:
        raise UsageError(str(error), evidence=path) from None
    if dbms.flavour not in ("mariadb", "mysql", "percona"):
        raise UsageError("flavour %r is none of mariadb, mysql, percona" % dbms.flavour)
    return dbms


def error_lines(text: str) -> str:
    """The server's own error lines, the last ten."""
    return "\n".join(_ERROR_LINE.findall(text)[-10:])


def find_server(dbms: Dbms) -> Server:
    """The server's program and its version. Raises HostError."""
    names = ("mariadbd", "mysqld") if dbms.flavour == "mariadb" else ("mysqld",)
    for binary in layout(dbms.basedir).candidates(names):
        said = subprocess.run(
            [binary, "--no-defaults", "--version"], capture_output=True, text=True, check=False
        )
        if said.returncode == 0 and ("mariadb" in said.stdout.lower()) == (
            dbms.flavour == "mariadb"
        ):
            match = re.search(r"Ver (\S+)", said.stdout)
            return Server(binary, match.group(1) if match else said.stdout.strip())
    raise HostError(
        "no %s server on this host" % dbms.flavour,
        evidence="looked for %s in %s" % (" and ".join(names), dbms.basedir or "the usual places"),
        next_step="run `fleetmark provision`, or install the server",
    )


def check(dbms: Dbms) -> Dict[str, str]:
    """Let the server itself judge the config, without data. Raises WorkloadError in its words.

    MariaDB has no validating option: it reads its config before it prints its help, ends with
    7 for an unknown variable, and for a bad value of a plugin's variable with 0 and an error
    line.
    """
    server = find_server(dbms)
    dbms = engines.with_engines(dbms, server.binary)
    with tempfile.TemporaryDirectory(prefix="fleetmark-check-") as scratch:
        config = os.path.join(scratch, "my.cnf")
        fd = os.open(config, os.O_WRONLY | os.O_CREAT, 0o600)
        with os.fdopen(fd, "w", encoding="utf-8") as handle:
            handle.write(first_lines(dbms.flavour) + dbms.config_text)
            handle.write("\n[mysqld]\ndatadir = %s\n" % scratch)
        command = [server.binary, "--defaults-file=" + config]
        if os.geteuid() == 0:
            command.append("--user=root")
        command += ["--verbose", "--help"] if dbms.flavour == "mariadb" else ["--validate-config"]
        try:
            said = subprocess.run(
                command,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                check=False,
                timeout=_CHECK_SECONDS,
                cwd=scratch,
            )
        except subprocess.TimeoutExpired:
            raise HostError("%s did not check its config in time" % server.binary) from None
    errors = error_lines(said.stderr)
    if said.returncode != 0 or errors:
        raise WorkloadError(
            "the server does not accept the config",
            evidence=errors or said.stderr.strip()[-1000:],
            next_step="correct the config of this trial",
        )
    return {"version": server.version, "binary": server.binary}


def start(store: spool.Spool, path: str) -> Dict[str, Any]:
    """Make and start the instance asked for; returns the Instance of docs/formats.md.

    Raises WorkloadError with the server's own lines when it does not come up, HostError for a
    port in use or a data directory that is not empty. After an error no server is left.
    """
    dbms = read_dbms(path)
    password = spool.read_password(os.path.dirname(os.path.abspath(path)))
    if not password:
        raise UsageError("there is no password in secret.json beside %s" % path)
    store.claim(dbms.run)
    directory = store.instance_path(dbms.run, dbms.trial)
    if os.path.exists(os.path.join(directory, STATE_FILE)):
        raise HostError("trial %s has an instance already" % dbms.trial, evidence=directory)
    _check_port(dbms)
    server = find_server(dbms)
    dbms = engines.with_engines(dbms, server.binary)
    files = write_files(store, dbms, directory, password)
    begun = time.monotonic()
    spool.write_json(os.path.join(directory, STATE_FILE), _state(dbms, files))
    try:
        initialise(dbms, files, server.binary)
        argv = [server.binary, "--defaults-file=" + files.config]
        if files.system_user:
            argv.append("--user=" + files.system_user)
        identity = _launch(dbms, files, argv)
        proof = _proof(dbms, files, password)
        seconds = round(time.monotonic() - begun, 3)
        proof["build"] = build_facts.collect(dbms.basedir, server.binary, proof["variables"])
        proof["limits"] = process.limits(identity.pid)
        return {**proof, "pid": identity.pid, "start_seconds": seconds, "command": argv}
    except BaseException:
        process.end(process.read_pid_file(os.path.join(directory, PID_FILE)), 10.0)
        remove_data(files.data_dir)
        spool.remove(os.path.join(directory, STATE_FILE))
        raise
    finally:
        spool.remove(files.init_file)


def _state(dbms: Dbms, files: Layout) -> Dict[str, Any]:
    return {
        "version": 1,
        "run": dbms.run,
        "trial": dbms.trial,
        "flavour": dbms.flavour,
        "port": dbms.port,
        "data_dir": files.data_dir,
        "database": dbms.database,
        "stop_timeout_seconds": dbms.stop_timeout_seconds,
    }


def _check_port(dbms: Dbms) -> None:
    """Before anything is made: a server finds out late, and says it in a log only."""
    family = socket.AF_INET6 if ":" in dbms.bind_address else socket.AF_INET
    address = "" if dbms.bind_address == "*" else dbms.bind_address
    with contextlib.closing(socket.socket(family, socket.SOCK_STREAM)) as probe:
        # As the server does: connections that are only just closed do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, dbms.port))
        except OSError as error:
            raise HostError(
                "port %d of %s cannot be used" % (dbms.port, dbms.bind_address),
                evidence=str(error),
                next_step="end what listens there, or set fleetmark_db_port",
            ) from None


def _launch(dbms: Dbms, files: Layout, argv: List[str]) -> process.Identity:
    """Start the server and wait until it answers on its socket."""
    unit = "fleetmark-dbms-%d-%d" % (os.getpid(), time.time())
    child = process.start_detached(argv, files.error_log, unit)
    identity: Optional[process.Identity] = None
    limit = time.monotonic() + dbms.start_timeout_seconds
    while time.monotonic() < limit:
        if identity is None:
            identity = process.identify(child.pid) if child else _server_process(files)
            if identity is not None:
                process.write_pid_file(os.path.join(files.directory, PID_FILE), identity)
        if identity is not None and os.path.exists(files.socket) and _answers(files):
            return identity
        if (child and child.poll() is not None) or (identity and not process.alive(identity)):
            raise _not_started("the server ended while it was starting", files)
        time.sleep(_POLL_SECONDS)
    raise _not_started("the server did not answer within %g s" % dbms.start_timeout_seconds, files)


def _server_process(files: Layout) -> Optional[process.Identity]:
    """The process that the server's own pid file names, for a server started by systemd."""
    try:
        with open(files.server_pid, encoding="ascii") as handle:
            return process.identify(int(handle.read()))
    except (OSError, ValueError):
        return None


def _answers(files: Layout) -> bool:
    with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as probe:
        probe.settimeout(5.0)
        try:
            probe.connect(files.socket)
            return bool(probe.recv(1))
        except OSError:
            return False


def _not_started(message: str, files: Layout) -> WorkloadError:
    log = tail(files.error_log, 1 << 16)
    return WorkloadError(
        message,
        evidence=error_lines(log) or log[-1000:],
        next_step="correct the config of this trial; the whole log is %s" % files.error_log,
    )


def _proof(dbms: Dbms, files: Layout, password: str) -> Dict[str, Any]:
    """Connect as the load will, and compare what is in effect with what was asked."""
    target = Connection("localhost", dbms.port, dbms.user, dbms.database, files.socket)
    try:
        connection = connect(target, password, dbms.start_timeout_seconds)
    except (pymysql.Error, OSError) as error:
        raise _not_started("user %s cannot connect: %s" % (dbms.user, error), files) from None
    with contextlib.closing(connection), connection.cursor() as cursor:
        cursor.execute("SHOW GLOBAL VARIABLES")
        variables = {str(name).lower(): str(value) for name, value in cursor.fetchall()}
        engines.check(dbms, cursor)
        kinds = _kinds(cursor)
    comparison = compare(dbms.expected_variables, variables, kinds)
    return {
        "version": variables["version"],
        "version_comment": variables.get("version_comment", ""),
        "flavour": dbms.flavour,
        "port": int(variables["port"]),
        "socket": files.socket,
        "pid_file": os.path.join(files.directory, PID_FILE),
        "data_dir": files.data_dir,
        "system_user": files.system_user or "",
        "variables": variables,
        "mismatches": comparison.mismatches,
        "unchecked": comparison.unchecked,
    }


def _kinds(cursor: Any) -> Dict[str, Kind]:
    """Types and names of enumerations, where the server tells them (MariaDB)."""
    try:
        cursor.execute(
            "SELECT VARIABLE_NAME, VARIABLE_TYPE, ENUM_VALUE_LIST"
            " FROM information_schema.SYSTEM_VARIABLES"
        )
    except pymysql.Error:
        return {}
    return {
        str(name).lower(): Kind(str(kind), tuple((names or "").split(",")))
        for name, kind, names in cursor.fetchall()
    }
