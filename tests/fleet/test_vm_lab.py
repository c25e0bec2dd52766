"""One guest as roles need it: SMT, NVMe by serial, discard, data that outlives the plug."""

import contextlib
import dataclasses
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from vm_hosts import VmFleet, why_no_guests

from fleetmark import lab
from fleetmark.channel import open_channel
from fleetmark.errors import ConfigError, HostError
from fleetmark.lab import machine, state, vm_guest

pytestmark = pytest.mark.fleet

BIN = Path(sys.executable).parent
BOUND_SECONDS = 60.0


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + BOUND_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def traces(name: str) -> list[str]:
    """Everything on this machine that belongs to a lab."""
    links = subprocess.run(["ip", "-br", "link"], capture_output=True, text=True, check=True)
    found = [line.split()[0] for line in links.stdout.splitlines()]
    found += os.listdir("/run/netns") if Path("/run/netns").is_dir() else []
    found = [text for text in found if text.startswith(machine.prefix(name))]
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"/{name}/".encode() in (process / "cmdline").read_bytes():
                found.append(f"process {process.name}")
            if f"/{name}/" in (process / "mountinfo").read_text():
                found.append(f"mount of {process.name}")
    if state.directory(name).exists():
        found.append(str(state.directory(name)))
    return found


def test_a_guest_is_a_machine_with_systemd_and_two_threads_a_core(vm_lab: VmFleet) -> None:
    assert vm_lab.ssh("db1", "systemctl is-system-running; systemctl --failed -q") == "running"
    assert vm_lab.ssh("db1", "hostname; cat /proc/1/comm").split() == ["db1", "systemd"]
    told = json.loads(vm_lab.ssh("db1", "lscpu --json"))["lscpu"]
    cpu = {each["field"]: each["data"] for each in told}
    assert (cpu["CPU(s):"], cpu["Thread(s) per core:"], cpu["Core(s) per socket:"]) == (
        "4",
        "2",
        "2",
    )
    control = "/sys/devices/system/cpu/smt"
    assert vm_lab.ssh("db1", f"cat {control}/control {control}/active").split() == ["on", "1"]
    vm_lab.ssh("db1", f"echo off > {control}/control")
    try:
        online = "/sys/devices/system/cpu/online"
        assert vm_lab.ssh("db1", f"cat {control}/active {online}").split() == ["0", "0,2"]
    finally:
        vm_lab.ssh("db1", f"echo on > {control}/control")


def test_no_service_of_a_role_runs_before_the_role(vm_lab: VmFleet) -> None:
    names = "mariadb chrony prometheus-node-exporter prometheus-mysqld-exporter smartmontools"
    told = vm_lab.try_ssh("db1", f"systemctl is-active {names}")
    assert set(told.stdout.split()) == {"inactive"}
    programs = "mariadbd sysbench fio nvme smartctl chronyd mdadm lvm mkfs.xfs numactl ethtool sudo"
    assert len(vm_lab.ssh("db1", f"command -v {programs}").split()) == len(programs.split())


def test_disks_are_found_by_serial_and_one_holds_data(vm_lab: VmFleet) -> None:
    (empty, _), (data, _) = (vm_lab.disk("db1", label) for label in ("EMPTY", "DATA"))
    assert max(len(empty), len(data)) <= 20
    listed = json.loads(vm_lab.ssh("db1", "lsblk --json -d -o NAME,SERIAL,FSTYPE,TYPE"))
    disks = {each["serial"]: each["fstype"] for each in listed["blockdevices"]}
    assert (disks[empty], disks[data]) == (None, "ext4")
    by_id = "/dev/disk/by-id/nvme-QEMU_NVMe_Ctrl_"
    model = vm_lab.ssh("db1", f"nvme id-ctrl {by_id}{empty} -o json")
    assert json.loads(model)["sn"].strip() == empty
    told = vm_lab.ssh(
        "db1",
        f"mount -o ro,noload {by_id}{data} /mnt && cd /mnt && sha256sum -c --quiet SHA256SUMS"
        " && cut -d' ' -f1 SHA256SUMS; cd /; umount /mnt",
    )
    content = random.Random(data).randbytes(8 << 20)
    assert told == hashlib.sha256(content).hexdigest()


def test_a_delete_on_ext4_with_discard_shrinks_the_backing_file(vm_lab: VmFleet) -> None:
    serial, backing = vm_lab.disk("db1", "EMPTY")
    device = f"/dev/disk/by-id/nvme-QEMU_NVMe_Ctrl_{serial}"
    used = [backing.stat().st_blocks * 512]
    try:
        vm_lab.ssh("db1", f"mkfs.ext4 -q {device} && mount -o discard {device} /mnt")
        vm_lab.ssh("db1", "head -c 64M /dev/urandom > /mnt/large && sync -f /mnt")
        used.append(backing.stat().st_blocks * 512)
        vm_lab.ssh("db1", "rm /mnt/large && sync -f /mnt")
        wait_for(lambda: backing.stat().st_blocks * 512 < used[1] - (60 << 20))
    finally:
        vm_lab.ssh("db1", f"umount /mnt; wipefs -qa {device}; blkdiscard {device}")
    assert used[0] < 1 << 20
    assert used[1] > 64 << 20


