"""Mount points: what is mounted, and the line of fstab that mounts it again."""

import os
import re
import tempfile
from dataclasses import dataclass
from typing import Dict, List, Optional, Sequence

from ansible.module_utils.fleetmark_disks import DiskError, text
from ansible.module_utils.fleetmark_volume import run

_LONG_ENOUGH = 4


@dataclass(frozen=True)
class Mounted:
    """One mount of this host."""

    point: str
    number: str
    filesystem: str
    options: List[str]


def mounted_at(point: str) -> Optional[Mounted]:
    """What is mounted at a directory; the last of several counts."""
    found = None
    for line in text("/proc/self/mountinfo").splitlines():
        left, _, right = line.partition(" - ")
        words, after = left.split(), right.split()
        if _unescape(words[4]) == point:
            options = list(dict.fromkeys(words[5].split(",") + after[2].split(",")))
            found = Mounted(point, words[2], after[0], options)
    return found


def is_device(number: str, device: str) -> bool:
    """Whether a device file has this device number."""
    try:
        status = os.stat(device).st_rdev
    except OSError:
        return False
    return number == "%d:%d" % (os.major(status), os.minor(status))


def signature(device: str) -> Dict[str, str]:
    """TYPE, LABEL, UUID of what is on a device, as blkid reads them from the device itself."""
    try:
        said = run(["blkid", "--probe", "--output", "export", device])
    except DiskError:
        # Nothing is on it, or more than one thing: neither is a file system of ours.
        return {}
    pairs = (line.partition("=") for line in said.splitlines())
    return {key: value.replace("\\ ", " ") for key, _, value in pairs}


def fstab_line(point: str, fstab: str) -> List[str]:
    """The fields of the line that mounts at a directory; empty when there is none."""
    for line in text(fstab).splitlines():
        if _is_for(line, point):
            return line.split()
    return []


def wanted_line(uuid: str, point: str, filesystem: str, options: Sequence[str]) -> List[str]:
    """The line as it must be. `nofail`: a host whose data disk is gone must still boot."""
    return ["UUID=" + uuid, point, filesystem, ",".join([*options, "nofail"]), "0", "2"]


def write_fstab(fields: Sequence[str], fstab: str) -> None:
    """Put a line in place of the one for the same directory, or at the end. Atomic."""
    lines = text(fstab).splitlines()
    point = fields[1]
    kept = [line for line in lines if not _is_for(line, point)]
    content = "\n".join([*kept, " ".join(fields), ""])
    handle, path = tempfile.mkstemp(prefix=".fstab-", dir=os.path.dirname(fstab))
    with os.fdopen(handle, "w") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.chmod(path, 0o644)
    os.rename(path, fstab)


def check_point(point: str) -> None:
    """Raise DiskError when mounting here would hide something, or is not possible."""
    if not re.match(r"^(/[A-Za-z0-9._-]+)+$", point):
        raise DiskError("the mount point is an absolute path of plain characters, not %r" % point)
    if os.path.isdir(point):
        if mounted_at(point) is None and os.listdir(point):
            raise DiskError("%s is not empty; mounting there would hide what is in it" % point)
    elif os.path.lexists(point):
        raise DiskError("%s is not a directory" % point)


def _is_for(line: str, point: str) -> bool:
    fields = line.split()
    return len(fields) >= _LONG_ENOUGH and fields[0][0] != "#" and _unescape(fields[1]) == point


def _unescape(word: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match.group(1), 8)), word)
