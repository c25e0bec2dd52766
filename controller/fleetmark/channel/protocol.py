"""What every way to a host must do."""

from dataclasses import dataclass
from typing import Protocol

from fleetmark.errors import HostError


class ConnectionLost(HostError):
    """The connection went while a program ran: nobody knows what became of the program."""


@dataclass(frozen=True)
class Completed:
    """What a program on a host came to."""

    returncode: int
    stdout: bytes
    stderr: bytes
    seconds: float


class Conversation(Protocol):
    """A program on the host that answers line by line (the clock exchange)."""

    def ask(self, line: str, timeout_seconds: float = 10.0) -> str:
        """Send one line and read one line. Raises HostError when no answer comes."""

    def close(self) -> None:
        """End the program's input and wait for it."""


class Channel(Protocol):
    """A way to one host. Every method may be called from several threads at once."""

    host: str

    def run(
        self, argv: list[str], *, stdin: bytes = b"", timeout_seconds: float = 60.0
    ) -> Completed:
        """Run a program to its end. Raises HostError when the host does not answer in time."""

    def converse(self, argv: list[str]) -> Conversation:
        """Start a program and keep its input and output open."""

    def read(self, path: str, offset: int = 0, limit: int = -1) -> bytes:
        """Bytes of a file from an offset; empty at its end. Raises FileNotFoundError."""

    def write(self, path: str, data: bytes, mode: int = 0o600) -> None:
        """Write a file, its directories made (0700) where they are missing."""

    def close(self) -> None:
        """End the connection."""
