"""The agent as one file: a zipapp of the installed packages, for hosts without pip or internet.

The same packages (and zlib) give the same bytes: files are sorted, times and modes fixed.
Only pure-Python packages go in, so the file runs on any Python from 3.9 on.
"""

import hashlib
import importlib.metadata
import importlib.util
import io
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fleetmark.errors import InfrastructureError
from fleetmark.store import write_atomic

AGENT_PACKAGE = "fleetmark_agent"
DEPENDENCIES = {"PyMySQL": "pymysql", "prometheus-client": "prometheus_client"}
"""What the agent needs beside the standard library: distribution -> package."""

_SHEBANG = b"#!/usr/bin/env python3\n"
_MAIN = "import sys\n\nfrom fleetmark_agent.__main__ import main\n\nsys.exit(main())\n"
_EPOCH = (1980, 1, 1, 0, 0, 0)
_LEFT_OUT_NAMES = frozenset({"__pycache__", "tests", "test", "py.typed"})
_LEFT_OUT_SUFFIXES = frozenset({".pyc", ".pyi", ".so", ".tmp"})
_OPTIONAL_PARTS = frozenset(
    f"prometheus_client/{part}" for part in ("aiohttp", "bridge", "django", "twisted")
)
"""Bridges to web frameworks, which nothing else in prometheus_client imports."""


@dataclass(frozen=True)
class Bundle:
    """An agent zipapp and the checksum that stamps it."""

    path: Path
    sha256: str


def build(destination: Path) -> Bundle:
    """Write the agent's zipapp to the file `destination` (atomically) and return its stamp.

    Raises InfrastructureError when a package is not installed.
    """
    archive = io.BytesIO()
    archive.write(_SHEBANG)
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as bundle:
        for name, data in sorted(_contents()):
            entry = zipfile.ZipInfo(name, date_time=_EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.create_system = 3
            entry.external_attr = 0o100644 << 16
            bundle.writestr(entry, data)
    content = archive.getvalue()
    write_atomic(destination, content, 0o755)
    return Bundle(destination, hashlib.sha256(content).hexdigest())


def _contents() -> Iterator[tuple[str, bytes]]:
    yield "__main__.py", _MAIN.encode()
    for package in (AGENT_PACKAGE, *DEPENDENCIES.values()):
        yield from _package_files(package)
    for distribution in DEPENDENCIES:
        yield from _licence_files(distribution)


def _package_files(package: str) -> Iterator[tuple[str, bytes]]:
    specification = importlib.util.find_spec(package)
    locations = specification.submodule_search_locations if specification else None
    if not locations:
        raise InfrastructureError(
            f"the Python package {package} is not installed, so the agent cannot be built",
            next_step="install Fleetmark with its dependencies: pip install .",
        )
    root = Path(locations[0])
    for path in sorted(root.rglob("*")):
        relative = path.relative_to(root)
        name = f"{package}/{relative.as_posix()}"
        if path.is_file() and _belongs(relative) and not name.startswith(tuple(_OPTIONAL_PARTS)):
            yield name, path.read_bytes()


def _belongs(relative: Path) -> bool:
    parts = relative.parts
    return (
        not _LEFT_OUT_NAMES.intersection(parts)
        and not any(part.startswith(".") for part in parts)
        and relative.suffix not in _LEFT_OUT_SUFFIXES
    )


def _licence_files(distribution: str) -> Iterator[tuple[str, bytes]]:
    """The dependencies' licences travel with their code."""
    for file in importlib.metadata.files(distribution) or []:
        if file.name.upper().startswith(("LICENSE", "LICENCE", "NOTICE", "COPYING")):
            yield f"licenses/{distribution}/{file.name}", file.read_binary()
