"""Which disk carries the data, and sums that count nothing twice."""

import pytest

from fleetmark.tables.disks import ALL_DISKS, data_disk, disk_totals
from fleetmark.tables.journals import HostSample


def _sample(**disks: float) -> HostSample:
    known = {name.replace("_", "-"): {"writes": writes} for name, writes in disks.items()}
    return HostSample(1.0, 1.0, {}, 2, 0.0, {}, known, {}, None, None)


@pytest.mark.parametrize(
    ("device", "disk"),
    [
        ("/dev/nvme0n1p2", "nvme0n1"),
        ("/dev/sda1", "sda"),
        ("sda", "sda"),
        ("overlay", ALL_DISKS),
        ("", ALL_DISKS),
    ],
)
def test_the_disk_below_the_data_directory(device: str, disk: str) -> None:
    assert data_disk([_sample(nvme0n1=1, sda=2)], device) == disk


def test_stacked_devices_and_partitions_are_not_added_to_the_disks_below() -> None:
    sample = _sample(sda=5, sda1=4, dm_0=3, md0=2, sdb=1)
    assert disk_totals(sample, ALL_DISKS).writes == 6
    assert disk_totals(sample, "sdb").writes == 1
