"""Files of another user: read and written by a shell under sudo.

SFTP and the controller's own file calls act as the user who logged in; with `become` the
agent's files belong to root.
"""

import secrets

from fleetmark.channel.protocol import Completed
from fleetmark.errors import HostError

_ABSENT = 44
_READ = (
    f'[ -e "$1" ] || exit {_ABSENT}; if [ "$3" -ge 0 ];'
    ' then tail -c "+$2" -- "$1" | head -c "$3"; else tail -c "+$2" -- "$1"; fi'
)
_WRITE = (
    'umask 077; mkdir -p -- "$(dirname -- "$1")" && cat > "$1.$3"'
    ' && chmod "$2" -- "$1.$3" && mv -f -- "$1.$3" "$1"'
)


def read_argv(path: str, offset: int, limit: int) -> list[str]:
    """The program that prints part of a file."""
    return ["sh", "-c", _READ, "read", path, str(offset + 1), str(limit)]


def read_result(done: Completed, host: str, path: str) -> bytes:
    """What `read_argv` printed. Raises FileNotFoundError or HostError."""
    if done.returncode == _ABSENT:
        raise FileNotFoundError(path)
    if done.returncode:
        raise HostError(f"cannot read {path}", host=host, evidence=_words(done))
    return done.stdout


def write_argv(path: str, mode: int) -> list[str]:
    """The program that writes its input to a file, whole or not at all."""
    return ["sh", "-c", _WRITE, "write", path, f"{mode:o}", f"{secrets.token_hex(4)}.tmp"]


def write_result(done: Completed, host: str, path: str) -> None:
    """Raises HostError when `write_argv` failed."""
    if done.returncode:
        raise HostError(f"cannot write {path}", host=host, evidence=_words(done))


def _words(done: Completed) -> str:
    return done.stderr.decode(errors="replace").strip()[-500:]
