"""A real mariadbd in a directory of its own, for tests and benchmarks."""

import os
import shutil
import signal
import socket
import subprocess
from pathlib import Path
from typing import Any

import pymysql
from waiting import wait_for

USER = "fleetmark"
PASSWORD = "correct-horse"
DATABASE = "fleetmark"
PORTS = range(13300, 13400)
START_SECONDS = 60.0


def find_server() -> str | None:
    """The path of mariadbd, or None where it is not installed."""
    return shutil.which("mariadbd", path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")


def free_port() -> int:
    """A port of the tests' range that nobody listens on."""
    for port in PORTS:
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise RuntimeError(f"no free port in {PORTS}")


class Server:
    """One instance. `start` may follow `kill`; the data stays until the directory goes."""

    def __init__(self, directory: Path, *options: str) -> None:
        self.directory = directory
        self.port = free_port()
        self.socket = str(directory / "run.sock")
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None

    def create(self) -> "Server":
        """Make the data directory, start, create user and database."""
        data = self.directory / "data"
        subprocess.run(
            ["mariadb-install-db", "--no-defaults", f"--datadir={data}", "--skip-test-db",
             "--auth-root-authentication-method=normal", f"--user={self._os_user()}"],
            check=True, capture_output=True,
        )  # fmt: skip
        self.start()
        with self.connect(user="root", password="", database=None) as connection:
            cursor = connection.cursor()
            cursor.execute(f"CREATE DATABASE {DATABASE}")
            cursor.execute(f"CREATE USER {USER}@'%' IDENTIFIED BY '{PASSWORD}'")
            cursor.execute(f"GRANT ALL ON *.* TO {USER}@'%'")
            cursor.execute(f"CREATE USER {USER}@localhost IDENTIFIED BY '{PASSWORD}'")
            cursor.execute(f"GRANT ALL ON *.* TO {USER}@localhost")
        return self

    def start(self) -> None:
        """Start the server and wait until it answers."""
        binary = find_server()
        assert binary
        log = (self.directory / "server.log").open("ab")
        self._process = subprocess.Popen(
            [binary, "--no-defaults", f"--datadir={self.directory / 'data'}",
             f"--socket={self.socket}", f"--port={self.port}", "--bind-address=127.0.0.1",
             f"--pid-file={self.directory / 'pid'}", f"--user={self._os_user()}",
             "--innodb-buffer-pool-size=128M", "--innodb-flush-log-at-trx-commit=0",
             "--innodb-log-file-size=64M", "--max-connections=200", *self._options],
            stdout=log, stderr=log,
        )  # fmt: skip
        log.close()
        wait_for(self._answers, "answer of mariadbd", START_SECONDS)

    def _answers(self) -> bool:
        assert self._process
        if self._process.poll() is not None:
            text = (self.directory / "server.log").read_text()[-2000:]
            raise RuntimeError(f"mariadbd ended with {self._process.returncode}: {text}")
        try:
            self.connect(user="root", password="", database=None).close()
        except pymysql.err.OperationalError:
            return False
        return True

    @staticmethod
    def _os_user() -> str:
        return "root" if os.getuid() == 0 else os.environ.get("USER", "")

    def connect(self, **changes: Any) -> Any:
        """A PyMySQL connection, by default as the load's user."""
        options = {"user": USER, "password": PASSWORD, "database": DATABASE, "autocommit": True}
        return pymysql.connect(unix_socket=self.socket, **{**options, **changes})

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        """Run one statement; all its rows."""
        connection = self.connect()
        try:
            cursor = connection.cursor()
            cursor.execute(sql)
            return list(cursor.fetchall())
        finally:
            connection.close()

    def value(self, sql: str) -> Any:
        """The first column of the first row."""
        return self.query(sql)[0][0]

    def drop_tables(self) -> None:
        """Empty the database."""
        with self.connect(database=None) as connection:
            connection.cursor().execute(f"DROP DATABASE IF EXISTS {DATABASE}")
        with self.connect(database=None) as connection:
            connection.cursor().execute(f"CREATE DATABASE {DATABASE}")

    @property
    def pid(self) -> int:
        """The server's process id."""
        assert self._process
        return self._process.pid

    def send_signal(self, number: int) -> None:
        """Send a signal, such as SIGSTOP and SIGCONT."""
        os.kill(self.pid, number)

    def stop(self, number: int = signal.SIGTERM) -> None:
        """End the server and wait for it."""
        if self._process and self._process.poll() is None:
            self.send_signal(signal.SIGCONT)
            self.send_signal(number)
            self._process.wait(timeout=60)
