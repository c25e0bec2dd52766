"""Vm hosts: QEMU guests with a kernel, systemd, SMT and NVMe disks of their own.

    namespace fm<id>-vm   has no way out; all below is in it
       bridge br0         10.213.N.1/24
       tap0, tap1, …      one a guest
       QEMU               one a guest, 10.213.N.2 and on

Whoever wants to reach a guest enters the namespace: SSH does by a ProxyCommand (`vm_relay`).
Host keys are made before the boot, so that they are verified from the first connection on.
"""

import ipaddress
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from fleetmark.errors import ConfigError, HostError
from fleetmark.lab import machine, state, vm_guest, vm_relay
from fleetmark.lab.machine import ip, new_key
from fleetmark.lab.spec import LabSpec
from fleetmark.lab.state import LabHost, LabState
from fleetmark.lab.vm_guest import Boot, namespace

_BOOT_SECONDS = 300.0
_BOOT_SECONDS_A_HOST = 60.0
"""Under TCG a boot costs half a minute of CPU, and all guests share this machine's."""
_OFF_SECONDS = 180.0
_COMMAND_SECONDS = 60.0
_SHORT_COMMAND_SECONDS = 15.0
_GREETING_SECONDS = 3.0
_POLL_SECONDS = 0.5
_SSH_LOST = 255


@dataclass(frozen=True)
class VmHostStatus:
    """One guest: its accelerator, console log, and the serial and backing file of each disk."""

    accel: str
    console: Path
    disks: dict[str, Path] = field(default_factory=dict)


def choose(spec: LabSpec) -> LabState:
    """Choose a subnet that no lab uses, and the hosts' addresses."""
    subnet = machine.free_subnet()
    members = [(group, name) for group, names in spec.groups.items() for name in names]
    hosts = [LabHost(name, group, str(subnet[n])) for n, (group, name) in enumerate(members, 2)]
    return LabState(spec, str(subnet), hosts)


def create(lab: LabState, boot: Boot) -> None:
    """Make network and guests, and power them on; they boot side by side."""
    machine.prepare()
    name, net = lab.spec.name, namespace(lab.spec.name)
    keys = state.directory(name) / "keys"
    keys.mkdir(mode=0o700)
    new_key(keys / "id_ed25519", f"fleetmark lab {name}")
    ip("netns", "add", net)
    ip("-n", net, "link", "set", "lo", "up")
    ip("-n", net, "link", "add", "br0", "type", "bridge")
    gateway = f"{ipaddress.ip_network(lab.subnet)[1]}/24"
    ip("-n", net, "address", "add", gateway, "dev", "br0")
    ip("-n", net, "link", "set", "br0", "addrgenmode", "none", "up")
    for host in lab.hosts:
        tap = vm_guest.tap(lab, host)
        ip("-n", net, "tuntap", "add", "dev", tap, "mode", "tap")
        ip("-n", net, "link", "set", tap, "addrgenmode", "none", "master", "br0", "up")
        vm_guest.create(lab, host, boot)
        vm_guest.start(name, host.name)


def finish(lab: LabState, progress: Callable[[str], None]) -> Path:
    """Wait until every guest has booted, then write the inventory.

    Raises HostError with the console's last lines for a guest that does not boot.
    """
    name = lab.spec.name
    directory = state.directory(name)
    known_hosts = directory / "keys" / "known_hosts"
    lines = []
    for host in lab.hosts:
        key = state.host_directory(name, host.name) / "ssh_host_ed25519_key.pub"
        lines.append(f"{host.address} {' '.join(key.read_text().split()[:2])}\n")
    known_hosts.write_text("".join(lines))
    started = time.monotonic()
    deadline = started + _BOOT_SECONDS + _BOOT_SECONDS_A_HOST * len(lab.hosts)
    for host in lab.hosts:
        _wait_booted(lab, host, deadline)
        progress(f"host {host.name} has booted after {time.monotonic() - started:.0f} s")
    common = {
        "ansible_user": "root",
        "ansible_ssh_private_key_file": str(directory / "keys" / "id_ed25519"),
        "ansible_ssh_common_args": shlex.join(_ssh_options(name)),
        "ansible_python_interpreter": "/usr/bin/python3",
    }
    hosts = {host.name: {"ansible_host": host.address} for host in lab.hosts}
    return state.write_inventory(lab, common, hosts)


def status(lab: LabState, host: LabHost) -> VmHostStatus:
    """What a guest is made of."""
    name, directory = lab.spec.name, state.host_directory(lab.spec.name, host.name)
    disks = {
        vm_guest.serial(name, host.name, disk.label): directory / f"{disk.label}.raw"
        for disk in lab.spec.vm.disks
    }
    return VmHostStatus(vm_guest.accel(name, host.name), vm_guest.console(name, host.name), disks)


