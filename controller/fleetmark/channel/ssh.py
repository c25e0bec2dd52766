"""A host over SSH: one connection, re-opened when it drops, and one SFTP session on it."""

import logging
import secrets
import shlex
import socket
import stat
import threading
import time
from collections.abc import Callable
from typing import TypeVar

import fabric
import paramiko

from fleetmark.channel import shell_files
from fleetmark.channel.failures import CONNECTION_ERRORS, explain
from fleetmark.channel.known_hosts import files
from fleetmark.channel.protocol import Completed, ConnectionLost
from fleetmark.channel.proxy import Proxy
from fleetmark.errors import HostError
from fleetmark.inventory import Host

CONNECT_TIMEOUT_SECONDS = 10.0
FILE_TIMEOUT_SECONDS = 10.0
_KEEPALIVE_SECONDS = 5
_CHUNK_BYTES = 1 << 20

T = TypeVar("T")

# It logs what it raises as well, and without a handler Python prints that: tracebacks.
logging.getLogger("paramiko").addHandler(logging.NullHandler())


class SshConversation:
    """A program on the host that answers line by line."""

    def __init__(self, host: str, session: paramiko.Channel) -> None:
        self._host = host
        self._session = session
        self._buffer = b""

    def ask(self, line: str, timeout_seconds: float = 10.0) -> str:
        """Send one line and read one line."""
        try:
            self._session.settimeout(timeout_seconds)
            self._session.sendall(line.encode() + b"\n")
            while b"\n" not in self._buffer:
                data = self._session.recv(4096)
                if not data:
                    raise HostError("the program has ended its side", host=self._host)
                self._buffer += data
        except CONNECTION_ERRORS as error:
            raise HostError(
                f"no answer within {timeout_seconds:g} s", host=self._host, evidence=str(error)
            ) from None
        answer, _, self._buffer = self._buffer.partition(b"\n")
        return answer.decode()

    def close(self) -> None:
        """End the program's input; the server ends the session."""
        try:
            self._session.shutdown_write()
            self._session.close()
        except CONNECTION_ERRORS:
            pass  # the connection has gone, and the program with it


class SshChannel:
    """The channel to one host over SSH."""

    def __init__(self, host: Host) -> None:
        self.host = host.name
        self._where = host
        self._lock = threading.RLock()
        self._sftp_lock = threading.RLock()
        self._connection: fabric.Connection | None = None
        self._sftp: paramiko.SFTPClient | None = None
        self._proxy: Proxy | None = None

    def connect(self) -> None:
        """Open the connection now. Raises HostError that says why it cannot be opened."""
        self._transport()

    def run(
        self, argv: list[str], *, stdin: bytes = b"", timeout_seconds: float = 60.0
    ) -> Completed:
        """Run a program to its end.

        A connection that has dropped before the program starts is opened again; one that drops
        while it runs is ConnectionLost, since only the caller knows whether to repeat it.
        """
        started = time.monotonic()
        deadline = started + timeout_seconds
        session = self._start(argv)
        try:
            out, err = _communicate(session, stdin, deadline)
            return Completed(session.recv_exit_status(), out, err, time.monotonic() - started)
        except TimeoutError:
            raise HostError(
                f"{shlex.join(argv)[:160]} did not end within {timeout_seconds:g} s",
                host=self.host,
            ) from None
        except CONNECTION_ERRORS as error:
            self.close()
            raise ConnectionLost(
                "the connection was lost while a program ran",
                host=self.host,
                evidence=f"{shlex.join(argv)[:160]}: {error or type(error).__name__}",
            ) from None
        finally:
            session.close()

    def converse(self, argv: list[str]) -> SshConversation:
        """Start a program and keep its input and output open."""
        return SshConversation(self.host, self._start(argv))

    def read(self, path: str, offset: int = 0, limit: int = -1) -> bytes:
        """Bytes of a file from an offset. Raises FileNotFoundError."""
        if self._where.become:
            argv = shell_files.read_argv(path, offset, limit)
            return shell_files.read_result(self._again(lambda: self.run(argv)), self.host, path)
        return self._with_sftp(lambda sftp: _sftp_read(sftp, path, offset, limit), path)

    def write(self, path: str, data: bytes, mode: int = 0o600) -> None:
        """Write a file beside its place and move it there, its directories made."""
        if self._where.become:
            argv = shell_files.write_argv(path, mode)
            done = self._again(lambda: self.run(argv, stdin=data))
            shell_files.write_result(done, self.host, path)
        else:
            self._with_sftp(lambda sftp: _sftp_write(sftp, path, data, mode), path)

    def close(self) -> None:
        """End the connection."""
        with self._lock:
            connection, self._connection, self._sftp = self._connection, None, None
            proxy, self._proxy = self._proxy, None
        if connection is not None:
            connection.close()
        if proxy is not None:
            proxy.close()

    def _transport(self) -> paramiko.Transport:
        with self._lock:
            if self._connection is not None:
                transport: paramiko.Transport | None = self._connection.client.get_transport()
                if transport is not None and transport.is_active():
                    return transport
                self.close()
            proxy = Proxy(self._where.proxy_command) if self._where.proxy_command else None
            connection = _connection(self._where, proxy)
            try:
                connection.open()
            except (*CONNECTION_ERRORS, OSError) as error:
                connection.close()
                words = proxy.close() if proxy is not None else ""
                raise explain(error, self._where, words) from None
            opened: paramiko.Transport = connection.client.get_transport()
            opened.set_keepalive(_KEEPALIVE_SECONDS)
            _tune(opened)
            self._connection, self._proxy = connection, proxy
            return opened

    def _start(self, argv: list[str]) -> paramiko.Channel:
        command = shlex.join(["sudo", "-n", "--", *argv] if self._where.become else argv)

        def start() -> paramiko.Channel:
            session = self._transport().open_session(timeout=CONNECT_TIMEOUT_SECONDS)
            session.settimeout(CONNECT_TIMEOUT_SECONDS)
            session.exec_command(command)
            return session

        try:
            return start()
        except CONNECTION_ERRORS:
            self.close()
        try:
            return start()
        except CONNECTION_ERRORS as error:
            self.close()
            raise explain(error, self._where) from None

    def _again(self, action: Callable[[], T]) -> T:
        """Repeat an action that may be repeated once over a fresh connection."""
        try:
            return action()
        except HostError:
            self.close()
            return action()

    def _with_sftp(self, action: Callable[[paramiko.SFTPClient], T], path: str) -> T:
        """Reading and whole-file writing may be repeated, so a lost connection costs one retry."""
        # The library matches answers to requests for one caller at a time.
        with self._sftp_lock:
            try:
                return action(self._open_sftp())
            except FileNotFoundError:
                raise
            except PermissionError:
                raise HostError(
                    f"no permission for {path}",
                    host=self.host,
                    next_step="log in as the owner of the base directory, or set ansible_become",
                ) from None
            except CONNECTION_ERRORS:
                self.close()
            try:
                return action(self._open_sftp())
            except FileNotFoundError:
                raise
            except CONNECTION_ERRORS as error:
                self.close()
                raise HostError(
                    f"cannot reach {path}", host=self.host, evidence=str(error)
                ) from None

    def _open_sftp(self) -> paramiko.SFTPClient:
        transport = self._transport()
        if self._sftp is None:
            session = transport.open_session(timeout=CONNECT_TIMEOUT_SECONDS)
            session.settimeout(FILE_TIMEOUT_SECONDS)
            session.invoke_subsystem("sftp")
            self._sftp = paramiko.SFTPClient(session)
            session.settimeout(FILE_TIMEOUT_SECONDS)
        return self._sftp


