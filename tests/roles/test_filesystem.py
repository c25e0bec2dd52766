"""The role filesystem with real mkfs and mount, on loop devices of this machine."""

import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import role_modules  # noqa: F401 (makes the next imports possible)
import yaml
from ansible.module_utils import fleetmark_format as formats
from ansible.module_utils.fleetmark_disks import DiskError
from loop_disks import LoopDisk, call, loop_disk

from fleetmark import provision
from fleetmark.provision import HostStatus, Provisioning

pytestmark = pytest.mark.fleet

PLAYBOOK = """
- hosts: all
  gather_facts: false
  tasks:
    - name: Apply the role
      ansible.builtin.include_role: {name: filesystem, tasks_from: "{{ entry | default('main') }}"}
"""


@dataclass
class Place:
    """A host that is this machine, whose fstab and mount points are the test's own."""

    directory: Path
    disk: LoopDisk

    def __post_init__(self) -> None:
        self.fstab.write_text("# keep me\nUUID=1 /other ext4 defaults 0 0\n")
        (self.directory / "role.yml").write_text(PLAYBOOK)

    @property
    def fstab(self) -> Path:
        return self.directory / "fstab"

    @property
    def mount(self) -> Path:
        return self.directory / "data"

    def apply(
        self,
        check: bool = False,
        group: dict[str, Any] | None = None,
        extra: dict[str, Any] | None = None,
        **changes: Any,
    ) -> HostStatus:
        variables = {
            "ansible_connection": "local",
            "ansible_python_interpreter": "/usr/bin/python3",
            "filesystem_become": False,
            "filesystem_packages": False,
            "filesystem_disks": [{"serial": self.disk.serial}],
            "filesystem_mount": str(self.mount),
            "filesystem_fstab": str(self.fstab),
            "filesystem_records": str(self.directory / "records"),
            **changes,
        }
        inventory = self.directory / "inventory.yml"
        inventory.write_text(
            yaml.safe_dump({"all": {"hosts": {"db1": variables}, "vars": group or {}}})
        )
        work = Provisioning(
            inventory,
            ["db1"],
            self.directory / "evidence",
            extra or {},
            check,
            str(self.directory / "role.yml"),
        )
        return provision.run(work).hosts["db1"]

    def consented(self, **changes: Any) -> HostStatus:
        consent = [{"host": "db1", "serial": self.disk.serial}]
        return self.apply(extra={"confirm_wipe": consent}, **changes)

    def make(self, consented: bool = False, **changes: Any) -> list[str]:
        """What the role's module does, in this process: what was done. Raises DiskError."""
        asked = self.wanted(**changes)
        return formats.apply(asked, self.decide(consented, **changes), dry=False)

    def decide(self, consented: bool = False, **changes: Any) -> formats.Decision:
        consent = [{"host": "db1", "serial": self.disk.serial}] if consented else []
        return formats.decide(self.wanted(**changes), "db1", consent)

    def wanted(self, **changes: Any) -> formats.Wanted:
        asked: dict[str, Any] = {
            "choices": [{"serial": self.disk.serial}],
            "mount": str(self.mount),
            "filesystem": "ext4",
            "raid": "none",
            "lvm": False,
            "label": "fleetmark",
            "mkfs_options": [],
            "mount_options": ["noatime", "discard"],
            "owner": "",
            "fstab": str(self.fstab),
            "records": str(self.directory / "records"),
        }
        return formats.Wanted(**{**asked, **changes})

    def options(self) -> tuple[str, set[str]]:
        """Type and options of what is mounted, as the kernel says."""
        told = json.loads(call("findmnt", "--json", "-o", "FSTYPE,OPTIONS", str(self.mount)))
        (only,) = told["filesystems"]
        return only["fstype"], set(only["options"].split(","))

    def uuid(self) -> str:
        return call("blkid", "--probe", "-o", "value", "-s", "UUID", self.disk.device).strip()


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with loop_disk(tmp_path / "disk.img") as disk:
        yield Place(tmp_path, disk)


