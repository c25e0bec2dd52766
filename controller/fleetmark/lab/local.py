"""Local hosts: they share this machine and need no root.

Each has its own base directory and DBMS port; Ansible's local connection reaches them.
"""

import errno
import socket
from pathlib import Path

from fleetmark import processes
from fleetmark.errors import InfrastructureError
from fleetmark.lab import state
from fleetmark.lab.spec import FIRST_LOCAL_PORT, LabSpec, python
from fleetmark.lab.state import LabHost, LabState

_LAST_PORT = 65535


def choose(spec: LabSpec) -> LabState:
    """Give each host the first port that is free on this machine."""
    hosts = []
    port = FIRST_LOCAL_PORT
    for group, members in spec.groups.items():
        for name in members:
            port = _first_free(port)
            hosts.append(LabHost(name, group, "127.0.0.1", port))
            port += 1
    return LabState(spec, "", hosts)


def create(lab: LabState, host: LabHost) -> None:
    """Make one host's directories."""
    base = _base(lab.spec.name, host.name)
    base.mkdir(parents=True, mode=0o700)


def finish(lab: LabState) -> Path:
    """Write the inventory."""
    common = {
        "ansible_connection": "local",
        "ansible_python_interpreter": python(),
        "fleetmark_db_address": "127.0.0.1",
    }
    hosts = {}
    for host in lab.hosts:
        base = _base(lab.spec.name, host.name)
        hosts[host.name] = {
            "fleetmark_base_dir": str(base),
            "fleetmark_data_dir": str(base / "data"),
            "fleetmark_db_port": host.port,
        }
    return state.write_inventory(lab, common, hosts)


def destroy(name: str) -> list[str]:
    """End every process that works in the lab's directory; what was removed."""
    directory = state.directory(name)
    count = processes.end_all(lambda: processes.inside_directory(directory), f"lab {name}")
    return [f"{count} processes"] if count else []


def alive(name: str, host: LabHost) -> bool:
    """Whether the host is as it was made."""
    return _base(name, host.name).is_dir()


def pids(name: str, host: LabHost) -> set[int]:
    """The host's processes."""
    return processes.inside_directory(state.host_directory(name, host.name))


def _base(name: str, host: str) -> Path:
    return state.host_directory(name, host) / "fleetmark"


def _first_free(port: int) -> int:
    for candidate in range(port, _LAST_PORT + 1):
        with socket.socket() as probe:
            # As servers do: a port of which only old connections are left is free.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", candidate))
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
            else:
                return candidate
    raise InfrastructureError(f"no port from {port} to {_LAST_PORT} is free on 127.0.0.1")
