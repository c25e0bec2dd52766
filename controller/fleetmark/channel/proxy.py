"""A ProxyCommand: a program of this machine that carries the bytes of an SSH connection.

The library's own one spins when its program has ended; here the program is the other end of a
socket pair, so its end is the end of the connection.
"""

import socket
import subprocess
import tempfile

_END_SECONDS = 5.0
_LAST_BYTES = 1000


class Proxy:
    """The program, running. `socket` is where its bytes come and go."""

    def __init__(self, command: str) -> None:
        self.socket, other = socket.socketpair()
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 (closed by close)
        with other:
            # As ssh does: by the shell, which the program replaces.
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", f"exec {command}"],
                stdin=other.fileno(),
                stdout=other.fileno(),
                stderr=self._said,
                # Ctrl-C is for the controller: a run that ends still has to reach its hosts.
                start_new_session=True,
            )

    def close(self) -> str:
        """End the program; the last that it said."""
        self.socket.close()
        try:
            self._process.wait(timeout=0.2)
        except subprocess.TimeoutExpired:
            self._process.terminate()
            try:
                self._process.wait(timeout=_END_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._said.seek(0)
        said = self._said.read().decode(errors="replace").strip()[-_LAST_BYTES:]
        self._said.close()
        return said
