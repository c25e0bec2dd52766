"""This machine as a host (`ansible_connection: local`)."""

import contextlib
import os
import select
import subprocess
import time
from pathlib import Path
from typing import IO

from fleetmark.channel import shell_files
from fleetmark.channel.protocol import Completed
from fleetmark.errors import HostError
from fleetmark.inventory import Host


class LocalConversation:
    """A program on this machine that answers line by line."""

    def __init__(self, host: str, argv: list[str]) -> None:
        self._host = host
        try:
            self._process = subprocess.Popen(
                argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
        except OSError as error:
            raise HostError(f"cannot start {argv[0]}: {error.strerror}", host=host) from None

    def ask(self, line: str, timeout_seconds: float = 10.0) -> str:
        """Send one line and read one line."""
        stdin, stdout = _pipes(self._process)
        try:
            stdin.write(line.encode() + b"\n")
            stdin.flush()
        except OSError:
            raise HostError("the program has ended its side", host=self._host) from None
        # One answer stands in the pipe at a time, so a whole line is there when a byte is.
        if not select.select([stdout], [], [], timeout_seconds)[0]:
            raise HostError(f"no answer within {timeout_seconds:g} s", host=self._host)
        answer = stdout.readline()
        if not answer.endswith(b"\n"):
            raise HostError("the program has ended its side", host=self._host)
        return answer.decode().rstrip("\n")

    def close(self) -> None:
        """End the program's input and wait for it."""
        stdin, stdout = _pipes(self._process)
        with contextlib.suppress(OSError):  # it has gone already, which is what was asked
            stdin.close()
        stdout.close()
        try:
            self._process.wait(5.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _pipes(process: subprocess.Popen[bytes]) -> tuple[IO[bytes], IO[bytes]]:
    assert process.stdin is not None and process.stdout is not None  # noqa: PT018
    return process.stdin, process.stdout


class LocalChannel:
    """Runs programs and reaches files on this machine."""

    def __init__(self, host: Host) -> None:
        self.host = host.name
        self._become = ["sudo", "-n", "--"] if host.become and os.geteuid() else []

    def run(
        self, argv: list[str], *, stdin: bytes = b"", timeout_seconds: float = 60.0
    ) -> Completed:
        """Run a program to its end."""
        started = time.monotonic()
        try:
            done = subprocess.run(
                [*self._become, *argv],
                input=stdin,
                capture_output=True,
                timeout=timeout_seconds,
                check=False,
                # Not in the controller's group: Ctrl-C on the terminal is for the controller.
                start_new_session=True,
            )
        except FileNotFoundError:
            raise HostError(f"there is no program {argv[0]}", host=self.host) from None
        except OSError as error:
            raise HostError(f"cannot start {argv[0]}: {error.strerror}", host=self.host) from None
        except subprocess.TimeoutExpired:
            raise HostError(
                f"{_short(argv)} did not end within {timeout_seconds:g} s", host=self.host
            ) from None
        return Completed(done.returncode, done.stdout, done.stderr, time.monotonic() - started)

    def converse(self, argv: list[str]) -> LocalConversation:
        """Start a program and keep its input and output open."""
        return LocalConversation(self.host, [*self._become, *argv])

    def read(self, path: str, offset: int = 0, limit: int = -1) -> bytes:
        """Bytes of a file from an offset. Raises FileNotFoundError."""
        if self._become:
            argv = shell_files.read_argv(path, offset, limit)
            return shell_files.read_result(self.run(argv), self.host, path)
        try:
            with Path(path).open("rb") as handle:
                handle.seek(offset)
                return handle.read(limit)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise HostError(f"cannot read {path}: {error.strerror}", host=self.host) from None

    def write(self, path: str, data: bytes, mode: int = 0o600) -> None:
        """Write a file, its directories made where they are missing."""
        if self._become:
            done = self.run(shell_files.write_argv(path, mode), stdin=data)
            shell_files.write_result(done, self.host, path)
            return
        beside = f"{path}.{os.getpid()}.tmp"
        try:
            Path(path).parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as f:
                f.write(data)
            os.replace(beside, path)
        except OSError as error:
            raise HostError(f"cannot write {path}: {error.strerror}", host=self.host) from None

    def close(self) -> None:
        """Nothing is kept open."""


def _short(argv: list[str]) -> str:
    return " ".join(argv)[:120]
