"""Virtual machines for many minutes: only where they are asked for."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from vm_hosts import VmFleet, vm_lab_of

from fleetmark import lab

HERE = Path(__file__).parent
THROTTLED_IOPS = 40


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip with a word unless `make lab-test` runs them."""
    if "FLEETMARK_LAB_TEST" in os.environ:
        return
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.skip(reason="takes many minutes: make lab-test"))


@pytest.fixture(scope="session")
def two_guests() -> Iterator[VmFleet]:
    """db1 and load1; beside the usual disks each has one that is throttled."""
    disks = (*lab.VmSpec().disks, lab.VmDisk("SLOW", 1 << 28, iops=THROTTLED_IOPS, cache="none"))
    with vm_lab_of(1, 1, lab.VmSpec(disks=disks)) as fleet:
        yield fleet
