"""A real sshd on the loopback address, for tests of the way to a host."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from fleetmark.inventory import Host

SSHD = shutil.which("sshd") or "/usr/sbin/sshd"


def needs_sshd() -> None:
    """Skip with a word where no sshd can be started."""
    if os.geteuid() != 0:
        pytest.skip("sshd needs root here")
    if not Path(SSHD).exists() or not shutil.which("ssh-keygen"):
        pytest.skip("openssh-server is not installed")


def make_key(path: Path) -> str:
    """A key pair; returns the public line."""
    path.unlink(missing_ok=True)
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "test", "-f", str(path)]
    subprocess.run(command, check=True)
    return path.with_suffix(".pub").read_text().strip()


@dataclass
class Server:
    """One sshd: stop and start it at will; `reinstall` gives it another host key."""

    directory: Path
    port: int
    process: subprocess.Popen[bytes] | None = None

    @property
    def known_hosts(self) -> Path:
        return self.directory / "known_hosts"

    def host(self, **changes: object) -> Host:
        values: dict[str, object] = {
            "name": "h1",
            "address": "127.0.0.1",
            "port": self.port,
            "user": "root",
            "key_file": str(self.directory / "client"),
            "known_hosts_file": str(self.known_hosts),
            "base_dir": str(self.directory / "base"),
        }
        return Host(**{**values, **changes})  # type: ignore[arg-type]

    def set_up(self) -> None:
        (self.directory / "authorized_keys").write_text(make_key(self.directory / "client") + "\n")
        self.learn(make_key(self.directory / "host"))
        (self.directory / "sshd_config").write_text(
            f"Port {self.port}\nListenAddress 127.0.0.1\nHostKey {self.directory}/host\n"
            f"AuthorizedKeysFile {self.directory}/authorized_keys\nPidFile none\nUsePAM no\n"
            "StrictModes no\nPasswordAuthentication no\nPermitRootLogin yes\n"
            "KbdInteractiveAuthentication no\nSubsystem sftp internal-sftp\n"
        )

    def learn(self, public: str) -> None:
        self.known_hosts.write_text(f"# ours\n[127.0.0.1]:{self.port} {public}\n")

    def start(self) -> None:
        Path("/run/sshd").mkdir(exist_ok=True)
        self.process = subprocess.Popen(
            [SSHD, "-D", "-e", "-f", str(self.directory / "sshd_config")],
            stderr=(self.directory / "log").open("ab"),
            start_new_session=True,
        )
        limit = time.monotonic() + 10
        while time.monotonic() < limit:
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            time.sleep(0.02)
        raise AssertionError((self.directory / "log").read_text())

    def drop_sessions(self) -> None:
        """Kill the processes that serve connections; the listener goes on."""
        assert self.process is not None
        path = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        for pid in path.read_text().split():
            os.kill(int(pid), signal.SIGKILL)

    def stop(self) -> None:
        if self.process is not None:
            self.drop_sessions()
            self.process.kill()
            self.process.wait()
            self.process = None


@contextlib.contextmanager
def running(directory: Path, port: int) -> Iterator[Server]:
    needs_sshd()
    server = Server(directory, port)
    server.set_up()
    server.start()
    try:
        yield server
    finally:
        server.stop()
