"""The storage part of the facts: disks, and where a directory lies."""

import glob
import os
import re
from typing import Any, Dict, List, Optional

from fleetmark_agent import spool
from fleetmark_agent.samplers import disk_names

_SECTOR_BYTES = 512


def _text(path: str) -> Optional[str]:
    try:
        with open(path, encoding="utf-8", errors="replace") as handle:
            return handle.read().strip() or None
    except OSError:
        return None


def _number(path: str) -> Optional[int]:
    value = _text(path)
    return int(value) if value is not None and value.isdigit() else None


def disks() -> List[Dict[str, Any]]:
    """The disks of this host, as the kernel sees them."""
    found = []
    for name in disk_names():
        top = "/sys/block/%s/" % name
        rotational = _number(top + "queue/rotational")
        sectors = _number(top + "size")
        found.append(
            {
                "name": name,
                "model": _text(top + "device/model"),
                "serial": _text(top + "device/serial") or _text(top + "serial"),
                "firmware": _text(top + "device/firmware_rev") or _text(top + "device/rev"),
                "size_bytes": None if sectors is None else sectors * _SECTOR_BYTES,
                "rotational": None if rotational is None else bool(rotational),
                "scheduler": scheduler(name),
                "write_cache": _text(top + "queue/write_cache"),
                "discard_max_bytes": _number(top + "queue/discard_max_bytes"),
            }
        )
    return found


def scheduler(disk: str) -> Optional[str]:
    """The I/O scheduler in use: the name in brackets, or the only one."""
    value = _text("/sys/block/%s/queue/scheduler" % disk)
    match = re.search(r"\[([^]]+)\]", value or "")
    return match.group(1) if match else value


def place(path: str) -> Dict[str, Any]:
    """Where a directory lies, or will: its nearest existing parent decides."""
    existing = os.path.abspath(path)
    while not os.path.isdir(existing):
        existing = os.path.dirname(existing)
    mount = _mount(existing)
    disk = _disk_of(existing)
    return {
        "path": path,
        "filesystem": mount.get("filesystem"),
        "device": mount.get("device"),
        "mount_options": mount.get("options"),
        "free_bytes": spool.free_bytes(existing),
        "scheduler": scheduler(disk) if disk else None,
    }


def _mount(path: str) -> Dict[str, Any]:
    """The mount that holds a path, of /proc/self/mountinfo; the last of several counts."""
    real = os.path.realpath(path)
    best: Dict[str, Any] = {}
    length = -1
    for line in (_text("/proc/self/mountinfo") or "").splitlines():
        left, _, right = line.partition(" - ")
        words, after = left.split(), right.split()
        point = _unescape(words[4])
        inside = real == point or real.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= length:
            length = len(point)
            options = words[5].split(",") + after[2].split(",")
            best = {
                "filesystem": after[0],
                "device": _unescape(after[1]),
                "options": list(dict.fromkeys(options)),
            }
    return best


def _unescape(word: str) -> str:
    """Spaces and the like stand as octal numbers in mountinfo."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match.group(1), 8)), word)


def _disk_of(path: str) -> Optional[str]:
    """The whole disk under a directory; None for tmpfs, overlays and the network."""
    device = os.stat(path).st_dev
    link = "/sys/dev/block/%d:%d" % (os.major(device), os.minor(device))
    if not os.path.exists(link):
        return None
    real = os.path.realpath(link)
    if os.path.exists(os.path.join(real, "partition")):
        real = os.path.dirname(real)
    # Of a stacked device the first one below is what has a scheduler.
    below = sorted(glob.glob(real + "/slaves/*"))
    return os.path.basename(os.path.realpath(below[0]) if below else real)
