"""Copy what the hosts wrote into the run directory: early and in parts, then whole and proved.

While a job runs, its journal is copied from where the local copy ends, whole lines only, so the
local file is at any moment the beginning of the remote one and its size is the next offset.
When the job has ended, every file of its manifest is compared by size and SHA-256.
"""

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleetmark.channel import Channel
from fleetmark.errors import HostError, ResultError
from fleetmark.store import sha256_of, write_atomic
from fleetmark_agent import journal

MANIFEST_NAME = "manifest.json"
SECRET_NAMES = frozenset({"secret.json", "sysbench.cnf", "init.sql"})
"""Never fetched, whatever a manifest says."""
_CHUNK_BYTES = 4 << 20


@dataclass(frozen=True)
class Source:
    """One directory on a host and its place in the run directory."""

    remote: str
    local: Path


def tail(channel: Channel, source: Source, name: str = journal.JOURNAL_NAME) -> list[bytes]:
    """Copy the whole lines that a file grew by; returns them, none while it is not there.

    Raises HostError when the host cannot be reached; the next call goes on where this one ended.
    """
    local = source.local / name
    have = local.stat().st_size if local.is_file() else 0
    try:
        data = channel.read(f"{source.remote}/{name}", have, _CHUNK_BYTES)
    except FileNotFoundError:
        return []
    lines, used = journal.split_lines(data)
    if used:
        source.local.mkdir(parents=True, exist_ok=True)
        with local.open("ab") as handle:
            handle.write(data[:used])
    return lines


def has_manifest(channel: Channel, source: Source) -> bool:
    """Whether what wrote the directory has ended."""
    try:
        channel.read(f"{source.remote}/{MANIFEST_NAME}", 0, 1)
    except FileNotFoundError:
        return False
    return True


def fetch_all(channel: Channel, source: Source) -> list[str]:
    """Copy every file of the manifest and prove each copy; returns their names.

    A file whose copy differs is fetched again once. Raises ResultError when it still differs,
    HostError when there is no manifest yet (the job has not ended).
    """
    try:
        raw = channel.read(f"{source.remote}/{MANIFEST_NAME}")
    except FileNotFoundError:
        raise HostError(
            f"{source.remote} has no manifest: what wrote it has not ended",
            host=channel.host,
            next_step="gather again when it has ended",
        ) from None
    files = _manifest(raw, channel.host, source.remote)
    for name, expected in files.items():
        _fetch(channel, source, name, expected)
    write_atomic(source.local / MANIFEST_NAME, raw)
    return list(files)


def fetch_loose(channel: Channel, source: Source, names: list[str]) -> list[str]:
    """Copy files of a directory without manifest as they are; returns those that were there."""
    found = []
    for name in names:
        try:
            data = channel.read(f"{source.remote}/{name}")
        except FileNotFoundError:
            continue
        write_atomic(source.local / name, data)
        found.append(name)
    return found


def is_whole(local: Path) -> bool:
    """Whether a directory holds a manifest and every file of it, each as long as it says."""
    path = local / MANIFEST_NAME
    if not path.is_file():
        return False
    files = _manifest(path.read_bytes(), "", str(local))
    return all(
        (local / name).is_file() and (local / name).stat().st_size == expected["bytes"]
        for name, expected in files.items()
    )


def _manifest(raw: bytes, host: str, where: str) -> dict[str, dict[str, Any]]:
    try:
        document = json.loads(raw)
        files = document["files"]
    except (ValueError, KeyError, TypeError):
        raise ResultError(f"the manifest in {where} is damaged", host=host) from None
    if document.get("version") != 1:
        raise ResultError(
            f"the manifest in {where} has version {document.get('version')!r}", host=host
        )
    wrong = [name for name in files if "/" in name or name.startswith(".")]
    if wrong:
        raise ResultError(f"the manifest in {where} names {wrong[0]!r}", host=host)
    return {name: entry for name, entry in files.items() if name not in SECRET_NAMES}


def _fetch(channel: Channel, source: Source, name: str, expected: dict[str, Any]) -> None:
    local = source.local / name
    if _same(local, expected):
        return
    for _ in range(2):
        _copy(channel, f"{source.remote}/{name}", local)
        if _same(local, expected):
            return
    raise ResultError(
        f"{name} does not arrive as its manifest says",
        host=channel.host,
        evidence=f"{expected['bytes']} bytes, sha256 {expected['sha256']} expected; {_seen(local)}",
        next_step="look at the disk and the network of the host; its file is left there",
    )


def _copy(channel: Channel, remote: str, local: Path) -> None:
    local.parent.mkdir(parents=True, exist_ok=True)
    beside = local.with_name(f".{local.name}.{os.getpid()}.tmp")
    offset = 0
    with beside.open("wb") as handle:
        while True:
            try:
                data = channel.read(remote, offset, _CHUNK_BYTES)
            except FileNotFoundError:
                break  # the comparison says so
            if not data:
                break
            handle.write(data)
            offset += len(data)
        handle.flush()
        os.fsync(handle.fileno())
    beside.replace(local)


def _same(local: Path, expected: dict[str, Any]) -> bool:
    return (
        local.is_file()
        and local.stat().st_size == expected["bytes"]
        and sha256_of(local) == expected["sha256"]
    )


def _seen(local: Path) -> str:
    data = local.read_bytes()
    return f"{len(data)} bytes, sha256 {hashlib.sha256(data).hexdigest()} came"
