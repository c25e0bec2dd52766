"""The life of a lab: up, status, down."""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fleetmark.errors import ConfigError, InfrastructureError
from fleetmark.lab import light, local, machine, state, vm, vm_accel, vm_guest, vm_image
from fleetmark.lab.spec import LabSpec, check_name, missing_packages
from fleetmark.lab.vm import VmHostStatus


@dataclass(frozen=True)
class LabHostStatus:
    """One host of a lab: whether it can be reached, and how many processes it runs.

    `vm` says more about a guest, whose processes on this machine are its QEMU.
    """

    name: str
    group: str
    address: str
    alive: bool
    processes: int
    vm: VmHostStatus | None = None


@dataclass(frozen=True)
class LabStatus:
    """A lab and its hosts. `complete` means that it came up to its end."""

    name: str
    kind: str
    inventory: Path
    complete: bool
    hosts: list[LabHostStatus]


def up(spec: LabSpec, progress: Callable[[str], None]) -> Path:
    """Make a lab and return its inventory. `progress` gets one plain line a stage.

    What was made is removed again when it fails or is interrupted. Raises ConfigError when the
    lab is there already, InfrastructureError when the machine lacks something.
    """
    _check_machine(spec)
    if spec.kind == "vm":
        return _up_vm(spec, progress)
    with state.lock():
        _refuse_second(spec.name)
        try:
            return _make(spec, progress)
        except BaseException:
            _remove(spec.name)
            raise


def down(name: str) -> list[str]:
    """Remove a lab, whole or half, whether its processes live or not; what was removed."""
    check_name(name)
    if not state.root().is_dir() and not _may_be_light():
        return []
    with state.lock():
        return _remove(name)


def status(name: str) -> LabStatus | None:
    """How a lab is; None when there is none."""
    if not state.directory(name).is_dir():
        return None
    lab = state.read(name)
    inventory = state.inventory_path(name)
    if lab is None:
        return LabStatus(name, "unknown", inventory, False, [])
    hosts = []
    for host in lab.hosts:
        if lab.spec.kind == "light":
            alive = light.answers(host.address)
            count = len(machine.pids(f"{machine.prefix(name)}-{host.name}"))
        elif lab.spec.kind == "vm":
            count = len(vm_guest.pids(name, host.name))
            alive = count > 0 and vm.answers(name, host)
        else:
            alive, count = local.alive(name, host), len(local.pids(name, host))
        more = vm.status(lab, host) if lab.spec.kind == "vm" else None
        hosts.append(LabHostStatus(host.name, host.group, host.address, alive, count, more))
    return LabStatus(name, lab.spec.kind, inventory, inventory.is_file(), hosts)


def _up_vm(spec: LabSpec, progress: Callable[[str], None]) -> Path:
    """The slow parts, image and boot, keep no other lab waiting."""
    with state.lock():
        _refuse_second(spec.name)
    image = vm_image.ready(spec.vm.packages, progress)
    boot = vm_guest.Boot(image, vm_accel.choose(spec, image, progress))
    with state.lock():
        _refuse_second(spec.name)
        try:
            lab = vm.choose(spec)
            state.save(lab)
            for host in lab.hosts:
                progress(f"host {host.name} at {host.address}")
            vm.create(lab, boot)
        except BaseException:
            _remove(spec.name)
            raise
    try:
        return vm.finish(lab, progress)
    except BaseException:
        with state.lock():
            _remove(spec.name)
        raise


def _refuse_second(name: str) -> None:
    if state.directory(name).exists():
        raise ConfigError(
            f"the lab {name!r} is there already",
            next_step=f"remove it (fleetmark lab down {name}) or choose another name",
        )


def _make(spec: LabSpec, progress: Callable[[str], None]) -> Path:
    """The state goes to disk before anything else is made, so that a half lab is seen."""
    if spec.kind == "local":
        lab = local.choose(spec)
        state.save(lab)
        for host in lab.hosts:
            progress(f"host {host.name}, DBMS port {host.port}")
            local.create(lab, host)
        return local.finish(lab)
    lab = light.choose(spec)
    state.save(lab)
    progress(f"network {lab.subnet}")
    light.create_bridge(lab)
    for host in lab.hosts:
        progress(f"host {host.name} at {host.address}")
        light.create(lab, host)
    return light.finish(lab)


def _remove(name: str) -> list[str]:
    """Processes first, then what they held, then the directory: it names the rest."""
    removed = machine.destroy(name) if _may_be_light() else []
    directory = state.directory(name)
    if directory.is_dir():
        removed += local.destroy(name)
        _unmount_below(directory)
        shutil.rmtree(directory)
        removed.append(str(directory))
    if not state.names():
        if _may_be_light():
            machine.clear()
        with contextlib.suppress(OSError):
            state.root().rmdir()
    return removed


def _may_be_light() -> bool:
    return (
        os.geteuid() == 0 and shutil.which("ip", path="/usr/sbin:/sbin:/usr/bin:/bin") is not None
    )


def _unmount_below(directory: Path) -> None:
    """Never delete through a mount: what is mounted there is not the lab's to delete."""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        point = line.split()[4].encode().decode("unicode_escape")
        if point.startswith(f"{directory}/"):
            done = subprocess.run(["umount", point], capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise InfrastructureError(f"cannot unmount {point}", evidence=done.stderr.strip())


def _check_machine(spec: LabSpec) -> None:
    if spec.kind != "local" and os.geteuid() != 0:
        raise InfrastructureError(
            f"a lab of kind {spec.kind} needs root",
            next_step="run it as root, or use --kind local",
        )
    missing = missing_packages(spec)
    if missing:
        flag = " --for-vm-labs" if spec.kind == "vm" else ""
        raise InfrastructureError(
            f"this machine lacks what the hosts of a lab need: {', '.join(missing)}",
            next_step=f"apt-get install {' '.join(missing)}"
            f" (scripts/install-host-packages{flag} does so and starts no service)",
        )
