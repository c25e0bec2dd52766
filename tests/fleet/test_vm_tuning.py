"""Roles on a real kernel: SMT off, ext4 with discard on the disk that is meant, data unharmed."""

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from vm_hosts import VmFleet
from waiting import wait_for

from fleetmark import provision
from fleetmark.provision import HostStatus, Provisioning
from fleetmark.tuning import HostTuning, role_variables

pytestmark = pytest.mark.fleet

SMT = "/sys/devices/system/cpu/smt/control"


@dataclass(frozen=True)
class Guest:
    """The session's guest, left as it was found."""

    fleet: VmFleet
    directory: Path

    def ssh(self, command: str) -> str:
        return self.fleet.ssh("db1", command)

    def device(self, label: str) -> str:
        return f"/dev/disk/by-id/nvme-QEMU_NVMe_Ctrl_{self.fleet.disk('db1', label)[0]}"

    def digest(self, label: str) -> str:
        """Of all that was ever written to a disk, by its file on this machine."""
        self.ssh("sync")
        with self.fleet.disk("db1", label)[1].open("rb") as handle:
            return allocated_digest(handle)

    def storage(self, *labels: str, mount: str = "/data", **more: Any) -> dict[str, Any]:
        disks = [{"serial": self.fleet.disk("db1", label)[0]} for label in labels]
        return {"mount": mount, "label": mount.strip("/"), "disks": disks, **more}

    def provision(self, asked: dict[str, Any], **extra: Any) -> HostStatus:
        tuning = {"db1": role_variables(HostTuning.model_validate(asked))}
        variables = {"provision_tuning": tuning, **extra}
        work = Provisioning(
            self.fleet.inventory, ["db1"], self.directory, variables, tags=("tuning",)
        )
        return provision.run(work).hosts["db1"]

    def restore(self) -> HostStatus:
        work = Provisioning(self.fleet.inventory, ["db1"], self.directory, playbook="restore.yml")
        return provision.run(work).hosts["db1"]


def allocated_digest(handle: BinaryIO) -> str:
    """Of a sparse file: where its parts begin, and what is in them."""
    digest, end = hashlib.sha256(), 0
    size = handle.seek(0, os.SEEK_END)
    while end < size:
        try:
            start = os.lseek(handle.fileno(), end, os.SEEK_DATA)
        except OSError:
            break
        end = os.lseek(handle.fileno(), start, os.SEEK_HOLE)
        digest.update(f"{start}-{end}:".encode())
        handle.seek(start)
        digest.update(handle.read(end - start))
    return digest.hexdigest()


@pytest.fixture
def guest(vm_lab: VmFleet, tmp_path: Path) -> Iterator[Guest]:
    made = Guest(vm_lab, tmp_path / "evidence")
    fstab = made.ssh("cat /etc/fstab")
    try:
        yield made
    finally:
        made.ssh(f"umount -q /data; echo on > {SMT}; rm -rf /etc/fleetmark")
        made.ssh(f"wipefs -qa {made.device('EMPTY')}; blkdiscard {made.device('EMPTY')}")
        made.ssh(f"echo '{fstab}' > /etc/fstab; systemctl daemon-reload")


def test_smt_off_and_ext4_with_discard_and_all_of_it_only_once(guest: Guest) -> None:
    """One story, since each stage needs the one before."""
    asked = {
        "cpu": {"smt": "off", "governor": "performance", "transparent_hugepages": "never"},
        "storage": [guest.storage("EMPTY")],
    }
    before = guest.digest("DATA")
    first = guest.provision(asked)
    assert (first.message, first.changed) == ("", 2)
    siblings = "/sys/devices/system/cpu/cpu*/topology/thread_siblings_list"
    assert guest.ssh(f"cat {SMT} {siblings}").split() == ["off", "0", "2"]
    (mounted,) = json.loads(guest.ssh("findmnt -J -o SOURCE,FSTYPE,OPTIONS /data"))["filesystems"]
    assert mounted["fstype"] == "ext4"
    assert {"noatime", "discard"} <= set(mounted["options"].split(","))
    assert guest.ssh(f"realpath {guest.device('EMPTY')}") == mounted["source"]
    assert guest.ssh("systemctl is-enabled fleetmark-cpu.service") == "enabled"

    backing = guest.fleet.disk("db1", "EMPTY")[1]
    guest.ssh("head -c 32M /dev/urandom > /data/large && sync -f /data")
    full_bytes = backing.stat().st_blocks * 512
    guest.ssh("rm /data/large && sync -f /data")
    wait_for(lambda: backing.stat().st_blocks * 512 < full_bytes - (30 << 20), "discard", 60)

    again = guest.provision(asked)
    assert (again.message, again.changed) == ("", 0)
    assert guest.digest("DATA") == before

    back = guest.restore()
    assert back.message == ""
    assert guest.ssh(f"cat {SMT}; findmnt -no FSTYPE /data").split() == ["on", "ext4"]
    assert guest.fleet.try_ssh("db1", "systemctl is-enabled fleetmark-cpu.service").returncode


def test_a_disk_with_data_is_refused_and_unharmed(guest: Guest) -> None:
    serial = guest.fleet.disk("db1", "DATA")[0]
    before = guest.digest("DATA")
    wrong = [{"host": "load1", "serial": serial}]
    refused = guest.provision({"storage": [guest.storage("DATA")]}, confirm_wipe=wrong)
    assert "refused" in refused.message
    assert "ext4 labelled 'data'" in refused.message
    assert f"confirm_wipe {{host: db1, serial: {serial}}}" in refused.message
    several = {"mount": "/data", "disks": [{"model": "QEMU NVMe*"}]}
    ambiguous = guest.provision({"storage": [several]})
    assert "2 disks match model QEMU NVMe*, 1 are wanted" in ambiguous.message
    assert serial in ambiguous.message
    # Half of an array is no reason to lose the other half.
    both = guest.storage("EMPTY", "DATA", raid="1")
    assert "refused" in guest.provision({"storage": [both]}).message
    assert guest.digest("DATA") == before
    assert guest.ssh("cat /proc/mdstat | grep -c active || true") == "0"
