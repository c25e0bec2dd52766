"""One file system as asked: what is to be done for it, and doing it.

`decide` reads only. `apply` does what was decided, asking each disk for its identity once more.
"""

import json
import os
import pwd
import shutil
import time
import uuid
from dataclasses import dataclass, field
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from ansible.module_utils import fleetmark_mount as mounts
from ansible.module_utils import fleetmark_volume as volumes
from ansible.module_utils import fleetmark_wipe_guard as guard
from ansible.module_utils.fleetmark_disks import Disk, DiskError, choose_all, text
from ansible.module_utils.fleetmark_volume import Volume

_UNSHOWN_OPTIONS = {"defaults", "rw", "suid", "dev", "exec", "auto", "nouser", "async", "nofail"}
"""What the kernel does not list, since it is what it does anyway."""


@dataclass(frozen=True)
class Wanted:
    """A file system as asked for. In the directory `records` we note how we made it."""

    choices: List[Dict[str, Any]]
    mount: str
    filesystem: str
    raid: str
    lvm: bool
    label: str
    mkfs_options: List[str]
    mount_options: List[str]
    owner: str
    fstab: str
    records: str


@dataclass(frozen=True)
class Decision:
    """What is to be done. `device` is None as long as the layers below are to be made.

    `refusal` says why a disk must not be written over; then nothing is done.
    """

    volume: Volume
    device: Optional[str]
    format: bool
    findings: Dict[str, guard.Findings] = field(default_factory=dict)
    refusal: str = ""

    def fate(self, disk: Disk) -> str:
        """What becomes of one disk: keep, format, wipe (it is not empty) or refuse."""
        if self.refusal:
            return "refuse"
        if not self.format:
            return "keep"
        return "wipe" if self.findings[disk.name].contents else "format"


def decide(wanted: Wanted, host: str, consent: Sequence[Mapping[str, Any]]) -> Decision:
    """Look, and say what is to be done. Raises DiskError for disks that cannot be found."""
    disks = choose_all(wanted.choices)
    # One name for array and volume group: that of the directory.
    name = "fm" + wanted.mount.replace("/", "_").replace(".", "_")
    volume = Volume(disks, wanted.raid, wanted.lvm, name)
    volumes.check(volume)
    device = volumes.find(volume)
    if device is not None and _is_right(wanted, device):
        difference = _made_otherwise(wanted, device)
        if not difference:
            return Decision(volume, device, format=False)
        findings = {disk.name: guard.look(disk) for disk in disks}
        return Decision(volume, device, True, findings, difference)
    findings = {disk.name: guard.look(disk) for disk in disks}
    if device is not None and len(disks) > 1 and not mounts.signature(device):
        # An earlier try made the layers and got no further: nothing is on them yet.
        return Decision(volume, device, True, {name: guard.Findings([], []) for name in findings})
    refusal = ""
    for disk in disks:
        try:
            guard.check(disk, findings[disk.name], host, consent)
        except DiskError as error:
            refusal = refusal or str(error)
    return Decision(volume, None, True, findings, refusal)


def apply(wanted: Wanted, decision: Decision, dry: bool) -> List[str]:
    """Do what was decided; what was done, in words (or, dry, what would be). Raises DiskError."""
    if decision.refusal:
        raise DiskError(decision.refusal)
    mounts.check_point(wanted.mount)
    done = []
    device = decision.device
    if decision.format:
        _check_programs(wanted)
        was = [
            "%s (was: %s)" % (d.words, decision.findings[d.name].words)
            for d in decision.volume.disks
        ]
        done.append(
            "format %s as %s: %s" % (decision.volume.words, wanted.filesystem, "; ".join(was))
        )
        if not dry:
            device = _format(wanted, decision)
    if device is None or (dry and decision.format):
        return [*done, "mount it at %s" % wanted.mount]
    return done + _mount(wanted, device, dry)


def state(wanted: Wanted, device: Optional[str]) -> Dict[str, Any]:
    """What there is now, for the record and for `verify`."""
    mounted = mounts.mounted_at(wanted.mount)
    found = mounts.signature(device) if device else {}
    effective = _effective(mounted)
    record = _record(wanted, found.get("UUID", ""))
    return {
        "device": device,
        "filesystem": found.get("TYPE"),
        "uuid": found.get("UUID"),
        "mounted": bool(mounted and device and mounts.is_device(mounted.number, device)),
        "mount_options": mounted.options if mounted else [],
        "missing_options": sorted(_shown(wanted.mount_options) - effective) if mounted else [],
        "fstab": mounts.fstab_line(wanted.mount, wanted.fstab),
        "mkfs_options": record.get("mkfs_options"),
    }


def _is_right(wanted: Wanted, device: str) -> bool:
    """Whether the file system is the one that was asked for, and known to be ours.

    Type and label prove nothing: any disk with data may have those. Ours has a UUID that this
    host has noted, or this host mounts it at that directory already.
    """
    found = mounts.signature(device)
    if found.get("TYPE") != wanted.filesystem:
        return False
    mounted = mounts.mounted_at(wanted.mount)
    here = mounted is not None and mounts.is_device(mounted.number, device)
    line = mounts.fstab_line(wanted.mount, wanted.fstab)
    by_fstab = bool(line) and line[0] == "UUID=" + found.get("UUID", "")
    return here or by_fstab or bool(_record(wanted, found.get("UUID", "")))


