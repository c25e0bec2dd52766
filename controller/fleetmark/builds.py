"""What a build of the experiment means: its record on a host, its engines, the role's variables.

Pure. The flags of each flavour and version are in the role dbms_build (vars/main.yml), which
must also work without the controller; what is known here is what an experiment can get wrong.
"""

import hashlib
import json
import re
from pathlib import Path
from typing import Any

from fleetmark.errors import ConfigError
from fleetmark.experiment import Build, Scalar

PACKAGES = {
    "mariadb": "mariadb-server",
    "mysql": "mysql-server",
    "percona": "percona-server-server",
}
"""The distribution's package of a flavour."""

ENGINE_PACKAGES = {
    ("mariadb", "rocksdb"): "mariadb-plugin-rocksdb",
    ("mariadb", "connect"): "mariadb-plugin-connect",
    ("mariadb", "mroonga"): "mariadb-plugin-mroonga",
    ("mariadb", "oqgraph"): "mariadb-plugin-oqgraph",
    ("mariadb", "spider"): "mariadb-plugin-spider",
    ("percona", "rocksdb"): "percona-server-rocksdb",
}
"""The distribution's package of an engine that is not part of the server's own."""

BUILT_IN = frozenset({"innodb", "myisam", "memory", "csv", "mrg_myisam", "aria"})
"""Engines that no build has to be asked for; Aria is MariaDB's alone."""

_VERSIONS = {
    ("mariadb", "rocksdb"): ("10.2", ""),
    ("mariadb", "tokudb"): ("5.5", "10.6"),
    ("percona", "rocksdb"): ("5.7", ""),
    ("percona", "tokudb"): ("5.6", "8.0.28"),
}
"""From which version on, and before which one, a source has an engine (MariaDB Knowledge Base,
"MyRocks" and "TokuDB"; Percona Server's release notes of 8.0.28)."""

_URL = re.compile(r"^\w+://")


def locate(build: Build, directory: Path) -> Build:
    """The build with a local archive as an absolute path. Raises ConfigError when it is missing.

    `directory` is where the experiment's relative paths begin.
    """
    if not build.archive or build.source == "debian_source" or _URL.match(build.archive):
        return build
    path = (directory / Path(build.archive).expanduser()).absolute()
    if not path.is_file():
        raise ConfigError(
            f"build {build.name!r}: there is no file {path}",
            next_step="correct archive: it is a URL, or a path that begins where the experiment is",
        )
    return build.model_copy(update={"archive": str(path)})


def record_name(build: Build) -> str:
    """The name under which a host writes down where this build lies: its contents' digest.

    Whatever changes the result is in it but the host's compiler, which only the host knows.
    Where an archive comes from is not: its sha256 says what it is.
    """
    identity = {
        "flavour": build.flavour,
        "version": build.version,
        "contents": build.commit or build.sha256,
        "flags": _flags(build),
        "engines": sorted(build.engines),
        "binary": build.source == "tarball",
    }
    text = json.dumps(identity, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def has_record(build: Build) -> bool:
    """Whether a host writes down where this build lies, because we put it there."""
    return build.compiled or build.source == "tarball"


def record_path(build: Build, base_dir: str) -> str:
    """The file in which a host has written down this build: the stamp of what it built."""
    return f"{base_dir}/builds/records/{record_name(build)}.json"


def role_variables(build: Build) -> dict[str, Any]:
    """One entry of `provision_builds` (playbooks/tasks/builds.yml)."""
    return {
        "source": build.source,
        "flavour": build.flavour,
        "version": build.version,
        "archive": build.archive,
        "sha256": build.sha256,
        "package": build.package,
        "repository": build.repository,
        "commit": build.commit,
        "flags": _flags(build),
        "engines": list(build.engines),
        "build_on": build.build_on,
        "jobs": build.jobs,
        "record": record_name(build),
    }


def engine_packages(build: Build) -> list[str]:
    """The packages of the engines that a packaged build is asked to have."""
    return [
        ENGINE_PACKAGES[build.flavour, engine]
        for engine in build.engines
        if (build.flavour, engine) in ENGINE_PACKAGES
    ]


def check_engines(build: Build, needed: set[str], workload: str) -> None:
    """Raise ConfigError when a build cannot have an engine, or is not asked to have it.

    What is on a host already is asked there, before a run starts.
    """
    for engine in build.engines:
        _check_known(build, engine)
    missing = sorted(needed - BUILT_IN - set(build.engines))
    if missing and has_record(build) and build.source != "tarball":
        _check_known(build, missing[0])
        raise ConfigError(
            f"build {build.name!r} is compiled without {missing[0]}, which workload {workload!r}"
            " needs",
            next_step=f"add to the build: engines: [{', '.join([*build.engines, *missing])}]",
        )


def _check_known(build: Build, engine: str) -> None:
    known = {name for flavour, name in _VERSIONS if flavour == build.flavour}
    if engine in ("rocksdb", "tokudb") and engine not in known:
        raise ConfigError(f"build {build.name!r}: {build.flavour} has no engine {engine}")
    if (build.flavour, engine) not in _VERSIONS or not build.version:
        return
    first, end = _VERSIONS[build.flavour, engine]
    version = _numbers(build.version)
    if version < _numbers(first):
        raise ConfigError(f"build {build.name!r}: {build.flavour} has {engine} from {first} on")
    if end and version >= _numbers(end):
        raise ConfigError(
            f"build {build.name!r}: {build.flavour} has no {engine} from {end} on, this is"
            f" {build.version}"
        )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))


def _flags(build: Build) -> dict[str, str]:
    return {name: _flag(value) for name, value in sorted(build.flags.items())}


def _flag(value: Scalar) -> str:
    """A value as cmake takes it."""
    if isinstance(value, bool):
        return "ON" if value else "OFF"
    return str(value)
