"""Which of a host's disks carries the data, and what it did."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from fleetmark.tables.journals import HostSample

ALL_DISKS = "all"
_STACKED = ("dm-", "md", "loop", "bcache")
"""Devices on top of others, whose work shows again on those below."""
_PARTITION = re.compile(r"^(?:(nvme\d+n\d+|mmcblk\d+)p\d+|((?:sd|vd|xvd|hd)[a-z]+)\d+)$")


@dataclass(frozen=True)
class DiskTotals:
    """What a disk did in one interval."""

    reads: float
    read_bytes: float
    writes: float
    write_bytes: float
    flushes: float
    busy_seconds: float


def _parent(name: str) -> str:
    found = _PARTITION.match(name)
    return (found[1] or found[2]) if found else ""


def data_disk(samples: Iterable[HostSample], device: str) -> str:
    """The sampled disk that carries the data directory, or `all` where it cannot be told.

    `device` is the one the host's facts name for its data directory, such as /dev/nvme0n1p1.
    """
    sampled = {name for sample in samples for name in sample.disks}
    name = device.rpartition("/")[2]
    for candidate in (name, _parent(name)):
        if candidate and candidate in sampled:
            return candidate
    return ALL_DISKS


def disk_totals(sample: HostSample, disk: str) -> DiskTotals:
    """What one disk did, or all together; what lies on another disk is not added to it."""
    if disk == ALL_DISKS:
        whole = {n: d for n, d in sample.disks.items() if not n.startswith(_STACKED)}
        chosen = [d for name, d in whole.items() if _parent(name) not in whole]
    else:
        chosen = [sample.disks.get(disk, {})]

    def total(field: str) -> float:
        return sum(d.get(field, 0.0) for d in chosen)

    return DiskTotals(
        reads=total("reads"),
        read_bytes=total("read_bytes"),
        writes=total("writes"),
        write_bytes=total("write_bytes"),
        flushes=total("flushes"),
        busy_seconds=total("busy_seconds"),
    )
