"""What can be asked of guests, and what their names and recipes are made of."""

import json
from dataclasses import asdict
from typing import Any

import pytest

from fleetmark import lab
from fleetmark.errors import ConfigError
from fleetmark.lab import vm_guest, vm_recipe
from fleetmark.lab.vm_apt import Release


def test_a_spec_survives_the_way_through_json() -> None:
    slow = lab.VmDisk("SLOW", 1 << 30, cache="none", iops=100, bytes_per_second=1 << 20)
    spec = lab.VmSpec(2 << 30, 4, 1, (*lab.VmSpec().disks, slow), "tcg", ("btrfs-progs",))
    assert lab.VmSpec.decode(json.loads(json.dumps(asdict(spec)))) == spec


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ({"memory_bytes": 1 << 20}, "at least 512 MiB, not 1"),
        ({"cores": 0}, "at least one core"),
        ({"threads_per_core": 4}, "one or two threads"),
        ({"accel": "xen"}, "auto, kvm or tcg, not 'xen'"),
        ({"disks": (lab.VmDisk("A"), lab.VmDisk("A"))}, "same label: A, A"),
        ({"packages": ("--force",)}, "'--force' is no name"),
    ],
)
def test_guests_that_cannot_be(what: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        lab.VmSpec(**what)


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ({"label": "toolong"}, "cannot be the label"),
        ({"label": "A", "size_bytes": (64 << 20) + 1}, "whole MiB"),
        ({"label": "A", "cache": "fast"}, "no cache mode 'fast'"),
        ({"label": "A", "iops": -1}, "0 is no limit"),
    ],
)
def test_disks_that_cannot_be(what: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        lab.VmDisk(**what)


def test_serials_tell_lab_host_and_disk_and_fit() -> None:
    longest = vm_guest.serial("x" * 20, "load200", "EMPTY")
    assert len(longest) == 20
    assert longest.endswith("-load200-EMPTY")
    assert vm_guest.serial("a", "db1", "DATA") != vm_guest.serial("b", "db1", "DATA")


def test_the_image_is_another_when_anything_but_the_mirror_is_another() -> None:
    machine = Release("Debian", "bookworm", "deb http://one.example bookworm main\n", ())
    elsewhere = Release("Debian", "bookworm", "deb http://two.example bookworm main\n", ("x",))
    newer = Release("Debian", "trixie", machine.sources, ())
    key = vm_recipe.recipe(machine, ()).key
    assert key.startswith("bookworm-")
    assert vm_recipe.recipe(elsewhere, ()).key == key
    assert vm_recipe.recipe(newer, ()).key != key
    assert vm_recipe.recipe(machine, ("btrfs-progs",)).key != key
    assert "one.example" not in json.dumps(vm_recipe.recipe(machine, ()).as_dict())
    assert "linux-image-cloud-amd64" in vm_recipe.recipe(machine, ()).packages


def test_only_guests_have_a_power_switch(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setattr(lab.state, "root", lambda: tmp_path)
    with pytest.raises(ConfigError, match="there is no lab 'none'"):
        lab.reboot("none", "db1", print)
    lab.state.save(lab.state.LabState(lab.LabSpec("mine", "local"), "", []))
    with pytest.raises(ConfigError, match="hosts of lab 'mine' are local hosts"):
        lab.power_off("mine", "db1")
    guests = lab.state.LabState(
        lab.LabSpec("guests", "vm", 1, 0), "10.213.0.0/24", [lab.state.LabHost("db1", "db", "")]
    )
    lab.state.save(guests)
    assert lab.state.read("guests") == guests
    assert lab.state.subnets() == ["10.213.0.0/24"]
    with pytest.raises(ConfigError, match="no host 'db9'") as caught:
        lab.power_on("guests", "db9")
    assert caught.value.next_step == "its hosts are db1"
