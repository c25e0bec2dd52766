"""The source that stands in for a server's: packed, and built by the role's own program."""

import hashlib
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).parent / "files" / "standin"
PROGRAM = Path(__file__).parents[2] / "roles" / "dbms_build" / "files" / "build" / "build_job.py"
BUILT, FAILED, GOING_ON = 0, 1, 10


def pack(directory: Path) -> tuple[Path, str]:
    """The source archive and its sha256."""
    archive = directory / "standin-1.2.3.tar.gz"
    command = ["tar", "-C", str(SOURCE.parent), "-czf", str(archive), SOURCE.name]
    subprocess.run(command, check=True)
    return archive, hashlib.sha256(archive.read_bytes()).hexdigest()


@dataclass(frozen=True)
class Job:
    """One build in a work directory of its own, without Ansible."""

    root: Path
    name: str = "a"

    @property
    def work(self) -> Path:
        return self.root / "work" / self.name

    @property
    def prefix(self) -> Path:
        return self.root / f"prefix-{self.name}"

    def spec(self, archive: Path, **flags: str) -> None:
        """Write spec.json."""
        self.work.mkdir(parents=True, exist_ok=True)
        document: dict[str, Any] = {
            "version": 1,
            "flavour": "mariadb",
            "dbms_version": "1.2.3",
            "source": "archive",
            "archive": str(archive),
            "archive_name": archive.name,
            "sha256": "",
            "package": "",
            "repository": "",
            "commit": "",
            "flags": {"CMAKE_BUILD_TYPE": "RelWithDebInfo", **flags},
            "user_flags": flags,
            "engines": [],
            "digest": self.name,
            "prefix": str(self.prefix),
            "server": ["bin/mariadbd"],
            "jobs": 1,
            "memory_per_job_bytes": 1_500_000_000,
            "nice": 0,
            "ccache_dir": str(self.root / "ccache"),
            "ccache_max_size": "50M",
        }
        (self.work / "spec.json").write_text(json.dumps(document))

    def call(self, verb: str, *more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, str(PROGRAM), verb, str(self.work), *more],
            capture_output=True,
            text=True,
            check=False,
            timeout=90,
        )

    def build(self) -> subprocess.CompletedProcess[str]:
        """Start, and wait for the end."""
        assert self.call("start").returncode == 0
        return self.call("wait", "60")

    def stamp(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads((self.prefix / "fleetmark-build.json").read_text())
        return document
