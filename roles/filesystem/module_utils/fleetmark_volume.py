"""What a file system lies on: one disk, an md array of several, and perhaps LVM upon them."""

import glob
import os
import subprocess
from dataclasses import dataclass
from typing import Optional, Sequence

from ansible.module_utils.fleetmark_disks import Disk, DiskError, text

_LEAST_DISKS = {"0": 2, "1": 2, "10": 2}
_COMMAND_SECONDS = 1800.0
"""mkfs with full initialisation, and discarding a large disk, take their time."""


@dataclass(frozen=True)
class Volume:
    """Disks, the RAID level over them (none, 0, 1, 10), and whether LVM comes upon that.

    `name` is that of the array and of the volume group.
    """

    disks: Sequence[Disk]
    raid: str
    lvm: bool
    name: str

    @property
    def array(self) -> str:
        """The array's device file, as it is asked for."""
        return "/dev/md/" + self.name

    @property
    def logical(self) -> str:
        """The logical volume's device file."""
        return "/dev/%s/data" % self.name

    @property
    def words(self) -> str:
        """The volume in one phrase."""
        names = " + ".join(disk.name for disk in self.disks)
        layers = ["RAID%s" % self.raid] if self.raid != "none" else []
        return ", ".join([names, *layers, *(["LVM"] if self.lvm else [])])


def run(command: Sequence[str]) -> str:
    """Run a program and return what it printed. Raises DiskError with its last words."""
    environment = {**os.environ, "LC_ALL": "C", "PATH": "/usr/sbin:/sbin:/usr/bin:/bin"}
    try:
        done = subprocess.run(
            list(command),
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
            timeout=_COMMAND_SECONDS,
            env=environment,
        )
    except FileNotFoundError:
        raise DiskError("%s is not installed on this host" % command[0]) from None
    except subprocess.TimeoutExpired:
        raise DiskError("%s takes more than half an hour" % command[0]) from None
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines()[-3:]
        raise DiskError("%s failed: %s" % (" ".join(command), " ".join(said) or "it said nothing"))
    return done.stdout


def check(volume: Volume) -> None:
    """Raise DiskError when so many disks cannot make such a volume."""
    count = len(volume.disks)
    least = _LEAST_DISKS.get(volume.raid)
    if least is not None and count < least:
        raise DiskError("RAID%s needs at least %d disks, %d found" % (volume.raid, least, count))
    if least is None and count > 1 and not volume.lvm:
        raise DiskError(
            "%d disks and one file system: say raid (0, 1, 10) or lvm, or one disk" % count
        )


def find(volume: Volume) -> Optional[str]:
    """The device that the file system would lie on, if the volume is there exactly as asked."""
    below: Optional[str] = None
    if volume.raid == "none":
        below = volume.disks[0].device if len(volume.disks) == 1 else None
        members = {disk.name for disk in volume.disks}
    else:
        below = _find_array(volume)
        if below is None:
            return None
        members = {os.path.basename(below)}
    return _find_logical(volume, members) if volume.lvm else below


def make(volume: Volume) -> str:
    """Make the layers; the disks must have been cleared. Returns the device for the file system."""
    devices = [disk.device for disk in volume.disks]
    if volume.raid != "none":
        # --run: nobody is there to be asked. The guard has looked at what is on the disks.
        command = ["mdadm", "--create", volume.array, "--run", "--level=" + volume.raid]
        command += ["--metadata=1.2", "--homehost=any", "--raid-devices=%d" % len(devices)]
        run([*command, *devices])
        devices = [os.path.realpath(volume.array)]
    if not volume.lvm:
        return devices[0]
    run(["vgcreate", "--quiet", "--yes", volume.name, *devices])
    stripes = ["--stripes", str(len(devices))] if len(devices) > 1 else []
    command = ["lvcreate", "--quiet", "--yes", "--wipesignatures", "y", *stripes]
    run([*command, "--extents", "100%FREE", "--name", "data", volume.name])
    return volume.logical


def clear(disk: Disk) -> None:
    """Take every signature off a disk, its partitions first, so that nothing comes back to life."""
    for path in sorted(glob.glob("/sys/block/%s/%s*/partition" % (disk.name, disk.name))):
        run(["wipefs", "--all", "--quiet", "/dev/" + os.path.basename(os.path.dirname(path))])
    run(["wipefs", "--all", "--quiet", disk.device])


def _find_array(volume: Volume) -> Optional[str]:
    """The array whose members are just these disks. Raises DiskError for one of another level."""
    names = {disk.name for disk in volume.disks}
    for top in glob.glob("/sys/block/md*"):
        if set(os.listdir(top + "/slaves")) == names:
            level = text(top + "/md/level")
            if level != "raid" + volume.raid:
                raise DiskError("these disks are %s already, not RAID%s" % (level, volume.raid))
            return "/dev/" + os.path.basename(top)
    return None


def _find_logical(volume: Volume, members: "set[str]") -> Optional[str]:
    """Our logical volume, if its group lies on just these devices."""
    for top in glob.glob("/sys/block/dm-*"):
        # The device mapper doubles hyphens within the names that it joins by one.
        wanted = "%s-data" % volume.name.replace("-", "--")
        if text(top + "/dm/name") == wanted and set(os.listdir(top + "/slaves")) == members:
            return "/dev/" + os.path.basename(top)
    return None