def test_the_controller_and_ansible_reach_it_and_nothing_else_does(vm_lab: VmFleet) -> None:
    host = vm_lab.fleet.hosts["db1"]
    channel = open_channel(host)
    try:
        assert channel.run(["hostname"]).stdout == b"db1\n"
        channel.write("/root/there", b"one\ntwo\n")
        assert channel.read("/root/there", 4) == b"two\n"
    finally:
        channel.close()
    ping = subprocess.run(
        [BIN / "ansible", "-i", vm_lab.inventory, "all", "-m", "ping"],
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
    )
    assert ping.stdout.count('"ping": "pong"') == 1, ping.stdout + ping.stderr
    # The guest's whole world is one subnet, and this machine has no part in it.
    stored = state.read(vm_lab.name)
    assert stored is not None
    routes = json.loads(vm_lab.ssh("db1", "ip -j route"))
    assert [route["dst"] for route in routes] == [stored.subnet]
    here = subprocess.run(["ip", "-j", "address"], capture_output=True, text=True, check=True)
    assert host.address.rsplit(".", 1)[0] not in here.stdout


def test_another_host_key_is_refused(vm_lab: VmFleet, tmp_path: Path) -> None:
    host = vm_lab.fleet.hosts["db1"]
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "k"], check=True
    )
    key = " ".join((tmp_path / "k.pub").read_text().split()[:2])
    known_hosts = tmp_path / "known_hosts"
    known_hosts.write_text(f"{host.address} {key}\n")
    with pytest.raises(HostError, match=r"host key .* is not the one"):
        open_channel(dataclasses.replace(host, known_hosts_file=str(known_hosts)))


def test_status_tells_what_a_guest_is(vm_lab: VmFleet) -> None:
    done = subprocess.run(
        [BIN / "fleetmark", "lab", "status", vm_lab.name, "--json"],
        capture_output=True,
        text=True,
        check=True,
    )
    (told,) = json.loads(done.stdout)["labs"]
    assert (told["kind"], told["complete"]) == ("vm", True)
    (host,) = told["hosts"]
    assert (host["name"], host["alive"], host["processes"]) == ("db1", True, 1)
    assert host["address"] == vm_lab.fleet.hosts["db1"].address
    assert host["accel"] in ("kvm", "tcg")
    assert [serial.rsplit("-", 1)[1] for serial in host["disks"]] == ["EMPTY", "DATA"]
    assert "db1 login:" in Path(host["console"]).read_text()


def test_disks_outlive_the_plug(vm_lab: VmFleet) -> None:
    serial, backing = vm_lab.disk("db1", "EMPTY")
    device = f"/dev/disk/by-id/nvme-QEMU_NVMe_Ctrl_{serial}"
    boot_id = vm_lab.ssh("db1", "cat /proc/sys/kernel/random/boot_id")
    vm_lab.ssh("db1", f"echo kept | dd of={device} conv=fsync,notrunc status=none")
    vm_lab.ssh("db1", "echo root too > /root/kept && sync")
    lab.power_off(vm_lab.name, "db1", hard=True)
    status = lab.status(vm_lab.name)
    assert status is not None
    assert [(each.alive, each.processes) for each in status.hosts] == [(False, 0)]
    assert backing.read_bytes()[:5] == b"kept\n"
    with pytest.raises(ConfigError, match="is off"):
        lab.reboot(vm_lab.name, "db1", print)
    lab.power_on(vm_lab.name, "db1")
    with pytest.raises(ConfigError, match="is on already"):
        lab.power_on(vm_lab.name, "db1")
    assert vm_lab.ssh("db1", f"cat /root/kept; head -c 4 {device}") == "root too\nkept"
    assert vm_lab.ssh("db1", "cat /proc/sys/kernel/random/boot_id") != boot_id
    assert vm_lab.ssh("db1", "systemctl is-system-running") == "running"
    vm_lab.ssh("db1", f"wipefs -qa {device}; blkdiscard {device}")


def start_up(name: str) -> subprocess.Popen[str]:
    """`lab up` in a process of its own, and its guest boots."""
    if why := why_no_guests(lab.LabSpec(name, "vm", 1, 0)):
        pytest.skip(why)
    up = subprocess.Popen(
        [BIN / "fleetmark", "lab", "up", name, "--kind", "vm", "--hosts", "1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    # Written when all guests have been started.
    known_hosts = state.directory(name) / "keys" / "known_hosts"
    wait_for(lambda: known_hosts.exists() or up.poll() is not None)
    assert len(vm_guest.pids(name, "db1")) == 1
    return up


@pytest.mark.usefixtures("vm_image")
def test_an_up_that_was_killed_can_be_taken_down() -> None:
    up = start_up("t-vm-killed")
    try:
        up.kill()
        up.wait()
        status = lab.status("t-vm-killed")
        assert status is not None
        assert not status.complete
    finally:
        removed = lab.down("t-vm-killed")
    assert any(" processes of " in line for line in removed)
    assert traces("t-vm-killed") == []


@pytest.mark.usefixtures("vm_image")
def test_an_interrupted_up_removes_what_it_made() -> None:
    up = start_up("t-vm-interrupted")
    try:
        up.send_signal(signal.SIGINT)
        up.communicate(timeout=BOUND_SECONDS)
        assert up.returncode == 130
        assert traces("t-vm-interrupted") == []
    finally:
        lab.down("t-vm-interrupted")


@pytest.mark.usefixtures("vm_image")
def test_a_guest_that_dies_at_its_boot_is_named_with_evidence() -> None:
    up = start_up("t-vm-dies")
    try:
        for pid in vm_guest.pids("t-vm-dies", "db1"):
            os.kill(pid, signal.SIGKILL)
        _, said = up.communicate(timeout=BOUND_SECONDS)
        assert up.returncode == 3
        assert "db1: its QEMU has ended" in said
        assert "console:" in said
        assert "Traceback" not in said
        assert traces("t-vm-dies") == []
    finally:
        lab.down("t-vm-dies")
