"""What a running server was made of: the stamp of our build, or its package; its own words."""

import os
import shutil
import subprocess
from typing import Any, Dict, Optional

from fleetmark_agent import spool

STAMP = "fleetmark-build.json"
_TOLD = (
    "version_compile_machine",
    "version_compile_os",
    "version_comment",
    "version_source_revision",
    "version_malloc_library",
    "version_ssl_library",
)


def collect(basedir: str, binary: str, variables: Dict[str, str]) -> Dict[str, Any]:
    """`binary`, `stamp` (of a build below its own prefix, else null), `package` (of a packaged
    one, else null) and `told` (what the server itself says of its making)."""
    stamp = spool.read_json(os.path.join(basedir, STAMP)) if basedir else None
    return {
        "binary": binary,
        "stamp": stamp,
        "package": None if basedir else _package(binary),
        "told": {name: variables[name] for name in _TOLD if variables.get(name)},
    }


def _package(binary: str) -> Optional[Dict[str, str]]:
    """The distribution's package that a program belongs to."""
    path = os.path.realpath(binary)
    if shutil.which("dpkg-query"):
        owner = _said("dpkg-query", "--search", path).partition(":")[0]
        fields = r"${Package}\t${Version}\t${Architecture}"
        found = _said("dpkg-query", "--show", "--showformat=" + fields, owner) if owner else ""
    elif shutil.which("rpm"):
        fields = r"%{NAME}\t%{VERSION}-%{RELEASE}\t%{ARCH}"
        found = _said("rpm", "--query", "--file", "--queryformat", fields, path)
    else:
        found = ""
    parts = found.split("\t")
    return dict(zip(("name", "version", "architecture"), parts)) if len(parts) == 3 else None


def _said(*argv: str) -> str:
    said = subprocess.run(argv, capture_output=True, text=True, check=False)
    return said.stdout.strip() if said.returncode == 0 else ""
