"""Reading a growing file of JSON lines from where the last reading ended."""

import os
from collections.abc import Iterator
from pathlib import Path

from fleetmark_agent.journal import split_lines

_CHUNK_BYTES = 1 << 20


class Tail:
    """The whole lines that a file has gained since the last call.

    Holds one offset, not the file: memory does not grow with it. A last line without its end
    is left for the next call. A file that has become shorter is read from its start.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._offset = 0

    def lines(self) -> Iterator[bytes]:
        """New lines, in order; none when the file is not there (yet)."""
        try:
            handle = self.path.open("rb")
        except FileNotFoundError:
            return
        with handle:
            if handle.seek(0, os.SEEK_END) < self._offset:
                self._offset = 0
            handle.seek(self._offset)
            rest = b""
            while chunk := handle.read(_CHUNK_BYTES):
                lines, taken = split_lines(rest + chunk)
                rest = (rest + chunk)[taken:]
                self._offset += taken
                yield from lines

    def rewind(self) -> None:
        """Read from the start at the next call."""
        self._offset = 0
