"""Disposable virtual machines for tests: QEMU guests with a kernel and disks of their own."""

import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from fleetmark import inventory, lab
from fleetmark.errors import InfrastructureError
from fleetmark.inventory import Fleet
from fleetmark.lab import vm_apt, vm_image


@dataclass(frozen=True)
class VmFleet:
    """A lab of guests that is up."""

    name: str
    inventory: Path
    fleet: Fleet

    def ssh(self, host: str, command: str) -> str:
        """What a shell command prints on a guest; the test fails when the command does."""
        done = self.try_ssh(host, command)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout.strip()

    def try_ssh(self, host: str, command: str) -> subprocess.CompletedProcess[str]:
        """A shell command on a guest, whatever comes of it."""
        there = self.fleet.hosts[host]
        options = ["-o", f"ProxyCommand={there.proxy_command}", "-o", "BatchMode=yes"]
        options += ["-o", f"UserKnownHostsFile={there.known_hosts_file}"]
        options += ["-o", "StrictHostKeyChecking=yes", "-i", there.key_file]
        return subprocess.run(
            ["ssh", *options, f"{there.user}@{there.address}", command],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    def disk(self, host: str, label: str) -> tuple[str, Path]:
        """Serial and backing file of a guest's disk."""
        status = lab.status(self.name)
        assert status is not None
        machine = next(each for each in status.hosts if each.name == host)
        assert machine.vm is not None
        return next(each for each in machine.vm.disks.items() if each[0].endswith(f"-{label}"))


def why_no_guests(spec: lab.LabSpec) -> str:
    """Why guests cannot be made here; empty when they can."""
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        return "virtual machines in a namespace of their own need root on Linux"
    if lab.default_kind() != "light":
        return "virtual machines need the right to make network namespaces"
    if not Path("/dev/net/tun").exists():
        return "virtual machines need /dev/net/tun"
    missing = lab.missing_packages(spec)
    if missing:
        return f"not installed: {', '.join(missing)} (scripts/install-host-packages --for-vm-labs)"
    try:
        vm_apt.release()
    except InfrastructureError as error:
        return str(error)
    return ""


def ready_image() -> None:
    """Make the guests' root image if it is missing; skips where guests cannot be made."""
    spec = lab.LabSpec("t-image", "vm", 1, 0)
    if why := why_no_guests(spec):
        pytest.skip(why)
    vm_image.ready(spec.vm.packages, _tell)


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


@contextmanager
def vm_lab_of(db: int, load: int, vm: lab.VmSpec | None = None) -> Iterator[VmFleet]:
    """A lab with a name of its own, taken down at the end; skips where it cannot be made."""
    spec = lab.LabSpec(f"t-{secrets.token_hex(4)}", "vm", db, load, vm or lab.VmSpec())
    if why := why_no_guests(spec):
        pytest.skip(why)
    path = lab.up(spec, _tell)
    try:
        yield VmFleet(spec.name, path, inventory.load(path))
    finally:
        lab.down(spec.name)