def _connection(host: Host, proxy: Proxy | None) -> fabric.Connection:
    arguments: dict[str, object] = {
        "timeout": CONNECT_TIMEOUT_SECONDS,
        "banner_timeout": CONNECT_TIMEOUT_SECONDS,
        "auth_timeout": CONNECT_TIMEOUT_SECONDS,
    }
    if host.key_file:
        arguments |= {"key_filename": host.key_file, "look_for_keys": False, "allow_agent": False}
    if proxy is not None:
        arguments["sock"] = proxy.socket
    connection = fabric.Connection(
        host.address,
        user=host.user or None,
        port=host.port if host.port != 22 else None,
        # None leaves it to the user's own SSH configuration.
        gateway=False if proxy is not None else None,
        connect_kwargs=arguments,
    )
    verified: object = connection
    while isinstance(verified, fabric.Connection):
        verified.client.set_missing_host_key_policy(paramiko.RejectPolicy())
        for path in files(host.known_hosts_file):
            try:
                verified.client.load_host_keys(str(path))
            except OSError as error:
                raise HostError(
                    f"cannot read the host keys in {path}: {error.strerror}", host=host.name
                ) from None
        verified = verified.gateway
    return connection


def _tune(transport: paramiko.Transport) -> None:
    """Small packets at once, for the clock; a silent peer is given up within 15 s."""
    sock = transport.sock
    if isinstance(sock, socket.socket) and sock.family != socket.AF_UNIX:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 15_000)


def _communicate(session: paramiko.Channel, stdin: bytes, deadline: float) -> tuple[bytes, bytes]:
    if stdin:
        session.settimeout(max(0.0, deadline - time.monotonic()))
        session.sendall(stdin)
    session.shutdown_write()
    parts: list[bytes] = []
    for receive in (session.recv, session.recv_stderr):
        data = b""
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError
            session.settimeout(left)
            chunk = receive(_CHUNK_BYTES)
            if not chunk:
                break
            data += chunk
        parts.append(data)
    if not session.status_event.wait(max(0.0, deadline - time.monotonic())):
        raise TimeoutError
    if session.exit_status == -1:
        raise EOFError("no exit status came")
    return parts[0], parts[1]


def _sftp_read(sftp: paramiko.SFTPClient, path: str, offset: int, limit: int) -> bytes:
    with sftp.open(path, "rb") as handle:
        size = (handle.stat().st_size or 0) - offset
        wanted = max(0, size if limit < 0 else min(size, limit))
        data = b""
        handle.seek(offset)
        while len(data) < wanted:
            chunk = handle.read(min(_CHUNK_BYTES, wanted - len(data)))
            if not chunk:
                break
            data += chunk
        return data


def _sftp_write(sftp: paramiko.SFTPClient, path: str, data: bytes, mode: int) -> None:
    beside = f"{path}.{secrets.token_hex(4)}.tmp"
    try:
        handle = sftp.open(beside, "wx")
    except FileNotFoundError:
        _sftp_make_directory(sftp, path.rpartition("/")[0])
        handle = sftp.open(beside, "wx")
    with handle:
        handle.chmod(mode)
        handle.write(data)
    sftp.posix_rename(beside, path)


def _sftp_make_directory(sftp: paramiko.SFTPClient, path: str) -> None:
    try:
        if stat.S_ISDIR(sftp.stat(path).st_mode or 0):
            return
    except FileNotFoundError:
        pass
    parent = path.rpartition("/")[0]
    if parent:
        _sftp_make_directory(sftp, parent)
    sftp.mkdir(path, 0o700)
