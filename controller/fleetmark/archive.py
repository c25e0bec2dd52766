"""A run as one file, and a run from elsewhere taken in: only evidence, only as it was stored.

An archive is a .tar.gz of one directory, named by the run's id, with the evidence and its
SHA256SUMS. Tables and reports are left out on both ways: no checksum speaks for them, and they
are made again from the evidence.
"""

import gzip
import os
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from fleetmark import store
from fleetmark.errors import ConfigError, InfrastructureError, ResultError

_UNREADABLE = (tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError)


@dataclass(frozen=True)
class Imported:
    """A run that was taken in, and how many files its checksums stand for."""

    run: store.RunDirectory
    files: int


def export(run: store.RunDirectory, archive: Path) -> int:
    """Write a run as one file; returns how many files its checksums stand for.

    The same run gives the same bytes each time. Raises ResultError when the run has not ended or
    is damaged, ConfigError when the archive is there already, InfrastructureError when it cannot
    be written.
    """
    files = store.verify_whole(run)
    if archive.exists():
        raise ConfigError(f"{archive} is there already", next_step="choose another name")
    with _writing(archive.parent):
        archive.parent.mkdir(parents=True, exist_ok=True)
        beside = archive.with_name(f".{archive.name}.{os.getpid()}.tmp")
        try:
            with beside.open("xb") as handle:
                _pack(run, handle)
                handle.flush()
                os.fsync(handle.fileno())
            beside.replace(archive)
        finally:
            beside.unlink(missing_ok=True)
    return files


def _pack(run: store.RunDirectory, handle: IO[bytes]) -> None:
    # No time of packing in the head; two names of one file are two files.
    with (
        gzip.GzipFile("", "wb", fileobj=handle, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", dereference=True) as tar,
    ):
        for name in (*store.evidence_files(run), Path(store.SUMS_NAME)):
            tar.add(run.path / name, f"{run.run_id}/{name.as_posix()}", filter=_plain)


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """A file without its owner, which means nothing on another machine."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mode = 0o644
    member.mtime = int(member.mtime)
    return member


def bring_in(source: Path, results: Path) -> Imported:
    """Take in a run from its directory or its archive.

    It is copied beside the other runs, checked against its SHA256SUMS, and only then given its
    name: what fails leaves nothing behind. Raises ConfigError when there is no run at `source` or
    it is in `results` already, ResultError when it is damaged or holds what no run holds,
    InfrastructureError when it cannot be read or written.
    """
    if not source.exists():
        raise ConfigError(
            f"{source} is not there",
            next_step="name a run's directory, or a .tar.gz that `results export --archive` wrote",
        )
    with _writing(results):
        results.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=results, prefix=".import-") as beside:
            copy = Path(beside) / "run"
            if source.is_dir():
                _copy_directory(source, copy)
            else:
                _unpack(source, copy)
            run = store.RunDirectory(copy.rename(copy.with_name(_run_id(source, copy))))
            place = results / run.run_id
            if place.exists():
                raise ConfigError(
                    f"run {run.run_id} is in {results} already",
                    next_step=f"look at it: fleetmark results show {run.run_id}",
                )
            files = store.verify_whole(run)
            run.path.rename(place)
    return Imported(store.RunDirectory(place), files)


@contextmanager
def _writing(directory: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InfrastructureError(
            f"cannot copy the run: {error.strerror or error}",
            evidence=str(error),
            next_step=f"see that it can be read, and that {directory} can be written and has space",
        ) from None


def _run_id(source: Path, copy: Path) -> str:
    """The id that the run itself tells: directories and archives get other names on their way."""
    if not (copy / "run.json").is_file():
        raise ConfigError(
            f"{source} holds no run: there is no run.json in it",
            next_step="name the directory of one run, not the one of all",
        )
    run_id = store.read_versioned(copy / "run.json").get("run")
    if not isinstance(run_id, str) or not store.is_run_id(run_id):
        raise ResultError(f"{source}: run.json names a run {run_id!r}, which is no id of a run")
    return run_id


def _copy_directory(source: Path, copy: Path) -> None:
    for path in sorted(source.rglob("*")):
        name = path.relative_to(source)
        if path.is_symlink():
            raise ResultError(
                f"{path} is a link; a run has none",
                next_step="import a copy that holds the files themselves",
            )
        if path.is_file() and store.is_stored(name):
            with path.open("rb") as content:
                _write(copy / name, content)


def _unpack(source: Path, copy: Path) -> None:
    """Only regular files below one directory; a name that leads elsewhere is refused."""
    try:
        with tarfile.open(source, "r:gz") as tar:
            for member in tar:
                if not member.isdir():
                    _unpack_file(tar, member, copy)
    except _UNREADABLE as error:
        raise ResultError(
            f"{source} cannot be read as a .tar.gz: {error}",
            next_step="it was cut off or is another kind of file; copy it again",
        ) from None


def _unpack_file(tar: tarfile.TarFile, member: tarfile.TarInfo, copy: Path) -> None:
    path = PurePosixPath(member.name)
    content = tar.extractfile(member) if member.isreg() else None
    if content is None or path.is_absolute() or ".." in path.parts or len(path.parts) < 2:
        raise ResultError(
            f"the archive holds {member.name!r}, which no run holds",
            evidence="only regular files below one directory are taken",
            next_step="do not trust it; get the run from where it was made",
        )
    name = Path(*path.parts[1:])
    if (copy / name).exists():
        raise ResultError(
            f"the archive holds {member.name!r} twice",
            next_step="get the run from where it was made",
        )
    if store.is_stored(name):
        if member.size > shutil.disk_usage(copy.parent).free:
            raise InfrastructureError(
                f"no space for {name}: {member.size:,} bytes",
                next_step="make room, or choose another place with --results",
            )
        _write(copy / name, content)


def _write(path: Path, content: IO[bytes]) -> None:
    """Write a new file that outlives a power cut."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("xb") as handle:
        shutil.copyfileobj(content, handle)
        handle.flush()
        os.fsync(handle.fileno())