def answers(lab: str, host: LabHost) -> bool:
    """Whether an SSH server greets there."""
    with subprocess.Popen(
        [*_relay(lab), host.address, "22"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as relay:
        assert relay.stdout is not None
        timer = threading.Timer(_GREETING_SECONDS, relay.kill)
        timer.start()
        try:
            return relay.stdout.read(4) == b"SSH-"
        finally:
            timer.cancel()
            relay.kill()


def reboot(name: str, host_name: str, progress: Callable[[str], None]) -> None:
    """Let a guest boot anew, asked by its own systemd; wait until it has."""
    lab, host = _find(name, host_name)
    _must_run(name, host)
    before = _boot_id(lab, host)
    if not before:
        raise HostError("SSH does not let us in", host=host.name)
    progress(f"host {host.name} reboots")
    _ask_and_leave(lab, host, "systemctl reboot")
    deadline = time.monotonic() + _BOOT_SECONDS + _BOOT_SECONDS_A_HOST
    while _boot_id(lab, host) in ("", before):
        if time.monotonic() > deadline:
            _raise_not_booted(lab, host, "it has not rebooted in time")
        time.sleep(_POLL_SECONDS)
    _wait_booted(lab, host, deadline)


def power_off(name: str, host_name: str, *, hard: bool = False) -> None:
    """Switch a guest off: by its own systemd, or `hard` as if the plug was pulled."""
    lab, host = _find(name, host_name)
    _must_run(name, host)
    if hard:
        vm_guest.kill(name, host.name)
        return
    _ask_and_leave(lab, host, "systemctl poweroff")
    deadline = time.monotonic() + _OFF_SECONDS
    while vm_guest.pids(name, host.name):
        if time.monotonic() > deadline:
            raise HostError(
                f"it is still on {_OFF_SECONDS:.0f} s after it was asked to power off",
                host=host.name,
                evidence=vm_guest.tail(vm_guest.console(name, host.name)),
                next_step=f"pull the plug: fleetmark lab power-off {name} {host.name} --hard",
            )
        time.sleep(_POLL_SECONDS)


def power_on(name: str, host_name: str) -> None:
    """Switch a guest on again, with the same disks; wait until it has booted."""
    lab, host = _find(name, host_name)
    if vm_guest.pids(name, host.name):
        raise ConfigError(f"host {host.name} of lab {name!r} is on already")
    vm_guest.start(name, host.name)
    _wait_booted(lab, host, time.monotonic() + _BOOT_SECONDS + _BOOT_SECONDS_A_HOST)


def _find(name: str, host_name: str) -> tuple[LabState, LabHost]:
    lab = state.read(name)
    if lab is None:
        raise ConfigError(f"there is no lab {name!r}", next_step="fleetmark lab status lists them")
    if lab.spec.kind != "vm":
        raise ConfigError(
            f"the hosts of lab {name!r} are {lab.spec.kind} hosts, which have no power switch",
            next_step="make a lab with --kind vm",
        )
    for host in lab.hosts:
        if host.name == host_name:
            return lab, host
    raise ConfigError(
        f"lab {name!r} has no host {host_name!r}",
        next_step=f"its hosts are {', '.join(lab.spec.hosts)}",
    )


def _must_run(name: str, host: LabHost) -> None:
    if not vm_guest.pids(name, host.name):
        raise ConfigError(
            f"host {host.name} of lab {name!r} is off",
            next_step=f"switch it on: fleetmark lab power-on {name} {host.name}",
        )


def _wait_booted(lab: LabState, host: LabHost, deadline: float) -> None:
    """Until its SSH server lets us in and systemd has started all that it starts."""
    name = lab.spec.name
    while True:
        if answers(name, host):
            done = _ssh(lab, host, "systemctl is-system-running --wait")
            said = done.stdout.strip()
            if done.returncode == 0 or said == "degraded":
                return
            if "verification failed" in done.stderr or "Permission denied" in done.stderr:
                raise HostError("SSH refuses", host=host.name, evidence=done.stderr.strip())
        if not vm_guest.pids(name, host.name):
            _raise_not_booted(lab, host, "its QEMU has ended")
        if time.monotonic() > deadline:
            _raise_not_booted(lab, host, "it has not booted in time")
        time.sleep(_POLL_SECONDS)


def _raise_not_booted(lab: LabState, host: LabHost, message: str) -> None:
    directory = state.host_directory(lab.spec.name, host.name)
    raise HostError(
        message,
        host=host.name,
        evidence=f"console: {vm_guest.tail(directory / 'console.log')}\n"
        f"QEMU: {vm_guest.tail(directory / 'qemu.log', 3)}",
        next_step="is this machine's memory or CPU taken by something else?",
    )


def _boot_id(lab: LabState, host: LabHost) -> str:
    """Which boot this is; empty while nobody answers. A host that goes down leaves SSH hanging."""
    if not answers(lab.spec.name, host):
        return ""
    command = "cat /proc/sys/kernel/random/boot_id"
    return _ssh(lab, host, command, _SHORT_COMMAND_SECONDS).stdout.strip()


def _ask_and_leave(lab: LabState, host: LabHost, command: str) -> None:
    """The guest may cut the connection before it answers."""
    done = _ssh(lab, host, command)
    if done.returncode not in (0, _SSH_LOST):
        raise HostError(f"{command} failed", host=host.name, evidence=done.stderr.strip())


def _ssh(
    lab: LabState, host: LabHost, command: str, timeout_seconds: float = _COMMAND_SECONDS
) -> subprocess.CompletedProcess[str]:
    key = state.directory(lab.spec.name) / "keys" / "id_ed25519"
    argv = ["ssh", *_ssh_options(lab.spec.name), "-o", "BatchMode=yes", "-i", str(key)]
    argv += ["-o", "ConnectTimeout=30", f"root@{host.address}", command]
    try:
        return subprocess.run(
            argv,
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
            timeout=timeout_seconds,
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(argv, _SSH_LOST, "", "no answer in time")


def _ssh_options(name: str) -> list[str]:
    known_hosts = state.directory(name) / "keys" / "known_hosts"
    relay = " ".join([shlex.join(_relay(name)), "%h", "%p"])
    return [
        *("-o", f"ProxyCommand={relay}"),
        *("-o", f"UserKnownHostsFile={known_hosts}"),
        *("-o", "GlobalKnownHostsFile=/dev/null"),
        *("-o", "StrictHostKeyChecking=yes"),
        *("-o", "IdentitiesOnly=yes"),
    ]


def _relay(name: str) -> list[str]:
    net = machine.NETNS_DIR / namespace(name)
    return ["nsenter", f"--net={net}", sys.executable, "-I", "-S", str(vm_relay.__file__)]
