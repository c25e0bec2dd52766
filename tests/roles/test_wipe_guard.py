"""The wipe guard on real block devices: what it refuses stays as it was, to the last byte."""

import contextlib
import struct
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import role_modules  # noqa: F401 (makes the next imports possible)
from ansible.module_utils import fleetmark_wipe_guard as guard
from ansible.module_utils.fleetmark_disks import Disk, DiskError, all_disks, choose
from loop_disks import SIZE_BYTES, LoopDisk, call, loop_disk

pytestmark = pytest.mark.fleet


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[LoopDisk]:
    with loop_disk(tmp_path / "disk.img") as made:
        yield made


def found(disk: LoopDisk) -> Disk:
    (one,) = choose({"serial": disk.serial}, all_disks())
    assert one.device == disk.device
    return one


def refusal(disk: LoopDisk, *consents: tuple[str, str]) -> str:
    """Why the guard refuses; empty when it does not."""
    there = found(disk)
    named = [{"host": host, "serial": serial} for host, serial in consents]
    try:
        guard.check(there, guard.look(there), "db1", named)
    except DiskError as error:
        return str(error)
    return ""


def write(disk: LoopDisk, offset_bytes: int, content: bytes) -> None:
    with open(disk.device, "r+b") as handle:
        handle.seek(offset_bytes)
        handle.write(content)


def partition(disk: LoopDisk) -> None:
    """An MBR with one Linux partition, 8 MiB from 1 MiB on."""
    entry = struct.pack("<B3sB3sII", 0, bytes(3), 0x83, bytes(3), 2048, 16384)
    write(disk, 446, entry + bytes(48) + b"\x55\xaa")
    call("blockdev", "--rereadpt", disk.device)


# A member of each is told by its signature, so the bytes are all that is needed.
LVM = b"LABELONE" + bytes([1] + [0] * 7) + bytes(8) + b"LVM2 001" + b"a" * 32
LUKS = b"LUKS\xba\xbe\x00\x01"
RAID = bytes.fromhex("fc4e2ba9") + bytes([1, 0, 0, 0])


CONTENTS: dict[str, tuple[Callable[[LoopDisk], None], str]] = {
    "ext4": (lambda disk: disk.call("mkfs.ext4", "-q", "-L", "ledger"), "ext4 labelled 'ledger'"),
    "swap": (lambda disk: disk.call("mkswap"), "swap"),
    "partitions": (partition, "partition table dos"),
    "LUKS": (lambda disk: write(disk, 0, LUKS), "LUKS"),
    "bytes at the start": (lambda disk: write(disk, 4000, b"x"), "first MiB is not all zeros"),
    "bytes at the end": (
        lambda disk: write(disk, SIZE_BYTES - 5, b"x"),
        "last MiB is not all zeros",
    ),
    "LVM": (lambda disk: write(disk, 512, LVM), "LVM2_member|first MiB"),
    "RAID": (lambda disk: write(disk, 4096, RAID), "raid|first MiB"),
}


@pytest.mark.parametrize("kind", list(CONTENTS))
def test_contents_are_refused_and_unharmed_and_only_their_own_name_frees_them(
    disk: LoopDisk, kind: str
) -> None:
    put, words = CONTENTS[kind]
    put(disk)
    before = disk.digest()
    said = refusal(disk)
    assert any(word in said for word in words.split("|")), said
    assert "refused" in said
    assert f"confirm_wipe {{host: db1, serial: {disk.serial}}}" in said
    other_host, other_serial = ("db2", disk.serial), ("db1", disk.serial + "0")
    assert refusal(disk, other_host, other_serial) == said
    assert refusal(disk, ("db1", disk.serial)) == ""
    assert disk.digest() == before


def test_an_empty_disk_is_free(disk: LoopDisk) -> None:
    there = found(disk)
    findings = guard.look(there)
    assert (findings.in_use, findings.contents, findings.words) == ([], [], "empty")
    assert refusal(disk) == ""


