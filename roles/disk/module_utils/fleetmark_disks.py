"""The disks of this host and how to find the one that is meant: by what it is, not by its name.

Names like nvme0n1 change from boot to boot. A serial does not. All paths are below `root`, so
that a made-up /sys can be read as well.
"""

import fnmatch
import glob
import os
import re
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional, Sequence

_SECTOR_BYTES = 512
_SIZE_TOLERANCE = 0.01
"""Disks of one nominal size differ a little between makers."""
_NO_DISKS = ("ram", "zram", "sr", "fd", "md", "dm-", "nbd", "drbd", "rbd", "bcache")


class DiskError(Exception):
    """What was asked for cannot be found, or must not be done."""


@dataclass(frozen=True)
class Disk:
    """One whole disk. `serial` is "" where it tells none; then it cannot be formatted."""

    name: str
    serial: str
    model: str
    firmware: str
    size_bytes: int

    @property
    def device(self) -> str:
        """Its device file, as named in this boot."""
        return "/dev/" + self.name

    @property
    def words(self) -> str:
        """The disk in one short phrase."""
        return "%s serial %s, %s, %.1f GB" % (
            self.name,
            self.serial or "unknown",
            self.model or "model unknown",
            self.size_bytes / 1e9,
        )


def text(path: str) -> str:
    """A one-line file; empty when it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as handle:
            return handle.read().strip().strip("\0").strip()
    except OSError:
        return ""


def all_disks(root: str = "/") -> List[Disk]:
    """Every whole disk, sorted by name. A loop device counts, with its file as serial."""
    found = []
    for top in sorted(glob.glob(os.path.join(root, "sys/block/*"))):
        name = os.path.basename(top)
        sectors = text(top + "/size")
        if name.startswith(_NO_DISKS) or not sectors.isdigit() or sectors == "0":
            continue
        # A path of one NVMe controller of several: the disk itself is another entry.
        if re.match(r"nvme\d+c\d+n\d+$", name):
            continue
        model = text(top + "/device/model") or ("loop device" if name.startswith("loop") else "")
        firmware = text(top + "/device/firmware_rev") or text(top + "/device/rev")
        size_bytes = int(sectors) * _SECTOR_BYTES
        found.append(Disk(name, serial_of(name, root), model, firmware, size_bytes))
    return found


def serial_of(name: str, root: str = "/") -> str:
    """What a disk says that its serial is; empty when it says nothing."""
    top = os.path.join(root, "sys/block", name)
    for place in ("device/serial", "serial", "loop/backing_file"):
        found = text(os.path.join(top, place))
        if found:
            return found
    return _scsi_serial(top) or _udev_serial(top, root)


def _scsi_serial(top: str) -> str:
    """Page 80h of a SCSI disk's vital product data: four bytes of header, then the serial."""
    try:
        with open(top + "/device/vpd_pg80", "rb") as handle:
            return handle.read()[4:].decode("ascii", "replace").strip().strip("\0").strip()
    except OSError:
        return ""


def _udev_serial(top: str, root: str) -> str:
    number = text(top + "/dev")
    data = text(os.path.join(root, "run/udev/data/b" + number)) if number else ""
    match = re.search(r"^E:ID_SERIAL_SHORT=(.+)$", data, re.MULTILINE)
    return match.group(1).strip() if match else ""


def same_serial(one: str, other: str) -> bool:
    """Whether two serials mean the same disk.

    A cloud writes a volume's number with a hyphen in its tools and without in the disk.
    """
    return bool(one) and one.replace("-", "").lower() == other.replace("-", "").lower()


def choose(wanted: Mapping[str, Any], disks: Sequence[Disk]) -> List[Disk]:
    """The disks that a choice means: `serial`, `model` (shell wildcards), `size_bytes` (within
    1 %), all that are given; exactly `count` of them (1). Raises DiskError otherwise.
    """
    if not any(wanted.get(key) for key in ("serial", "model", "size_bytes")):
        raise DiskError("a disk is named by serial, model or size_bytes; none of them is given")
    found = [disk for disk in disks if _matches(wanted, disk)]
    count = int(wanted.get("count") or 1)
    if len(found) == count:
        return found
    what = choice_words(wanted)
    there = table(disks)
    if not found:
        raise DiskError("there is no disk with %s; %s" % (what, there))
    raise DiskError("%d disks match %s, %d are wanted; %s" % (len(found), what, count, there))


def choose_all(wanted: Sequence[Mapping[str, Any]], root: str = "/") -> List[Disk]:
    """The disks of several choices, in order. Raises DiskError also for a disk chosen twice."""
    disks = all_disks(root)
    found: List[Disk] = []
    for choice in wanted:
        found += choose(choice, disks)
    names = [disk.name for disk in found]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise DiskError("%s is chosen twice; %s" % (twice[0], table(disks)))
    return found


def _matches(wanted: Mapping[str, Any], disk: Disk) -> bool:
    serial, model, size_bytes = (wanted.get(key) for key in ("serial", "model", "size_bytes"))
    if serial and not same_serial(str(serial), disk.serial):
        return False
    if model and not fnmatch.fnmatchcase(disk.model.lower(), str(model).lower()):
        return False
    # A loop device is somebody's file: only its own path chooses it.
    if disk.name.startswith("loop") and not serial:
        return False
    difference = abs(disk.size_bytes - int(size_bytes or disk.size_bytes))
    return difference <= _SIZE_TOLERANCE * int(size_bytes or 0)


def choice_words(wanted: Mapping[str, Any]) -> str:
    """A choice as a person would say it."""
    keys = [key for key in ("serial", "model", "size_bytes") if wanted.get(key)]
    return " and ".join("%s %s" % (key, wanted[key]) for key in keys)


def table(disks: Sequence[Disk]) -> str:
    """What is there, for a message."""
    return "there are: %s" % ("; ".join(disk.words for disk in disks) or "no disks at all")


def queue(disk: Disk, root: str = "/") -> Dict[str, Any]:
    """How the kernel drives a disk now. What cannot be read is None."""
    top = os.path.join(root, "sys/block", disk.name, "queue")
    scheduler = text(top + "/scheduler")
    match = re.search(r"\[([^]]+)\]", scheduler)
    return {
        "scheduler": match.group(1) if match else scheduler or None,
        "schedulers": re.sub(r"[][]", "", scheduler).split(),
        "read_ahead_kib": _number(top + "/read_ahead_kb"),
        "write_cache": text(top + "/write_cache") or None,
        "logical_block_bytes": _number(top + "/logical_block_size"),
        "physical_block_bytes": _number(top + "/physical_block_size"),
        "discard_max_bytes": _number(top + "/discard_max_bytes"),
        "rotational": {"0": False, "1": True}.get(text(top + "/rotational")),
    }


def _number(path: str) -> Optional[int]:
    value = text(path)
    return int(value) if value.isdigit() else None
