"""What an experiment is: what to compare, on which hosts, how often."""

import re
from typing import Annotated, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    InstanceOf,
    SerializeAsAny,
    ValidationInfo,
    field_validator,
    model_validator,
)

from fleetmark.experiment.places import nearest
from fleetmark.tuning import HostTuning, WipeConsent
from fleetmark.workloads import Workload

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,39}$")]
Scalar = bool | int | float | str


class Strict(BaseModel):
    """A part of the file; unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class TargetRule(Strict):
    """Which hosts work together, when the file does not list targets one by one."""

    db: str = "db"
    load: str = "load"


class Target(Strict):
    """One database host with the load hosts that drive it."""

    name: Name
    db: str
    load: list[str] = Field(min_length=1)


class Build(Strict):
    """A DBMS flavour and where it comes from.

    `source` decides which other keys there are:

    - `package`: the distribution's;
    - `prefix`: what is on the hosts below `basedir` already;
    - `archive`: compiled from a source archive, a URL or a local path;
    - `git`: compiled from one commit of a repository;
    - `debian_source`: compiled from the upstream archive of a Debian source package, taken from
      the pool that the host's own apt is set up for;
    - `tarball`: a binary archive.
    """

    name: Name
    flavour: Literal["mariadb", "mysql", "percona"] = "mariadb"
    source: Literal["package", "prefix", "archive", "git", "debian_source", "tarball"] = "package"
    basedir: str = ""
    version: Annotated[str, Field(pattern=r"^(\d+(\.\d+)+[A-Za-z0-9.~-]*)?$")] = ""
    archive: str = ""
    sha256: str = ""
    package: Annotated[str, Field(pattern=r"^([a-z0-9][a-z0-9.+-]+)?$")] = ""
    repository: str = ""
    commit: str = ""
    flags: dict[Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_]*$")], Scalar] = Field(
        default_factory=dict
    )
    engines: list[Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]] = Field(default_factory=list)
    build_on: Literal["each", "first"] = "each"
    jobs: int = Field(default=0, ge=0)

    @property
    def compiled(self) -> bool:
        """Whether we compile it ourselves."""
        return self.source in ("archive", "git", "debian_source")

    @field_validator("sha256", "commit")
    @classmethod
    def _whole_digest(cls, value: str, info: ValidationInfo) -> str:
        digits = {"sha256": 64, "commit": 40}[str(info.field_name)]
        if value and not re.fullmatch(f"[0-9a-f]{{{digits}}}", value):
            raise ValueError(
                f"{info.field_name} is {digits} hexadecimal digits in small letters, this has"
                f" {len(value)} characters: {value!r}"
            )
        return value

    @model_validator(mode="after")
    def _keys_fit_the_source(self) -> "Build":
        needed, allowed = _BUILD_KEYS[self.source]
        for key in needed:
            if not getattr(self, key):
                raise ValueError(f"source: {self.source} needs {key}{_HINTS.get(key, '')}")
        for key, field in type(self).model_fields.items():
            if key in ("name", "flavour", "source", *needed, *allowed):
                continue
            if getattr(self, key) != field.get_default(call_default_factory=True):
                raise ValueError(f"{key} does not go with source: {self.source}")
        return self


_COMPILE_KEYS = ("flags", "engines", "build_on", "jobs")
_BUILD_KEYS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "package": ((), ("engines",)),
    "prefix": (("basedir",), ("engines",)),
    "archive": (("version", "archive", "sha256"), _COMPILE_KEYS),
    "git": (("version", "repository", "commit"), _COMPILE_KEYS),
    "debian_source": (("version", "package", "sha256"), ("archive", *_COMPILE_KEYS)),
    "tarball": (("archive", "sha256"), ("version", "engines")),
}
"""For each source the keys that it needs, and those that it may have."""

_HINTS = {
    "sha256": ": what sha256sum prints of the archive, compared with what its makers publish",
    "commit": ": all 40 digits, since a branch or a tag may move",
}


class Config(Strict):
    """A my.cnf: a file, variables in place, or a patch on another config.

    Values may hold `{{ }}` over the host's facts, for instance
    `{{ (memory_bytes * 0.5) | int }}`.
    """

    name: Name
    extends: str = ""
    file: str = ""
    set: dict[str, Scalar | None] = Field(default_factory=dict)


class Policy(Strict):
    """What to do when a part fails."""

    not_ready: Literal["abort", "continue"] = "abort"
    failed_trial: Literal["stop", "continue"] = "continue"
    start_error_limit_seconds: float = Field(default=0.050, gt=0)
    minimum_overlap: float = Field(default=0.90, gt=0, le=1)
    outlive_limit_seconds: float = Field(default=600.0, gt=0)


class Metrics(Strict):
    """The live metrics that the controller serves."""

    listen: str = "127.0.0.1:9518"
    linger_seconds: float = Field(default=20.0, ge=0)


class Contract(Strict):
    """The declared state of the hosts; a key left out is not checked.

    Items of `where_there_is_one` count only on hosts that have such a thing at all.
    """

    smt: Literal["on", "off"] | None = None
    governor: str | None = None
    kernel: str | None = None
    clocksource: str | None = None
    transparent_hugepages: str | None = None
    data_filesystem: str | None = None
    data_mount_options: list[str] = Field(default_factory=list)
    data_scheduler: str | None = None
    swappiness: int | None = None
    where_there_is_one: list[Literal["governor"]] = Field(default_factory=list)


class Experiment(Strict):
    """What to compare, on which hosts, how often."""

    fleetmark: Literal[1]
    name: Name
    description: str = ""
    inventory: str = ""
    targets: TargetRule | list[Target] = Field(default_factory=TargetRule)
    builds: list[Build] = Field(min_length=1)
    configs: list[Config] = Field(min_length=1)
    workloads: list[SerializeAsAny[InstanceOf[Workload]]] = Field(min_length=1)
    repeats: int = Field(default=1, ge=1)
    order: Literal["as_written", "rotated"] = "as_written"
    hosts: dict[str, HostTuning] = Field(default_factory=dict)
    confirm_wipe: list[WipeConsent] = Field(default_factory=list)
    contract: dict[str, Contract] = Field(default_factory=dict)
    policy: Policy = Field(default_factory=Policy)
    metrics: Metrics = Field(default_factory=Metrics)

    @model_validator(mode="after")
    def _names_are_unique_and_resolve(self) -> "Experiment":
        for what, names in (
            ("builds", [b.name for b in self.builds]),
            ("configs", [c.name for c in self.configs]),
            ("workloads", [w.label for w in self.workloads]),
            ("targets", [t.name for t in self.targets] if isinstance(self.targets, list) else []),
        ):
            twice = sorted({n for n in names if names.count(n) > 1})
            if twice:
                raise ValueError(f"{what}: the name {twice[0]!r} is used twice")
        self._check_extends()
        self._check_targets()
        return self

    def _check_extends(self) -> None:
        by_name = {c.name: c for c in self.configs}
        for config in self.configs:
            chain = [config.name]
            while parent := by_name[chain[-1]].extends:
                if parent not in by_name:
                    raise ValueError(
                        f"config {chain[-1]!r} extends {parent!r}, which is not there"
                        + nearest(parent, list(by_name))
                    )
                if parent in chain:
                    raise ValueError(f"config {config.name!r} extends itself: {chain}")
                chain.append(parent)

    def _check_targets(self) -> None:
        if isinstance(self.targets, TargetRule):
            return
        seen: dict[str, str] = {}
        for target in self.targets:
            for host in [target.db, *target.load]:
                if host in seen:
                    raise ValueError(
                        f"host {host!r} is in target {seen[host]!r} and in target {target.name!r};"
                        " a host belongs to one target"
                    )
                seen[host] = target.name
