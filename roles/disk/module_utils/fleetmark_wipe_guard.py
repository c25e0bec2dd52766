"""The wipe guard: may this disk be written over?

Two kinds of reasons against it. A disk *in use* (mounted, held by another device, swap, under
the system itself) is refused whatever anybody says. A disk with *contents* (a signature, a
partition, anything but zeros at its edges) is refused unless its host and serial were named.

It reads only. What cannot be looked at counts as contents: no answer is no permission.
"""

import errno
import json
import os
import re
import subprocess
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Sequence, Set, Tuple

from ansible.module_utils.fleetmark_disks import (
    Disk,
    DiskError,
    all_disks,
    same_serial,
    serial_of,
    text,
)

_EDGE_BYTES = 1 << 20
_SYSTEM_PLACES = ("/", "/boot", "/boot/efi", "/usr", "/var", "/etc", "/home")
_TOOL_SECONDS = 60.0
_TABLES = {"dos", "gpt", "PMBR", "mac", "sun", "sgi", "bsd"}


@dataclass(frozen=True)
class Findings:
    """What speaks against writing over a disk, in words. Both empty: nothing does."""

    in_use: List[str]
    contents: List[str]

    @property
    def words(self) -> str:
        """All of it in one phrase."""
        return ", ".join([*self.in_use, *self.contents]) or "empty"


def look(disk: Disk) -> Findings:
    """Everything that speaks against writing over a disk. Changes nothing."""
    return Findings(_in_use(disk), _contents(disk))


def check(disk: Disk, findings: Findings, host: str, consent: Sequence[Mapping[str, Any]]) -> None:
    """Raise DiskError unless the disk may be written over.

    `consent` is a list of {host, serial}; one of them must name this disk when it has contents.
    """
    if not disk.serial:
        raise DiskError("%s tells no serial, so nobody can say that it is the one" % disk.words)
    if findings.in_use:
        raise DiskError(
            "refused: %s is in use: %s. Naming it in confirm_wipe does not help; free it first"
            % (disk.words, ", ".join(findings.in_use))
        )
    named = any(
        str(each.get("host")) == host and same_serial(str(each.get("serial") or ""), disk.serial)
        for each in consent
    )
    if findings.contents and named and _has_twin(disk):
        # Some clouds give all their volumes one serial; then the name is no name.
        raise DiskError(
            "refused: %s is not empty (%s), and another disk of this host has the same serial, so"
            " naming it does not say which one is meant"
            % (disk.words, ", ".join(findings.contents))
        )
    if findings.contents and not named:
        raise DiskError(
            "refused: %s is not empty: %s. Nothing was changed. If all of it may be lost, name the"
            " disk: confirm_wipe {host: %s, serial: %s}"
            % (disk.words, ", ".join(findings.contents), host, disk.serial)
        )


def check_identity(disk: Disk) -> None:
    """Raise DiskError when the name does not mean the same disk any more. Ask just before use."""
    now = serial_of(disk.name)
    size_bytes = int(text("/sys/block/%s/size" % disk.name) or 0) * 512
    if now != disk.serial or size_bytes != disk.size_bytes:
        raise DiskError(
            "%s was serial %s with %d bytes and is serial %s with %d bytes now; nothing was changed"
            % (disk.name, disk.serial, disk.size_bytes, now or "unknown", size_bytes)
        )


def _has_twin(disk: Disk) -> bool:
    return any(d.name != disk.name and same_serial(d.serial, disk.serial) for d in all_disks())


def _in_use(disk: Disk) -> List[str]:
    found = []
    numbers = _numbers(disk.name)
    for point, number in _mounts():
        if number in numbers:
            found.append("%s is mounted at %s" % (numbers[number], point))
    system = [place for place in _SYSTEM_PLACES if _is_on(place, numbers)]
    found += ["it is below the system (%s)" % place for place in system]
    for name in _swaps():
        if name in numbers.values():
            found.append("%s is swap in use" % name)
    for name in [disk.name, *_partitions(disk.name)]:
        for holder in _entries("/sys/class/block/%s/holders" % name):
            found.append("%s is held by %s" % (name, _holder_words(holder)))
    if text("/sys/block/%s/ro" % disk.name) == "1":
        found.append("it is read-only")
    if not found and _is_busy(disk.device):
        found.append("a program or another namespace holds it")
    return list(dict.fromkeys(found))


def _is_on(place: str, numbers: Mapping[str, str]) -> bool:
    """Whether a directory lies on one of these devices, or on something stacked upon them."""
    try:
        device = os.stat(place).st_dev
    except OSError:
        return False
    seen: Set[str] = set()
    todo = ["%d:%d" % (os.major(device), os.minor(device))]
    while todo:
        number = todo.pop()
        if number in numbers:
            return True
        if number not in seen:
            seen.add(number)
            slaves = "/sys/dev/block/%s/slaves" % number
            todo += [text("%s/%s/dev" % (slaves, name)) for name in _entries(slaves)]
    return False