def test_check_then_once_then_again(place: Place) -> None:
    """One story, since each stage needs the one before."""
    dry = place.apply(check=True)
    assert (dry.ready, dry.changed) == (True, 1)
    assert "format" in (place.directory / "evidence" / "stdout.txt").read_text()
    assert not place.disk.path.read_bytes().strip(b"\0"), "check mode wrote something"
    assert not place.mount.exists()

    first = place.apply()
    assert (first.message, first.changed) == ("", 1)
    filesystem, options = place.options()
    assert filesystem == "ext4"
    assert {"noatime", "discard"} <= options
    uuid = place.uuid()
    assert place.fstab.read_text().splitlines() == [
        "# keep me",
        "UUID=1 /other ext4 defaults 0 0",
        f"UUID={uuid} {place.mount} ext4 noatime,discard,nofail 0 2",
    ]
    record = json.loads((place.directory / "records" / f"{uuid}.json").read_text())
    assert record["disks"] == [place.disk.serial]
    assert record["before"] == {place.disk.serial: "empty"}

    (place.mount / "ledger").write_text("all of it")
    again = place.apply()
    assert (again.ready, again.changed) == (True, 0)
    assert place.apply(entry="verify").ready
    # Consent does not make a right file system anew.
    assert place.consented().changed == 0
    assert (place.mount / "ledger").read_text() == "all of it"


def test_a_label_is_no_proof(place: Place) -> None:
    """Somebody's disk may well have the label that we were asked for."""
    place.disk.call("mkfs.ext4", "-q", "-L", "fleetmark")
    before = place.disk.digest()
    with pytest.raises(DiskError, match=r"refused: .* ext4 labelled 'fleetmark'"):
        place.make()
    assert place.disk.digest() == before
    assert not place.mount.exists()


def test_a_file_system_that_the_user_mounts_there_is_taken_as_it_is(place: Place) -> None:
    place.disk.call("mkfs.ext4", "-q", "-L", "mine")
    place.fstab.write_text(f"UUID={place.uuid()} {place.mount} ext4 noatime,discard,nofail 0 2\n")
    assert place.make() == [f"mount it at {place.mount}"]
    assert "labelled" not in str(place.decide())
    assert call("blkid", "-p", "-o", "value", "-s", "LABEL", place.disk.device) == "mine\n"


def test_after_the_loss_of_fstab_our_own_is_known_by_its_uuid(place: Place) -> None:
    place.make()
    (place.mount / "ledger").write_text("all of it")
    call("umount", str(place.mount))
    place.fstab.write_text("")
    assert place.make() == [
        f"write the line of {place.mount} into {place.fstab}",
        f"mount it at {place.mount}",
    ]
    assert (place.mount / "ledger").read_text() == "all of it"
    assert place.make() == []


def test_discard_gives_the_space_back_to_the_disk_below(place: Place) -> None:
    place.make()
    large = place.mount / "large"
    with large.open("wb") as handle:
        handle.write(os.urandom(16 << 20))
        os.fsync(handle.fileno())
    full_bytes = place.disk.path.stat().st_blocks * 512
    large.unlink()
    # Space is given back when the journal has committed, which takes more than one call.
    deadline = time.monotonic() + 30
    while place.disk.path.stat().st_blocks * 512 > full_bytes - (12 << 20):
        assert time.monotonic() < deadline
        call("sync", "-f", str(place.mount))
        call("sync")
        time.sleep(0.05)


def test_data_is_refused_and_unharmed_until_its_serial_is_named(place: Place) -> None:
    place.disk.call("mkfs.ext4", "-q", "-L", "ledger")
    before = place.disk.digest()
    refused = place.apply()
    assert "refused" in refused.message
    assert "ext4 labelled 'ledger'" in refused.message
    assert f"confirm_wipe {{host: db1, serial: {place.disk.serial}}}" in refused.message
    assert not place.mount.exists()
    assert "ledger" not in place.fstab.read_text()
    assert place.disk.digest() == before

    consent = [{"host": "db1", "serial": place.disk.serial}]
    by_inventory = place.apply(group={"confirm_wipe": consent}, confirm_wipe=consent)
    assert "refused" in by_inventory.message, "an inventory gave consent"
    wrong = place.apply(extra={"confirm_wipe": [{"host": "db2", "serial": place.disk.serial}]})
    assert "refused" in wrong.message
    broken = place.apply(extra={"confirm_wipe": True})
    assert "confirm_wipe is a list of {host, serial}" in broken.message
    assert place.disk.digest() == before

    wiped = place.consented()
    assert (wiped.message, wiped.changed) == ("", 1)
    assert place.options()[0] == "ext4"
    record = json.loads((place.directory / "records" / f"{place.uuid()}.json").read_text())
    assert record["before"] == {place.disk.serial: "ext4 labelled 'ledger'"}


def test_a_mounted_disk_and_a_full_directory_are_refused(place: Place) -> None:
    place.disk.call("mkfs.ext4", "-q")
    elsewhere = place.directory / "elsewhere"
    elsewhere.mkdir()
    call("mount", place.disk.device, str(elsewhere))
    (elsewhere / "ledger").write_text("all of it")
    with pytest.raises(DiskError, match=f"is mounted at {elsewhere}"):
        place.make(consented=True)
    assert (elsewhere / "ledger").read_text() == "all of it"
    call("umount", str(elsewhere))

    before = place.disk.digest()
    place.mount.mkdir()
    (place.mount / "precious").write_text("here")
    with pytest.raises(DiskError, match="is not empty; mounting there would hide what is in it"):
        place.make(consented=True)
    assert (place.mount / "precious").read_text() == "here"
    assert place.disk.digest() == before


