"""The files of an instance: my.cnf, the first SQL, an empty data directory, who owns them."""

import os
import pwd
import shutil
import subprocess
from dataclasses import dataclass
from typing import List, Sequence

from fleetmark_agent import spool
from fleetmark_agent.errors import HostError, UsageError, WorkloadError
from fleetmark_agent.job import Dbms
from fleetmark_agent.load_process import tail

SERVER_USER = "mysql"
_INITIALISE_SECONDS = 600.0
_TRAVERSABLE = 0o711
_PASSABLE = 0o111


@dataclass(frozen=True)
class Programs:
    """Where a build keeps its programs."""

    basedir: str

    def candidates(self, names: Sequence[str]) -> List[str]:
        """Existing paths of the given programs, best first."""
        places = (
            [os.path.join(self.basedir, p) for p in ("bin", "sbin", "libexec", "scripts")]
            if self.basedir
            else [*os.environ.get("PATH", "").split(":"), "/usr/sbin", "/usr/bin"]
        )
        paths = [os.path.join(place, name) for name in names for place in places if place]
        return [path for path in paths if os.access(path, os.X_OK) and os.path.isfile(path)]


def layout(basedir: str) -> Programs:
    """The programs of a build; an empty basedir means the distribution's."""
    return Programs(basedir)


@dataclass(frozen=True)
class Layout:
    """The paths of one instance. `system_user` is set when the server changes its user."""

    directory: str
    data_dir: str
    system_user: str

    @property
    def config(self) -> str:
        """my.cnf."""
        return os.path.join(self.directory, "my.cnf")

    @property
    def init_file(self) -> str:
        """The SQL that the server runs at its start."""
        return os.path.join(self.directory, "init.sql")

    @property
    def error_log(self) -> str:
        """All that the server says."""
        return os.path.join(self.directory, "error.log")

    @property
    def socket(self) -> str:
        """The server's Unix socket."""
        return os.path.join(self.directory, "run.sock")

    @property
    def server_pid(self) -> str:
        """The server's own pid file."""
        return os.path.join(self.directory, "server.pid")


def write_files(store: spool.Spool, dbms: Dbms, directory: str, password: str) -> Layout:
    """Make directories, my.cnf and init.sql. Raises HostError for data that is in the way."""
    data_dir = os.path.join(
        os.path.abspath(dbms.data_dir),
        spool.check_name(dbms.run, "run"),
        spool.check_name(dbms.trial, "trial"),
    )
    if os.path.isdir(data_dir) and os.listdir(data_dir):
        raise HostError(
            "the data directory %s is not empty" % data_dir,
            evidence="it holds %s" % ", ".join(sorted(os.listdir(data_dir))[:5]),
            next_step="if it is of a run that is over: the verb clean removes it",
        )
    try:
        os.makedirs(data_dir, mode=0o755, exist_ok=True)
        os.makedirs(directory, mode=0o700, exist_ok=True)
    except OSError as error:
        raise HostError("cannot make a directory", evidence=str(error)) from None
    files = Layout(directory, data_dir, _system_user(store, dbms, directory, data_dir))
    if len(files.socket) > 100:
        raise HostError(
            "the socket's path is too long for the system: %s" % files.socket,
            next_step="choose a shorter fleetmark_base_dir, or shorter names",
        )
    _write(files, files.config, _config(dbms, files))
    _write(files, files.init_file, _first_sql(dbms, password))
    _write(files, files.error_log, "")
    if files.system_user:
        shutil.chown(data_dir, files.system_user)
    os.chmod(data_dir, 0o700)
    return files


def _system_user(store: spool.Spool, dbms: Dbms, directory: str, data_dir: str) -> str:
    """The user to run as: `mysql` for root, where it can get at the files; else ourselves."""
    if os.geteuid() != 0:
        return ""
    try:
        user = pwd.getpwnam(SERVER_USER)
    except KeyError:
        return "root"
    # Our own directories are opened for passing through; their lists stay closed.
    for path in _between(store.base, directory)[:-1]:
        os.chmod(path, _TRAVERSABLE)
    for path in _between(os.path.abspath(dbms.data_dir), data_dir)[:-1]:
        os.chmod(path, os.stat(path).st_mode | _PASSABLE)
    places = (os.path.dirname(directory), os.path.dirname(data_dir), dbms.basedir or "/")
    if not all(_passable(place, user.pw_uid) for place in places):
        return "root"
    shutil.chown(directory, SERVER_USER)
    return SERVER_USER


def _between(top: str, path: str) -> List[str]:
    """The directories from `top` down to `path`, both included."""
    parts = os.path.relpath(path, top).split("/")
    return [top, *(os.path.join(top, *parts[: n + 1]) for n in range(len(parts)))]


