"""Declared state against facts."""

from typing import Any

import pytest

from fleetmark.contract import Deviation, changed, check, checked_items
from fleetmark.experiment import Contract

FACTS: dict[str, Any] = {
    "boot_id": "b1",
    "kernel": "6.1.0-28-amd64",
    "clocksource": "tsc",
    "transparent_hugepages": "madvise",
    "swappiness": 60,
    "cpu": {"governor": "performance", "smt_active": True, "smt_control": "on"},
    "data": {
        "filesystem": "ext4",
        "mount_options": ["rw", "noatime", "discard"],
        "scheduler": "none",
    },
}


@pytest.mark.parametrize(
    "declared",
    [
        {"smt": "on"},
        {"governor": "performance"},
        {"kernel": "6.1.0-28-amd64"},
        {"kernel": "6.1.*"},
        {"clocksource": "tsc"},
        {"transparent_hugepages": "madvise"},
        {"swappiness": 60},
        {"data_filesystem": "ext4"},
        {"data_mount_options": ["noatime", "discard"]},
        {"data_scheduler": "none"},
        {},
    ],
)
def test_kept(declared: dict[str, Any]) -> None:
    contract = Contract(**declared)
    assert check(contract, FACTS) == []
    assert checked_items(contract) == list(declared)


@pytest.mark.parametrize(
    ("declared", "deviation"),
    [
        ({"smt": "off"}, Deviation("smt", "off", "on")),
        ({"governor": "powersave"}, Deviation("governor", "powersave", "performance")),
        ({"kernel": "6.6.*"}, Deviation("kernel", "6.6.*", "6.1.0-28-amd64")),
        ({"swappiness": 1}, Deviation("swappiness", "1", "60")),
        ({"data_filesystem": "xfs"}, Deviation("data_filesystem", "xfs", "ext4")),
        (
            {"data_mount_options": ["noatime", "nobarrier"]},
            Deviation("data_mount_options", "noatime,nobarrier", "rw,noatime,discard"),
        ),
    ],
)
def test_broken(declared: dict[str, Any], deviation: Deviation) -> None:
    assert check(Contract(**declared), FACTS) == [deviation]


def test_what_cannot_be_read_is_not_kept() -> None:
    facts = {**FACTS, "clocksource": None, "cpu": {"governor": None, "smt_active": None}}
    contract = Contract(smt="off", governor="performance", clocksource="tsc")
    assert {(d.item, d.observed) for d in check(contract, facts)} == {
        ("smt", "not readable"),
        ("governor", "not readable"),
        ("clocksource", "not readable"),
    }


def test_a_reboot_and_a_changed_governor_show_without_being_declared() -> None:
    after = {**FACTS, "boot_id": "b2", "cpu": {**FACTS["cpu"], "governor": "powersave"}}
    assert changed(FACTS, FACTS) == []
    assert changed(FACTS, after) == [
        Deviation("boot_id", "b1", "b2"),
        Deviation("governor", "performance", "powersave"),
    ]
