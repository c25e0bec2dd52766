"""Disposable fleets for tests: real sshd in network namespaces."""

import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from fleetmark import inventory, lab
from fleetmark.inventory import Fleet


@dataclass(frozen=True)
class LightFleet:
    """A lab of light hosts that is up."""

    name: str
    inventory: Path
    fleet: Fleet

    def ssh(self, host: str, command: str) -> str:
        """What a shell command prints on a host; the test fails when the command does."""
        there = self.fleet.hosts[host]
        options = ["-o", f"UserKnownHostsFile={there.known_hosts_file}", "-o", "BatchMode=yes"]
        options += ["-o", "StrictHostKeyChecking=yes", "-i", there.key_file]
        done = subprocess.run(
            ["ssh", *options, f"{there.user}@{there.address}", command],
            capture_output=True,
            text=True,
            check=False,
            timeout=30,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()


def why_no_light_hosts(spec: lab.LabSpec) -> str:
    """Why light hosts cannot be made here; empty when they can."""
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        return "light hosts need root on Linux"
    if lab.default_kind() != "light":
        return "light hosts need the right to make network namespaces"
    missing = lab.missing_packages(spec)
    return f"not installed: {', '.join(missing)}" if missing else ""


@contextmanager
def light_lab(db: int, load: int) -> Iterator[LightFleet]:
    """A lab with a name of its own, taken down at the end."""
    spec = lab.LabSpec(f"t-{secrets.token_hex(4)}", "light", db, load)
    if why := why_no_light_hosts(spec):
        pytest.skip(why)
    path = lab.up(spec, lambda _: None)
    try:
        yield LightFleet(spec.name, path, inventory.load(path))
    finally:
        lab.down(spec.name)
