"""What a lab is: its name, kind and hosts. Pure, so a plan can be made before the lab is up."""

import os
import re
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from fleetmark.errors import ConfigError
from fleetmark.inventory import Fleet, Host
from fleetmark.lab.vm_spec import VmSpec

Kind = Literal["light", "local", "vm"]

FIRST_LOCAL_PORT = 23306
MOST_HOSTS = 200
"""A light lab is one /24, and its bridge takes an address too."""

_NAME = re.compile(r"^[a-z0-9][a-z0-9-]{0,19}$")
_CAP_NET_ADMIN = 12
_CAP_SYS_ADMIN = 21
_PROGRAMS_OF_HOSTS = {
    "python3": "python3",
    "mariadbd": "mariadb-server",
    "sysbench": "sysbench",
    "fio": "fio",
}
_PROGRAMS_OF_LIGHT = {
    "ip": "iproute2",
    "unshare": "util-linux",
    "sshd": "openssh-server",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
}
_PROGRAMS_OF_VM = {
    "qemu-system-x86_64": "qemu-system-x86",
    "qemu-img": "qemu-utils",
    "mmdebstrap": "mmdebstrap",
    "mkfs.ext4": "e2fsprogs",
    "ip": "iproute2",
    "nsenter": "util-linux",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
}


@dataclass(frozen=True)
class LabSpec:
    """A fleet on this machine: `db` database hosts and `load` load hosts.

    `light` hosts are network namespaces with a real sshd each, and need root on Linux;
    `local` hosts share this machine without root, each with its own base directory and port;
    `vm` hosts are QEMU guests with a kernel and disks of their own, made as `vm` says, and need
    root on Linux.
    """

    name: str
    kind: Kind
    db: int = 1
    load: int = 1
    vm: VmSpec = field(default_factory=VmSpec)

    def __post_init__(self) -> None:
        check_name(self.name)
        if self.kind not in ("light", "local", "vm"):
            raise ConfigError(f"a lab is light, local or vm, not {self.kind!r}")
        if self.db < 0 or self.load < 0 or not 1 <= self.db + self.load <= MOST_HOSTS:
            raise ConfigError(
                f"a lab has 1 to {MOST_HOSTS} hosts, not {self.db} for db and {self.load} for load"
            )

    @property
    def groups(self) -> dict[str, list[str]]:
        """The hosts of each group, in order: db1, db2, …, load1, load2, …"""
        return {
            "db": [f"db{n}" for n in range(1, self.db + 1)],
            "load": [f"load{n}" for n in range(1, self.load + 1)],
        }

    @property
    def hosts(self) -> list[str]:
        """All hosts, in order."""
        return [host for members in self.groups.values() for host in members]


def check_name(name: str) -> None:
    """Raise ConfigError for a name that cannot be the name of a lab."""
    if not _NAME.match(name):
        raise ConfigError(
            f"{name!r} cannot be the name of a lab",
            next_step="use up to 20 small letters, digits and hyphens",
        )


def default_kind() -> Kind:
    """`light` where this process may make network namespaces, else `local`."""
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        return "local"
    status = Path("/proc/self/status").read_text()
    found = re.search(r"^CapEff:\s*([0-9a-f]+)$", status, re.MULTILINE)
    effective = int(found[1], 16) if found else 0
    both = 1 << _CAP_NET_ADMIN | 1 << _CAP_SYS_ADMIN
    return "light" if effective & both == both else "local"


def fleet(spec: LabSpec) -> Fleet:
    """The lab's fleet as it will be; addresses are only known once it is up."""
    address = "127.0.0.1" if spec.kind == "local" else ""
    hosts = {
        name: Host(
            name=name,
            address=address or name,
            connection="local" if spec.kind == "local" else "ssh",
            user="" if spec.kind == "local" else "root",
            db_address=address or name,
        )
        for name in spec.hosts
    }
    groups = {"all": spec.hosts, **spec.groups}
    return Fleet(source=f"lab {spec.name}", hosts=hosts, groups=groups)


def program(name: str) -> str | None:
    """Where a program is; the administrator's directories are searched as well."""
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin:/usr/bin:/bin")


def python() -> str:
    """The Python for Ansible and the agent on a lab's hosts: the system's where there is one."""
    return "/usr/bin/python3" if Path("/usr/bin/python3").exists() else sys.executable


def missing_packages(spec: LabSpec) -> list[str]:
    """The Debian packages that this machine lacks for such a lab, sorted.

    Light and local hosts share this machine's programs, so what they need is installed here;
    guests bring their own.
    """
    needed = dict(_PROGRAMS_OF_VM if spec.kind == "vm" else _PROGRAMS_OF_HOSTS)
    if spec.kind == "light":
        needed.update(_PROGRAMS_OF_LIGHT)
    return sorted({package for name, package in needed.items() if program(name) is None})
