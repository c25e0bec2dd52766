"""What an experiment asks of its hosts: CPU policy, disks, file systems, limits, clock.

Pure models, and what follows from them: the roles' variables, and the contract that hosts which
were tuned so must keep.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

_UNSHOWN_OPTIONS = {"defaults", "rw", "suid", "dev", "exec", "auto", "nouser", "async", "nofail"}
"""Mount options that the kernel does not list, since they are what it does anyway."""


def _switch(value: Any) -> Any:
    """YAML reads a bare `off` as false; here the word is meant."""
    return {True: "on", False: "off"}.get(value, value) if isinstance(value, bool) else value


Switch = Annotated[Literal["on", "off"], BeforeValidator(_switch)]
Timer = Annotated[Literal["on", "off", "leave"], BeforeValidator(_switch)]
MountPoint = Annotated[str, Field(pattern=r"^(/[A-Za-z0-9._-]+)+$")]


class Part(BaseModel):
    """A part of the file; unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class CpuTuning(Part):
    """SMT, frequency, idle states and memory policy; a key left out is not touched."""

    smt: Switch | None = None
    smt_by: Literal["sys", "cmdline"] = "sys"
    governor: str | None = None
    boost: Switch | None = None
    idle_latency_us: int | None = Field(default=None, ge=0)
    numa_balancing: Switch | None = None
    transparent_hugepages: Literal["always", "madvise", "never"] | None = None
    swappiness: int | None = Field(default=None, ge=0, le=200)


class DiskChoice(Part):
    """Which disks: all that is given must match, and exactly `count` disks must."""

    serial: str = ""
    model: str = ""
    size_bytes: int = Field(default=0, ge=0)
    count: int = Field(default=1, ge=1)

    @model_validator(mode="after")
    def _names_something(self) -> "DiskChoice":
        if not (self.serial or self.model or self.size_bytes):
            raise ValueError("a disk is named by serial, model or size_bytes")
        if self.serial and self.count > 1:
            raise ValueError("one serial is one disk; count does not go with it")
        return self

    @property
    def words(self) -> str:
        """The choice as a person would say it."""
        keys = [key for key in ("serial", "model", "size_bytes") if getattr(self, key)]
        what = " and ".join(f"{key} {getattr(self, key)}" for key in keys)
        return what if self.count == 1 else f"{self.count} of {what}"


class Storage(Part):
    """A file system that is made on disks and mounted."""

    mount: MountPoint
    disks: list[DiskChoice] = Field(min_length=1)
    filesystem: Literal["ext4", "xfs"] = "ext4"
    raid: Literal["none", "0", "1", "10"] = "none"
    lvm: bool = False
    label: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{0,12}$")] = "fleetmark"
    mkfs_options: list[str] = Field(default_factory=list)
    mount_options: list[str] = Field(default_factory=lambda: ["noatime", "discard"])
    owner: str = ""

    @model_validator(mode="before")
    @classmethod
    def _raid_is_a_word(cls, given: Any) -> Any:
        """YAML reads a bare 0, 1 or 10 as a number."""
        if isinstance(given, dict) and type(given.get("raid")) is int:
            return {**given, "raid": str(given["raid"])}
        return given

    @model_validator(mode="after")
    def _disks_make_a_volume(self) -> "Storage":
        count = sum(choice.count for choice in self.disks)
        if self.raid != "none" and count < 2:
            raise ValueError(f"raid: {self.raid} needs at least two disks")
        if self.raid == "none" and not self.lvm and count > 1:
            raise ValueError(f"{count} disks and one file system: say raid (0, 1, 10) or lvm: true")
        return self


class DiskTuning(Part):
    """How disks are driven; a key left out is not touched."""

    disks: list[DiskChoice] = Field(min_length=1)
    scheduler: str = ""
    read_ahead_kib: int | None = Field(default=None, ge=0)
    lba_bytes: Literal[512, 4096] | None = None


class Limits(Part):
    """What a DBMS may have."""

    open_files: int = Field(default=1_048_576, ge=1024)
    locked_memory: Annotated[str, Field(pattern=r"^(unlimited|\d+)$")] = "unlimited"
    aio_requests: int = Field(default=1_048_576, ge=65_536)


class TimeSync(Part):
    """A clock kept by chrony."""

    servers: list[str] = Field(default_factory=list)
    bound_seconds: float = Field(default=0.05, gt=0)
    wait_seconds: int = Field(default=0, ge=0)


class Monitoring(Part):
    """The stock exporters, on loopback."""

    node: bool = True
    mysqld: bool = False


class HostTuning(Part):
    """What is made of a host; a part left out is not touched."""

    cpu: CpuTuning | None = None
    nvme: list[DiskTuning] = Field(default_factory=list)
    storage: list[Storage] = Field(default_factory=list)
    fstrim_timer: Timer = "leave"
    limits: Limits | None = None
    time_sync: TimeSync | None = None
    monitoring: Monitoring | None = None

    @model_validator(mode="after")
    def _storage_does_not_meet(self) -> "HostTuning":
        points = [each.mount for each in self.storage]
        twice = sorted({point for point in points if points.count(point) > 1})
        if twice:
            raise ValueError(f"storage: two file systems have the mount {twice[0]!r}")
        return self


class WipeConsent(Part):
    """One disk of one host of which all may be lost."""

    host: str = Field(min_length=1)
    serial: str = Field(min_length=1)


def merged(parts: list[HostTuning]) -> HostTuning:
    """Later parts win, key by key; lists are taken whole."""
    result: dict[str, Any] = {}
    for part in parts:
        for key, value in part.model_dump(exclude_unset=True).items():
            old = result.get(key)
            if isinstance(old, dict) and isinstance(value, dict):
                result[key] = {**old, **value}
            else:
                result[key] = value
    return HostTuning.model_validate(result)


def implied_contract(tuning: HostTuning, data_dir: str) -> dict[str, Any]:
    """The keys of a contract that a host so tuned must keep (`experiment.Contract`).

    What a virtual machine may lack counts only where there is such a thing. The storage items
    follow from the file system that holds `data_dir`.
    """
    keys: dict[str, Any] = {}
    cpu = tuning.cpu or CpuTuning()
    for key in ("smt", "governor", "transparent_hugepages", "swappiness"):
        if (value := getattr(cpu, key)) is not None:
            keys[key] = value
    if cpu.governor is not None:
        keys["where_there_is_one"] = ["governor"]
    for storage in sorted(tuning.storage, key=lambda each: len(each.mount)):
        if f"{data_dir}/".startswith(f"{storage.mount}/"):
            keys["data_filesystem"] = storage.filesystem
            shown = [o for o in storage.mount_options if o not in _UNSHOWN_OPTIONS]
            keys["data_mount_options"] = shown
            for each in tuning.nvme:
                # A disk's scheduler is that of the data when the choice is the very same.
                if each.scheduler and each.disks == storage.disks:
                    keys["data_scheduler"] = each.scheduler
    return keys


def role_variables(tuning: HostTuning) -> dict[str, Any]:
    """One host's entry of `provision_tuning` (playbooks/provision.yml)."""
    return tuning.model_dump(exclude_none=True)
