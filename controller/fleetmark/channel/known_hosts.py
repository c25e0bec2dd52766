"""Which files say who a host is, and where in them its line stands."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from paramiko.hostkeys import HostKeyEntry, HostKeys
from paramiko.ssh_exception import SSHException

_USER = Path("~/.ssh/known_hosts")
_SYSTEM = Path("/etc/ssh/ssh_known_hosts")


@dataclass(frozen=True)
class KnownLine:
    """One line of a known_hosts file that names a host."""

    path: Path
    line: int
    key_type: str


def files(known_hosts_file: str) -> list[Path]:
    """The host's own file where the inventory names one, else the user's and the system's."""
    if known_hosts_file:
        return [Path(known_hosts_file).expanduser()]
    return [path for path in (_USER.expanduser(), _SYSTEM) if path.is_file()]


def lookup_name(address: str, port: int) -> str:
    """The name under which known_hosts lists a host."""
    return address if port == 22 else f"[{address}]:{port}"


def lines_of(paths: list[Path], name: str) -> Iterator[KnownLine]:
    """Every line that names the host, hashed names included."""
    for path in paths:
        for number, text in enumerate(path.read_text(errors="replace").splitlines(), 1):
            entry = _entry(text)
            if entry and any(_matches(known, name) for known in entry.hostnames or []):
                yield KnownLine(path, number, entry.key.get_name() if entry.key else "?")


def _entry(text: str) -> HostKeyEntry | None:
    try:
        return HostKeyEntry.from_line(text)
    except SSHException:
        return None


def _matches(known: str, name: str) -> bool:
    if known.startswith("|1|"):
        return HostKeys.hash_host(name, known) == known
    return known == name
