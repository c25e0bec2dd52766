"""Where labs keep their state, and the lock that makes their life orderly.

    <root>/<lab>/lab.json       what the lab is, written before anything is made
                 inventory.yml  an ordinary Ansible inventory, written last
                 keys/          the lab's client key and known_hosts (light, vm)
                 hosts/<host>/  a host's private files: sshd config and log, a guest's disks
    <root>/made.json            what was made on this machine outside <root> for all labs

`root` is /var/lib/fleetmark-lab for root, and below the user's state directory otherwise.
"""

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import yaml

from fleetmark.errors import InfrastructureError
from fleetmark.lab.spec import LabSpec, check_name
from fleetmark.lab.vm_spec import VmSpec
from fleetmark.store import write_atomic, write_json

_VERSION = 2


@dataclass(frozen=True)
class LabHost:
    """One host of a lab. `port` is the DBMS's."""

    name: str
    group: str
    address: str
    port: int = 3306


@dataclass(frozen=True)
class LabState:
    """A lab as it was asked for, and what was chosen for it. `subnet` is empty for `local`."""

    spec: LabSpec
    subnet: str
    hosts: list[LabHost] = field(default_factory=list)


def root() -> Path:
    """The directory of all labs of this user."""
    if os.geteuid() == 0:
        return Path("/var/lib/fleetmark-lab")
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(state) / "fleetmark-lab"


def directory(name: str) -> Path:
    """The directory of one lab. Raises ConfigError for a name that cannot be one."""
    check_name(name)
    return root() / name


def inventory_path(name: str) -> Path:
    """The lab's inventory file; it exists while the lab is up."""
    return directory(name) / "inventory.yml"


def host_directory(name: str, host: str) -> Path:
    """The private directory of one host."""
    return directory(name) / "hosts" / host


def names() -> list[str]:
    """The labs that are there, whole or half, sorted."""
    if not root().is_dir():
        return []
    return sorted(p.name for p in root().iterdir() if p.is_dir())


def subnets() -> list[str]:
    """The subnets of all labs that are there."""
    found = []
    for name in names():
        with contextlib.suppress(InfrastructureError):
            lab = read(name)
            if lab is not None and lab.subnet:
                found.append(lab.subnet)
    return found


@contextmanager
def lock() -> Iterator[None]:
    """Only one lab of this user is made or removed at a time, so no two choose one subnet."""
    try:
        root().mkdir(parents=True, exist_ok=True, mode=0o700)
        # The directory itself is locked: a lock file would be one more thing to leave behind.
        handle = os.open(root(), os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise InfrastructureError(f"cannot use {root()}: {error.strerror}") from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def save(state: LabState) -> None:
    """Write lab.json."""
    write_json(directory(state.spec.name) / "lab.json", {"version": _VERSION, **asdict(state)})


def read(name: str) -> LabState | None:
    """A lab's state; None when there is none, or when it was cut off before it was written."""
    try:
        stored = json.loads((directory(name) / "lab.json").read_text())
    except (OSError, ValueError):
        return None
    if stored.get("version") != _VERSION:
        raise InfrastructureError(
            f"lab {name!r} was made by another version of Fleetmark",
            next_step=f"remove it: fleetmark lab down {name}",
        )
    hosts = [LabHost(**host) for host in stored["hosts"]]
    spec = LabSpec(**{**stored["spec"], "vm": VmSpec.decode(stored["spec"]["vm"])})
    return LabState(spec, stored["subnet"], hosts)


def write_inventory(state: LabState, common: dict[str, Any], hosts: dict[str, Any]) -> Path:
    """Write the inventory: variables of all hosts, and those of each host."""
    children = {
        group: {"hosts": {name: hosts[name] for name in members}}
        for group, members in state.spec.groups.items()
    }
    path = inventory_path(state.spec.name)
    head = f"# Made by: fleetmark lab up {state.spec.name}\n---\n"
    document = {"all": {"vars": common, "children": children}}
    write_atomic(path, (head + yaml.safe_dump(document, sort_keys=False)).encode())
    return path
