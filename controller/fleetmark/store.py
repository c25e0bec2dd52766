"""The run directory: names, atomic writes, checksums, format version.

    results/<run>/run.json            format version, state, command, start and end, versions
                  experiment.yaml     the experiment as the user wrote it
                  plan.json           what was planned
                  journal.jsonl       the ledger: what happened, append-only
                  provision/<phase>/  ansible-runner events and per-host status
                  hosts/<host>/       facts.json, contract-<n>.json
                  trials/<trial>/     trial.json, dbms.json, <nn>-<step>/<host>/ as gathered
                  tables/             Parquet, rebuilt from the raw files at any time
                  report.html report.md SHA256SUMS

A run directory is only ever added to. `tables/` and the reports are derived; everything else is
evidence and has its line in SHA256SUMS.
"""

import hashlib
import json
import os
import re
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fleetmark.errors import ConfigError, ResultError

FORMAT_VERSION = 1
SUMS_NAME = "SHA256SUMS"
_DERIVED = ("tables", "report.html", "report.md", SUMS_NAME)
_RUN_ID = re.compile(r"^\d{8}T\d{6}Z-[0-9a-f]{4}$")
_SHOWN_DAMAGE = 20


def new_run_id(now: datetime | None = None) -> str:
    """An id that sorts by time: `20261201T101500Z-3fa9`."""
    return f"{now or datetime.now(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(2)}"


def is_run_id(text: str) -> bool:
    """Whether a text has the form of a run's id."""
    return _RUN_ID.fullmatch(text) is not None


def write_atomic(path: Path, data: bytes, mode: int = 0o644) -> None:
    """Write beside, fsync, rename: a reader sees the old content or the new, never half."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(fd, "wb") as handle:
        handle.write(data)
        handle.flush()
        os.fsync(handle.fileno())
    os.replace(beside, path)


def write_json(path: Path, value: Any) -> None:
    """Write a JSON document atomically, keys in the order given."""
    write_atomic(path, (json.dumps(value, indent=1, default=str) + "\n").encode())


def read_json(path: Path) -> Any:
    """Read a JSON document. Raises ResultError when it is missing or damaged."""
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        raise ResultError(
            f"{path} is missing", next_step="fleetmark results verify shows what else is missing"
        ) from None
    except ValueError as error:
        raise ResultError(f"{path} is not JSON: {error}") from None


def read_versioned(path: Path) -> dict[str, Any]:
    """Read a JSON document of the run and refuse a version that this program does not know."""
    document = read_json(path)
    found = document.get("version") if isinstance(document, dict) else None
    if found != FORMAT_VERSION:
        raise ResultError(
            f"{path} has format version {found!r}, this program reads {FORMAT_VERSION}",
            next_step="read it with the version of fleetmark that wrote it (see run.json)",
        )
    return dict(document)


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file, as hex."""
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


@dataclass(frozen=True)
class RunDirectory:
    """Names inside one run directory."""

    path: Path

    @property
    def run_id(self) -> str:
        """The run's id: the name of its directory."""
        return self.path.name

    @property
    def run_json(self) -> Path:
        """Format version, state, command, times, versions."""
        return self.path / "run.json"

    @property
    def experiment_yaml(self) -> Path:
        """The experiment as the user wrote it."""
        return self.path / "experiment.yaml"

    @property
    def plan_json(self) -> Path:
        """What was planned."""
        return self.path / "plan.json"

    @property
    def ledger(self) -> Path:
        """What happened, append-only."""
        return self.path / "journal.jsonl"

    @property
    def tables(self) -> Path:
        """Parquet tables."""
        return self.path / "tables"

    def host(self, host: str) -> Path:
        """Evidence about a host."""
        return self.path / "hosts" / host

    def provision(self, phase: str) -> Path:
        """What Ansible did in one phase."""
        return self.path / "provision" / phase

    def trial(self, trial: str) -> Path:
        """All of one trial."""
        return self.path / "trials" / trial

    def step(self, trial: str, step: str, host: str) -> Path:
        """The raw files of one step from one host."""
        return self.trial(trial) / step / host


def create(results: Path, run_id: str | None = None) -> RunDirectory:
    """Make a new, empty run directory. Never reuses one."""
    directory = RunDirectory(results / (run_id or new_run_id()))
    try:
        directory.path.mkdir(parents=True)
    except OSError as error:
        raise ConfigError(
            f"cannot make the run directory {directory.path}: {error.strerror}",
            next_step="choose another place with --results",
        ) from None
    return directory