def _passable(path: str, uid: int) -> bool:
    """Whether a user can pass through a directory and all above it."""
    while True:
        stat = os.stat(path)
        bit = 0o100 if stat.st_uid == uid else 0o001
        if not stat.st_mode & bit:
            return False
        if path == "/":
            return True
        path = os.path.dirname(path)


def _write(files: Layout, path: str, text: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(fd, "w", encoding="utf-8") as handle:
        handle.write(text)
    if files.system_user:
        shutil.chown(path, files.system_user)


def first_lines(flavour: str) -> str:
    """The start of a my.cnf, which the user's settings may overrule."""
    # Load hosts come by address: a reverse lookup for each connection measures the name server.
    lines = ["[mysqld]", "skip-name-resolve"]
    if flavour != "mariadb":
        # MySQL does not start without the distribution's directory for file exports.
        lines.append("secure-file-priv = NULL")
    return "\n".join(lines) + "\n"


def _config(dbms: Dbms, files: Layout) -> str:
    """my.cnf. What is ours comes last, since the last one of two settings counts."""
    ours = {
        "datadir": files.data_dir,
        "socket": files.socket,
        "port": str(dbms.port),
        "bind-address": dbms.bind_address,
        "pid-file": files.server_pid,
        "log-error": files.error_log,
    }
    if dbms.basedir:
        ours["basedir"] = dbms.basedir
    if dbms.flavour != "mariadb":
        # A build may come without the X plugin, which then is no option that it knows.
        ours["loose-mysqlx"] = "OFF"
    lines = ["%s = %s" % item for item in ours.items()]
    return "%s%s\n\n# Fleetmark's own: paths, port and socket of this instance.\n[mysqld]\n%s\n" % (
        first_lines(dbms.flavour),
        dbms.config_text.strip(),
        "\n".join(lines),
    )


def _literal(text: str) -> str:
    if any(ord(character) < 32 for character in text):
        raise UsageError("a password or a name holds a control character")
    return "'%s'" % text.replace("\\", "\\\\").replace("'", "''")


def _first_sql(dbms: Dbms, password: str) -> str:
    """Our user and database; nobody without a password. One statement a line, as it must be."""
    database = "`%s`" % dbms.database.replace("`", "``")
    # The load's prepared statements are ours: without the binary log, these are no events.
    lines = ["SET SESSION sql_log_bin = 0;", "CREATE DATABASE IF NOT EXISTS %s;" % database]
    for host in ("%", "localhost"):
        user = "%s@%s" % (_literal(dbms.user), _literal(host))
        lines.append("CREATE USER %s IDENTIFIED BY %s;" % (user, _literal(password)))
        lines.append("GRANT ALL PRIVILEGES ON *.* TO %s;" % user)
    if dbms.flavour == "mariadb":
        lines.append("DELETE FROM mysql.global_priv WHERE User = '';")
        lines.append("FLUSH PRIVILEGES;")
    else:
        # --initialize-insecure leaves root without a password; nobody needs that account.
        lines.append("ALTER USER 'root'@'localhost' ACCOUNT LOCK;")
    return "\n".join(lines) + "\n"


def initialise(dbms: Dbms, files: Layout, binary: str) -> None:
    """Fill the data directory. Raises WorkloadError with what the program said."""
    # Setting the init file only now: while it is filled, there is nothing to grant on.
    if dbms.flavour == "mariadb":
        command = [
            _install_program(dbms),
            "--defaults-file=" + files.config,
            "--skip-test-db",
            # Many a test machine is in no name service, and nobody is granted by host name.
            "--force",
            "--auth-root-authentication-method=socket",
            "--auth-root-socket-user=root",
        ]
        if dbms.basedir:
            command.append("--basedir=" + dbms.basedir)
    else:
        command = [binary, "--defaults-file=" + files.config, "--initialize-insecure"]
    if files.system_user:
        command.append("--user=" + files.system_user)
    try:
        said = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
            timeout=_INITIALISE_SECONDS,
            cwd="/",
        )
    except subprocess.TimeoutExpired:
        raise HostError("the data directory was not filled in time") from None
    if said.returncode != 0:
        both = said.stdout + "\n" + tail(files.error_log)
        errors = [line for line in both.splitlines() if "ERROR" in line]
        raise WorkloadError(
            "the server could not fill its data directory",
            evidence="\n".join(errors[-10:]) or both[-1000:],
            next_step="correct the config of this trial",
        )
    with open(files.config, "a", encoding="utf-8") as handle:
        handle.write("init-file = %s\n" % files.init_file)


def _install_program(dbms: Dbms) -> str:
    found = layout(dbms.basedir).candidates(("mariadb-install-db", "mysql_install_db"))
    if not found:
        raise HostError("there is no mariadb-install-db on this host")
    return found[0]
