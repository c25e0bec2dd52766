"""A disk that fills up under a job: it ends in time, and its journal says so."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from agent_host import AgentHost
from waiting import wait_for

from fleetmark_agent.job import Samplers

pytestmark = [
    pytest.mark.fleet,
    pytest.mark.skipif(os.geteuid() != 0, reason="not root: no filesystem of its own"),
]
SIZE = 8 << 20


@pytest.fixture
def small_disk(host: AgentHost) -> Iterator[AgentHost]:
    """A host whose base directory is a filesystem of 8 MB."""
    host.base.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(host.base)], check=False
    )
    if done.returncode:
        pytest.skip("this machine lets nobody mount")
    try:
        yield host
    finally:
        host.call("clean", "--run", host.run)
        subprocess.run(["umount", str(host.base)], check=True)


def fill(path: Path, leave: int) -> None:
    """Take all space but so much."""
    stat = os.statvfs(path)
    (path / "filler").write_bytes(b"x" * max(0, stat.f_bavail * stat.f_frsize - leave))


def test_a_job_ends_before_the_disk_is_full(small_disk):
    job = small_disk.job("01-db", samplers=Samplers(0.1), minimum_free_bytes=4 << 20)
    small_disk.arm(job)
    small_disk.release(job)
    wait_for(lambda: small_disk.of_kind(job, "released"), "release")
    fill(small_disk.base, 2 << 20)
    ended = small_disk.wait_ended(job)
    assert (ended["reason"], ended["class"]) == ("disk_full", "host")
    assert "bytes free" in ended["message"]


def test_a_full_disk_still_gets_the_last_record(small_disk):
    job = small_disk.job("01-db", samplers=Samplers(0.05), minimum_free_bytes=0)
    small_disk.arm(job)
    small_disk.release(job)
    wait_for(lambda: small_disk.of_kind(job, "host"), "samples")
    fill(small_disk.base, 0)
    ended = small_disk.wait_ended(job)
    assert (ended["reason"], ended["class"]) == ("disk_full", "host")
    assert "cannot write the journal" in ended["message"]
    # No gap and no damage: reading checks both.
    assert len(small_disk.records(job)) == ended["seq"] + 1