def _numbers(name: str) -> Dict[str, str]:
    """The device numbers of a disk, its partitions, and all that is stacked upon them."""
    found: Dict[str, str] = {}
    todo = [name, *_partitions(name)]
    while todo:
        each = todo.pop()
        number = text("/sys/class/block/%s/dev" % each)
        if number and number not in found:
            found[number] = each
            todo += _entries("/sys/class/block/%s/holders" % each)
            todo += _partitions(each)
    return found


def _partitions(name: str) -> List[str]:
    top = "/sys/block/" + name
    return [each for each in _entries(top) if os.path.exists("%s/%s/partition" % (top, each))]


def _entries(directory: str) -> List[str]:
    try:
        return sorted(os.listdir(directory))
    except OSError:
        return []


def _mounts() -> List[Tuple[str, str]]:
    """Mount point and device number of every mount that any process can see.

    A container's mount is none of ours, but its disk is in use all the same.
    """
    found: Dict[Tuple[str, str], None] = {}
    seen: Set[str] = set()
    for process in ["self", *(p for p in _entries("/proc") if p.isdigit())]:
        try:
            namespace = os.readlink("/proc/%s/ns/mnt" % process)
        except OSError:
            continue
        if namespace in seen:
            continue
        seen.add(namespace)
        for line in text("/proc/%s/mountinfo" % process).splitlines():
            words = line.split()
            found[_unescape(words[4]), words[2]] = None
    return list(found)


def _unescape(word: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match.group(1), 8)), word)


def _swaps() -> List[str]:
    lines = text("/proc/swaps").splitlines()[1:]
    return [os.path.basename(os.path.realpath(line.split()[0])) for line in lines]


def _holder_words(holder: str) -> str:
    kind = "RAID" if os.path.isdir("/sys/block/%s/md" % holder) else ""
    mapped = text("/sys/block/%s/dm/name" % holder)
    return "%s%s" % (holder, " (%s)" % (kind or mapped) if kind or mapped else "")


def _is_busy(device: str) -> bool:
    """The kernel's own answer: an exclusive open fails while anything holds the disk."""
    try:
        os.close(os.open(device, os.O_RDONLY | os.O_EXCL))
    except OSError as error:
        return error.errno == errno.EBUSY
    return False


def _contents(disk: Disk) -> List[str]:
    found = ["partition %s" % name for name in _partitions(disk.name)]
    found += _signatures(disk.device)
    for name in _partitions(disk.name):
        found += ["%s: %s" % (name, words) for words in _signatures("/dev/" + name)]
    # A signature names what lies there; bare bytes are worth a word only where none does.
    return found or _edges(disk)


def _signatures(device: str) -> List[str]:
    """Every signature that util-linux knows: file systems, tables, RAID, LVM, LUKS, ZFS, swap."""
    command = ["wipefs", "--no-act", "--json", device]
    # Of the two directories in question a user's PATH often lacks one.
    environment = {**os.environ, "LC_ALL": "C", "PATH": "/usr/sbin:/sbin:/usr/bin:/bin"}
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            timeout=_TOOL_SECONDS,
            env=environment,
        )
        listed = json.loads(done.stdout)["signatures"] if done.stdout.strip() else []
    except (OSError, subprocess.TimeoutExpired, ValueError, KeyError) as error:
        return ["its signatures cannot be read (wipefs: %s)" % error]
    if done.returncode != 0:
        return ["its signatures cannot be read (wipefs: %s)" % done.stderr.strip()]
    return list(dict.fromkeys(_signature_words(each) for each in listed))


def _signature_words(each: Mapping[str, Any]) -> str:
    words = str(each.get("type") or "unknown signature")
    if words in _TABLES:
        return "partition table " + words
    if each.get("label"):
        words += " labelled %r" % str(each["label"])
    return words


def _edges(disk: Disk) -> List[str]:
    """Whether the first or the last MiB holds anything but zeros."""
    try:
        with open(disk.device, "rb") as handle:
            first = handle.read(_EDGE_BYTES)
            end = handle.seek(0, os.SEEK_END)
            handle.seek(max(0, end - _EDGE_BYTES))
            last = handle.read(_EDGE_BYTES)
    except OSError as error:
        return ["it cannot be read (%s)" % error.strerror]
    found = []
    for where, edge in (("first", first), ("last", last)):
        if edge.strip(b"\0"):
            found.append("its %s MiB is not all zeros" % where)
    return found