@contextlib.contextmanager
def mounted(disk: LoopDisk, tmp_path: Path) -> Iterator[Path]:
    point = tmp_path / "mnt"
    point.mkdir()
    disk.call("mkfs.ext4", "-q")
    call("mount", disk.device, str(point))
    try:
        yield point
    finally:
        call("umount", str(point))


def test_a_mounted_disk_is_refused_even_with_its_name(disk: LoopDisk, tmp_path: Path) -> None:
    with mounted(disk, tmp_path) as point:
        (point / "ledger").write_text("all of it")
        said = refusal(disk, ("db1", disk.serial))
        assert f"{disk.name} is mounted at {point}" in said
        assert "confirm_wipe does not help" in said
        assert (point / "ledger").read_text() == "all of it"


def test_swap_in_use_is_refused_even_with_its_name(disk: LoopDisk) -> None:
    disk.call("mkswap")
    done = subprocess.run(["swapon", disk.device], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"this kernel takes no swap here: {done.stderr.strip()}")
    try:
        assert "swap in use" in refusal(disk, ("db1", disk.serial))
    finally:
        call("swapoff", disk.device)


def test_a_disk_that_a_program_holds_is_refused_even_with_its_name(disk: LoopDisk) -> None:
    holder = (
        "import os, sys\n"
        "fd = os.open(sys.argv[1], os.O_RDWR | os.O_EXCL)\n"
        "print('held', flush=True)\nsys.stdin.read()\n"
    )
    with subprocess.Popen(
        ["python3", "-c", holder, disk.device], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        said = refusal(disk, ("db1", disk.serial))
    assert "a program or another namespace holds it" in said


def test_a_read_only_disk_is_refused_even_with_its_name(disk: LoopDisk) -> None:
    call("blockdev", "--setro", disk.device)
    try:
        assert "it is read-only" in refusal(disk, ("db1", disk.serial))
    finally:
        call("blockdev", "--setrw", disk.device)


def test_the_disk_below_the_system_is_refused_even_with_its_name() -> None:
    roots = [each for each in all_disks() if "/" in _places(each)]
    if not roots:
        pytest.skip("the root file system of this machine lies on no disk")
    for disk in roots:
        consent = [{"host": "db1", "serial": disk.serial}]
        findings = guard.look(disk)
        with pytest.raises(DiskError, match="below the system") as caught:
            guard.check(disk, findings, "db1", consent)
        assert "in use" in str(caught.value)


def _places(disk: Disk) -> list[str]:
    words = guard.look(disk).in_use
    return [word.rpartition("(")[2].rstrip(")") for word in words if "below the system" in word]


def test_a_disk_without_serial_cannot_be_named(disk: LoopDisk) -> None:
    nameless = replace(found(disk), serial="")
    with pytest.raises(DiskError, match="tells no serial"):
        guard.check(nameless, guard.look(nameless), "db1", [{"host": "db1", "serial": ""}])


def test_a_serial_that_two_disks_have_names_none_of_them(
    disk: LoopDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk.call("mkfs.ext4", "-q")
    there = found(disk)
    monkeypatch.setattr(guard, "all_disks", lambda: [there, replace(there, name="twin")])
    assert "another disk of this host has the same serial" in refusal(disk, ("db1", disk.serial))


def test_a_name_that_means_another_disk_by_now_is_refused(disk: LoopDisk, tmp_path: Path) -> None:
    there = found(disk)
    guard.check_identity(there)
    with loop_disk(tmp_path / "other.img") as other:
        swapped = replace(there, name=other.name)
        with pytest.raises(DiskError, match="nothing was changed"):
            guard.check_identity(swapped)
    with pytest.raises(DiskError, match="nothing was changed"):
        guard.check_identity(replace(there, size_bytes=there.size_bytes + 512))


def test_what_cannot_be_looked_at_is_not_free(
    disk: LoopDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_wipefs(*_: object, **__: object) -> None:
        raise FileNotFoundError("wipefs")

    monkeypatch.setattr(guard.subprocess, "run", no_wipefs)
    assert "its signatures cannot be read" in refusal(disk)
