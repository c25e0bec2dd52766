"""Scheduler and read-ahead of a disk: now by /sys, after a boot by a udev rule of its serial."""

import json
import os
import re
import tempfile
from typing import Any, Dict, Mapping, Optional

from ansible.module_utils.fleetmark_disks import Disk, DiskError, queue

_FILES = {"scheduler": "scheduler", "read_ahead_kib": "read_ahead_kb"}


def differences(disk: Disk, wanted: Mapping[str, Any]) -> Dict[str, Any]:
    """The wanted values that are not in effect, with what they are now."""
    now = queue(disk)
    return {
        key: now[key]
        for key in _FILES
        if wanted.get(key) not in (None, "") and str(now[key]) != str(wanted[key])
    }


def check(disk: Disk, wanted: Mapping[str, Any]) -> None:
    """Raise DiskError for a scheduler that the kernel does not offer."""
    scheduler, known = wanted.get("scheduler"), queue(disk)["schedulers"]
    if scheduler and known and scheduler not in known:
        raise DiskError(
            "%s: there is no scheduler %s; the kernel offers %s"
            % (disk.words, scheduler, ", ".join(known))
        )


def put(disk: Disk, values: Mapping[str, Any]) -> None:
    """Set values. Raises DiskError with the kernel's answer, also for one that it ignored."""
    for key, value in values.items():
        path = "/sys/block/%s/queue/%s" % (disk.name, _FILES[key])
        try:
            with open(path, "w", encoding="utf-8") as handle:
                handle.write(str(value))
        except OSError as error:
            raise DiskError("the kernel refuses %s in %s: %s" % (value, path, error)) from None
    left = differences(disk, values)
    if left:
        raise DiskError("%s: set without effect: %s" % (disk.words, left))


def rule(disk: Disk, wanted: Mapping[str, Any]) -> str:
    """The udev rule that sets the values whenever this disk appears."""
    match = 'ACTION=="add|change", SUBSYSTEM=="block", ENV{DEVTYPE}=="disk"'
    match += ', ATTRS{serial}=="%s"' % disk.serial
    parts = [
        'ATTR{queue/%s}="%s"' % (_FILES[key], wanted[key])
        for key in _FILES
        if wanted.get(key) not in (None, "")
    ]
    return ", ".join([match, *parts]) + "\n"


def rule_path(directory: str, disk: Disk) -> str:
    """The file of a disk's rule."""
    plain = re.sub(r"[^A-Za-z0-9]+", "_", disk.serial)
    return os.path.join(directory, "70-fleetmark-%s.rules" % plain)


def read(path: str) -> Optional[str]:
    """A file's text, None when it is not there."""
    try:
        with open(path, encoding="utf-8") as handle:
            return handle.read()
    except FileNotFoundError:
        return None


def write(path: str, content: str) -> None:
    """Whole or not at all."""
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    handle, beside = tempfile.mkstemp(dir=os.path.dirname(path))
    with os.fdopen(handle, "w") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.chmod(beside, 0o644)
    os.rename(beside, path)


def remember(path: str, disk: Disk, before: Mapping[str, Any]) -> None:
    """Add the disk's values before the first change; what is there already stays."""
    former = json.loads(read(path) or "{}")
    own = {**before, **former.get(disk.serial, {})}
    if before and own != former.get(disk.serial):
        write(path, json.dumps({**former, disk.serial: own}, indent=1) + "\n")