def find(results: Path, run: str) -> RunDirectory:
    """A run by directory, by id, by a unique beginning of its id, or `latest`."""
    as_path = Path(run)
    if (as_path / "run.json").is_file():
        return RunDirectory(as_path.resolve())
    ids = [directory.run_id for directory in list_runs(results)]
    matches = ids[-1:] if run == "latest" else [i for i in ids if i.startswith(run)]
    if len(matches) == 1:
        return RunDirectory((results / matches[0]).resolve())
    problem = f"{len(matches)} runs begin with" if matches else "no run is named"
    raise ConfigError(
        f"{problem} {run!r} in {results}", next_step="list them: fleetmark results ls"
    )


def list_runs(results: Path) -> list[RunDirectory]:
    """All runs below `results`, oldest first."""
    if not results.is_dir():
        return []
    names = sorted(p.name for p in results.iterdir() if _RUN_ID.match(p.name))
    return [RunDirectory(results / n) for n in names if (results / n / "run.json").is_file()]


def is_evidence(name: Path) -> bool:
    """Whether a file, by its name relative to the run, is one that must never change."""
    return name.parts[0] not in _DERIVED and not name.name.endswith(".tmp")


def is_stored(name: Path) -> bool:
    """Whether a file belongs to what a run is: its evidence, and the checksums of it."""
    return is_evidence(name) or name == Path(SUMS_NAME)


def evidence_files(directory: RunDirectory) -> Iterator[Path]:
    """Every file that must never change, in sorted order, as paths relative to the run."""
    for path in sorted(directory.path.rglob("*")):
        relative = path.relative_to(directory.path)
        if path.is_file() and is_evidence(relative):
            yield relative


def write_sums(directory: RunDirectory) -> None:
    """Write SHA256SUMS over all evidence; `sha256sum -c` reads it."""
    lines = [f"{sha256_of(directory.path / p)}  {p.as_posix()}" for p in evidence_files(directory)]
    write_atomic(directory.path / SUMS_NAME, ("\n".join(lines) + "\n").encode())


@dataclass(frozen=True)
class Damage:
    """One file that is not as it was stored."""

    path: str
    problem: str


def verify_sums(directory: RunDirectory) -> tuple[int, list[Damage]]:
    """Check every checksum: how many files were checked, and the damage found.

    Raises ResultError when there is no SHA256SUMS (the run is still going, or was cut off).
    """
    sums = directory.path / SUMS_NAME
    if not sums.is_file():
        raise ResultError(
            f"run {directory.run_id} has no {SUMS_NAME}: it has not ended, or was cut off",
            next_step=f"fleetmark gather {directory.run_id} fetches what the hosts still hold",
        )
    expected: dict[str, str] = {}
    for line in sums.read_text().splitlines():
        digest, _, name = line.partition("  ")
        expected[name] = digest
    present = {p.as_posix() for p in evidence_files(directory)}
    damage = [Damage(name, "missing") for name in sorted(set(expected) - present)]
    damage += [Damage(name, "not in SHA256SUMS") for name in sorted(present - set(expected))]
    for name in sorted(present & set(expected)):
        if sha256_of(directory.path / name) != expected[name]:
            damage.append(Damage(name, "checksum differs"))
    return len(expected), damage


def verify_whole(directory: RunDirectory) -> int:
    """How many files the checksums stand for. Raises ResultError naming what is damaged."""
    checked, damage = verify_sums(directory)
    refuse_damaged(directory.run_id, checked, damage)
    return checked


def refuse_damaged(run_id: str, checked: int, damage: Sequence[Damage]) -> None:
    """Raise ResultError when there is any damage, naming the first of it."""
    if damage:
        lines = [f"{d.path}: {d.problem}" for d in damage[:_SHOWN_DAMAGE]]
        if left := len(damage) - len(lines):
            lines.append(f"and {left} more (fleetmark results verify --json lists all)")
        raise ResultError(
            f"run {run_id} is damaged: {len(damage)} of {checked} files",
            evidence="\n".join(lines),
            next_step="its numbers cannot be trusted; take the run from a copy",
        )