def _made_otherwise(wanted: Wanted, device: str) -> str:
    record = _record(wanted, mounts.signature(device).get("UUID", ""))
    if not record or record["mkfs_options"] == wanted.mkfs_options:
        return ""
    return (
        "refused: the file system at %s was made with the options [%s], asked for are [%s]; a file"
        " system cannot be changed so. Unmount it and clear the disk (wipefs --all %s) to have it"
        " made anew"
        % (wanted.mount, " ".join(record["mkfs_options"]), " ".join(wanted.mkfs_options), device)
    )


def _record(wanted: Wanted, number: str) -> Dict[str, Any]:
    """How we made the file system with this UUID; empty when it is none of ours."""
    path = os.path.join(wanted.records, number + ".json")
    try:
        stored: Dict[str, Any] = json.loads(text(path)) if number else {}
    except ValueError:
        return {}
    return stored


def _check_programs(wanted: Wanted) -> None:
    needed = ["mkfs." + wanted.filesystem, "wipefs", "blkid"]
    needed += ["mdadm"] if wanted.raid != "none" else []
    needed += ["vgcreate"] if wanted.lvm else []
    missing = [name for name in needed if not shutil.which(name, path="/usr/sbin:/sbin:/usr/bin")]
    if missing:
        raise DiskError("not installed on this host: %s" % ", ".join(missing))


def _format(wanted: Wanted, decision: Decision) -> str:
    """Make everything from the disks up to the file system; its device."""
    device = decision.device
    if device is None:
        for disk in decision.volume.disks:
            guard.check_identity(disk)
            if decision.findings[disk.name].contents:
                volumes.clear(disk)
        device = volumes.make(decision.volume)
    for disk in decision.volume.disks:
        guard.check_identity(disk)
    # Noted before it is made: whatever comes between, the next run knows it as ours.
    number = str(uuid.uuid4())
    _write_record(wanted, decision, number)
    label = ["-L", wanted.label] if wanted.label else []
    named = ["-U", number] if wanted.filesystem == "ext4" else ["-m", "uuid=" + number]
    command = ["mkfs." + wanted.filesystem, "-q", *label, *named, *wanted.mkfs_options, device]
    volumes.run(command)
    return device


def _write_record(wanted: Wanted, decision: Decision, number: str) -> None:
    os.makedirs(wanted.records, mode=0o755, exist_ok=True)
    path = os.path.join(wanted.records, number + ".json")
    record = {
        "version": 1,
        "made": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "filesystem": wanted.filesystem,
        "mkfs_options": wanted.mkfs_options,
        "disks": [disk.serial for disk in decision.volume.disks],
        "before": {d.serial: decision.findings[d.name].words for d in decision.volume.disks},
    }
    with open(path + ".new", "w", encoding="utf-8") as handle:
        json.dump(record, handle, indent=1)
        handle.flush()
        os.fsync(handle.fileno())
    os.rename(path + ".new", path)


def _mount(wanted: Wanted, device: str, dry: bool) -> List[str]:
    """Directory, line of fstab, mount and its options, owner."""
    done = []
    found = mounts.signature(device)
    line = mounts.wanted_line(found["UUID"], wanted.mount, wanted.filesystem, wanted.mount_options)
    mounted = mounts.mounted_at(wanted.mount)
    if mounted is not None and not mounts.is_device(mounted.number, device):
        raise DiskError("another file system is mounted at %s already" % wanted.mount)
    if mounts.fstab_line(wanted.mount, wanted.fstab) != line:
        done.append("write the line of %s into %s" % (wanted.mount, wanted.fstab))
        if not dry:
            mounts.write_fstab(line, wanted.fstab)
    options = ",".join(wanted.mount_options) or "defaults"
    if mounted is None:
        done.append("mount it at %s" % wanted.mount)
        if not dry:
            os.makedirs(wanted.mount, mode=0o755, exist_ok=True)
            volumes.run(["mount", "-t", wanted.filesystem, "-o", options, line[0], wanted.mount])
    elif done or _shown(wanted.mount_options) - _effective(mounted):
        done.append("mount it anew with %s" % options)
        if not dry:
            volumes.run(["mount", "-o", "remount," + options, wanted.mount])
    return done + _own(wanted, dry)


def _own(wanted: Wanted, dry: bool) -> List[str]:
    if not wanted.owner or (dry and not os.path.isdir(wanted.mount)):
        return []
    user, group = _ids(wanted.owner)
    status = os.stat(wanted.mount)
    if (status.st_uid, status.st_gid) == (user, group):
        return []
    if not dry:
        os.chown(wanted.mount, user, group)
    return ["give %s to %s" % (wanted.mount, wanted.owner)]


def _ids(owner: str) -> Tuple[int, int]:
    try:
        entry = pwd.getpwnam(owner)
    except KeyError:
        raise DiskError("there is no user %s on this host" % owner) from None
    return entry.pw_uid, entry.pw_gid


def _shown(options: Sequence[str]) -> "set[str]":
    return set(options) - _UNSHOWN_OPTIONS


def _effective(mounted: Optional[mounts.Mounted]) -> "set[str]":
    """The options in effect; ext4 lists its defaults in a file of its own."""
    if mounted is None:
        return set()
    device = os.path.basename(os.path.realpath("/sys/dev/block/" + mounted.number))
    return {*mounted.options, *text("/proc/fs/ext4/%s/options" % device).split()}
