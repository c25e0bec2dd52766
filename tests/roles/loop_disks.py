"""Disks for tests: loop devices upon files of our own. Their serial is the file's path."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import pytest

SIZE_BYTES = 48 << 20


@dataclass(frozen=True)
class LoopDisk:
    """A disk that is a file."""

    path: Path
    device: str

    @property
    def name(self) -> str:
        """Its name in /sys."""
        return os.path.basename(self.device)

    @property
    def serial(self) -> str:
        """What it is chosen by."""
        return str(self.path)

    def digest(self) -> str:
        """Of every byte on it."""
        os.sync()
        return sha256(self.path.read_bytes()).hexdigest()

    def call(self, *command: str) -> None:
        """Run a program with the device as its last word."""
        call(*command, self.device)


def call(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextmanager
def loop_disk(path: Path) -> Iterator[LoopDisk]:
    """An empty disk; skips where loop devices cannot be made."""
    if os.geteuid() != 0 or shutil.which("losetup") is None:
        pytest.skip("loop devices need root and losetup")
    with path.open("wb") as handle:
        handle.truncate(SIZE_BYTES)
    done = subprocess.run(
        ["losetup", "--find", "--show", "--partscan", str(path)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        pytest.skip(f"no loop device can be made: {done.stderr.strip()}")
    disk = LoopDisk(path, done.stdout.strip())
    # The device remembers that of whoever had it before.
    disk.call("blockdev", "--setrw")
    try:
        yield disk
    finally:
        subprocess.run(["umount", disk.device], capture_output=True, check=False)
        call("losetup", "--detach", disk.device)