def test_disks_that_are_not_there_or_too_many_are_named(place: Place) -> None:
    with pytest.raises(DiskError, match="no disk with serial S-NONE; there are: ") as caught:
        place.make(choices=[{"serial": "S-NONE"}])
    assert place.disk.serial in str(caught.value)
    with pytest.raises(DiskError, match="is chosen twice"):
        place.make(choices=[{"serial": place.disk.serial}] * 2, raid="1")
    with pytest.raises(DiskError, match="RAID0 needs at least 2 disks, 1 found"):
        place.make(raid="0")
    with loop_disk(place.directory / "second.img") as second:
        both = [{"serial": place.disk.serial}, {"serial": second.serial}]
        with pytest.raises(DiskError, match=r"say raid \(0, 1, 10\) or lvm"):
            place.make(choices=both)
    assert not place.disk.path.read_bytes().strip(b"\0")


def test_one_refused_disk_of_two_leaves_the_other_untouched(place: Place) -> None:
    with loop_disk(place.directory / "second.img") as second:
        second.call("mkfs.ext4", "-q")
        both = [{"serial": place.disk.serial}, {"serial": second.serial}]
        before = second.digest()
        with pytest.raises(DiskError, match="refused"):
            place.make(consented=True, choices=both, lvm=True)
        assert second.digest() == before
        assert not place.disk.path.read_bytes().strip(b"\0")


def test_a_file_system_made_otherwise_is_not_silently_taken(place: Place) -> None:
    place.make(mkfs_options=["-m", "0"])
    before = place.uuid()
    with pytest.raises(DiskError, match=r"made with the options \[-m 0\], asked for are \[-m 1\]"):
        place.make(consented=True, mkfs_options=["-m", "1"])
    with pytest.raises(DiskError, match="is mounted at"):
        place.make(consented=True, filesystem="xfs")
    assert place.uuid() == before


def test_the_words_of_mkfs_reach_the_user(place: Place) -> None:
    with pytest.raises(DiskError, match=r"mkfs.ext4 .* failed: .*nonsense"):
        place.make(mkfs_options=["-O", "nonsense"])
    assert not place.mount.exists()


def test_owner_and_mount_options_follow_without_a_new_file_system(place: Place) -> None:
    place.make()
    uuid = place.uuid()
    assert place.make(owner="nobody") == [f"give {place.mount} to nobody"]
    assert place.mount.owner() == "nobody"
    assert place.make(owner="nobody") == []
    with pytest.raises(DiskError, match="there is no user fleetmark-none"):
        place.make(owner="fleetmark-none")
    done = place.make(owner="nobody", mount_options=["noatime", "commit=30"])
    assert done[-1] == "mount it anew with noatime,commit=30"
    assert "commit=30" in place.options()[1]
    assert "noatime,commit=30,nofail" in place.fstab.read_text()
    assert place.uuid() == uuid


def test_verify_names_what_is_not_as_asked(place: Place) -> None:
    assert "there is no such file system" in place.apply(entry="verify").message
    place.make()
    assert place.apply(entry="verify").ready
    call("mount", "-o", "remount,nodiscard", str(place.mount))
    place.fstab.write_text("")
    said = place.apply(entry="verify").message
    assert "mount option discard is not in effect" in said
    assert "does not mount it by its UUID" in said


def test_look_tells_the_fate_of_each_disk(place: Place) -> None:
    def fate(consented: bool = False) -> tuple[str, str]:
        decision = place.decide(consented)
        (disk,) = decision.volume.disks
        return decision.fate(disk), decision.findings[disk.name].words if decision.format else ""

    assert fate() == ("format", "empty")
    place.disk.call("mkfs.ext4", "-q", "-L", "ledger")
    assert fate() == ("refuse", "ext4 labelled 'ledger'")
    assert fate(consented=True) == ("wipe", "ext4 labelled 'ledger'")
    answers = place.directory / "answers"
    done = place.apply(entry="look", filesystem_destination=str(answers))
    assert (done.message, done.changed) == ("", 0)
    (path,) = answers.glob("disks*.json")
    (told,) = json.loads(path.read_text())
    assert (told["serial"], told["fate"]) == (place.disk.serial, "refuse")
    assert "refused" in told["why"]
    place.make(consented=True)
    assert fate() == ("keep", "")
