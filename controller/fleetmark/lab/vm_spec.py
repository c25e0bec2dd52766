"""What a guest of a vm lab is made of: memory, CPUs, disks. Pure."""

import re
from dataclasses import dataclass
from typing import Any, Literal

from fleetmark.errors import ConfigError

Accel = Literal["auto", "kvm", "tcg"]
Cache = Literal["none", "writeback", "writethrough", "directsync", "unsafe"]

_LABEL = re.compile(r"^[A-Z0-9]{1,5}$")
_PACKAGE = re.compile(r"^[a-z0-9][a-z0-9+.-]+$")
_GIB = 1 << 30
SMALLEST_DISK_BYTES = 64 << 20
SMALLEST_MEMORY_BYTES = 512 << 20


@dataclass(frozen=True)
class VmDisk:
    """An NVMe disk of every guest; its serial ends in `label`.

    With `holds_data` it is an ext4 file system with files in it, otherwise empty. `cache` is what
    the host does with writes and flushes (`unsafe` ignores flushes). `iops` and
    `bytes_per_second` limit reads and writes together; 0 is no limit.
    """

    label: str
    size_bytes: int = 4 * _GIB
    holds_data: bool = False
    cache: Cache = "writeback"
    iops: int = 0
    bytes_per_second: int = 0

    def __post_init__(self) -> None:
        if not _LABEL.match(self.label):
            raise ConfigError(
                f"{self.label!r} cannot be the label of a disk",
                next_step="use up to 5 capital letters and digits",
            )
        if self.size_bytes < SMALLEST_DISK_BYTES or self.size_bytes % (1 << 20):
            raise ConfigError(
                f"disk {self.label}: {self.size_bytes} bytes; whole MiB and at least 64 are needed"
            )
        if self.cache not in ("none", "writeback", "writethrough", "directsync", "unsafe"):
            raise ConfigError(f"disk {self.label}: there is no cache mode {self.cache!r}")
        if self.iops < 0 or self.bytes_per_second < 0:
            raise ConfigError(f"disk {self.label}: a limit is at least 0, and 0 is no limit")


@dataclass(frozen=True)
class VmSpec:
    """The guests of a vm lab, all alike.

    `packages` are Debian packages that go into the root image beside those that are always
    there. `accel` is `auto` (KVM where a guest boots with it, else TCG), `kvm` or `tcg`.
    """

    memory_bytes: int = 1536 << 20
    cores: int = 2
    threads_per_core: int = 2
    disks: tuple[VmDisk, ...] = (VmDisk("EMPTY"), VmDisk("DATA", holds_data=True))
    accel: Accel = "auto"
    packages: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.memory_bytes < SMALLEST_MEMORY_BYTES:
            raise ConfigError(f"a guest needs at least 512 MiB, not {self.memory_bytes >> 20}")
        if self.cores < 1 or self.threads_per_core not in (1, 2):
            raise ConfigError("a guest has at least one core, with one or two threads")
        if self.accel not in ("auto", "kvm", "tcg"):
            raise ConfigError(f"the accelerator is auto, kvm or tcg, not {self.accel!r}")
        labels = [disk.label for disk in self.disks]
        if len(set(labels)) != len(labels):
            raise ConfigError(f"two disks have the same label: {', '.join(labels)}")
        for name in self.packages:
            if not _PACKAGE.match(name):
                raise ConfigError(f"{name!r} is no name of a Debian package")

    @staticmethod
    def decode(stored: dict[str, Any]) -> "VmSpec":
        """What `dataclasses.asdict` made of one, after a way through JSON."""
        disks = tuple(VmDisk(**disk) for disk in stored["disks"])
        return VmSpec(**{**stored, "disks": disks, "packages": tuple(stored["packages"])})
