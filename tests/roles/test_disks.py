"""Disks are found by what they are, in a /sys that was made up."""

from pathlib import Path

import pytest
import role_modules  # noqa: F401 (makes the next imports possible)
from ansible.module_utils import fleetmark_disks as disks
from ansible.module_utils import fleetmark_nvme_report as nvme
from ansible.module_utils.fleetmark_disks import Disk, DiskError

GB = 1_000_000_000


def put(root: Path, **files: str) -> None:
    for name, content in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)


def block(root: Path, name: str, size_bytes: int, **files: str) -> None:
    top = f"sys__block__{name}__"
    put(root, **{f"{top}size": f"{size_bytes // 512}\n", **{top + k: v for k, v in files.items()}})


@pytest.fixture
def root(tmp_path: Path) -> Path:
    nvme_files = {"device__model": "Fast 9000      ", "device__firmware_rev": "1.2"}
    block(tmp_path, "nvme0n1", 3840 * GB, device__serial="S5H9NS0N986834   ", **nvme_files)
    block(tmp_path, "nvme1n1", 3841 * GB, device__serial="S5H9NS0N986835", **nvme_files)
    # The path of one controller, which is no disk of its own.
    block(tmp_path, "nvme1c1n1", 3841 * GB, device__serial="S5H9NS0N986835", **nvme_files)
    cloud = {"device__model": "Amazon Elastic Block Store"}
    block(tmp_path, "nvme2n1", 100 * GB, device__serial="vol0a1b2c3d", **cloud)
    block(tmp_path, "vda", 20 * GB, serial="root")
    block(tmp_path, "sda", 500 * GB, device__model="Spinner", device__rev="A1")
    (tmp_path / "sys/block/sda/device/vpd_pg80").write_bytes(b"\x00\x80\x00\x08WD-12345")
    block(tmp_path, "sdb", 500 * GB, dev="8:16\n", device__model="USB")
    put(tmp_path, **{"run__udev__data__b8:16": "S:disk/by-id/x\nE:ID_SERIAL_SHORT=USB77\n"})
    block(tmp_path, "loop0", 100 * GB, loop__backing_file="/tmp/a.img\n")
    for none in ("ram0", "zram0", "dm-0", "md127", "sr0"):
        block(tmp_path, none, 100 * GB)
    block(tmp_path, "sdc", 0)
    return tmp_path


def test_serials_are_found_wherever_a_disk_tells_them(root: Path) -> None:
    found = {disk.name: disk.serial for disk in disks.all_disks(str(root))}
    assert found == {
        "loop0": "/tmp/a.img",
        "nvme0n1": "S5H9NS0N986834",
        "nvme1n1": "S5H9NS0N986835",
        "nvme2n1": "vol0a1b2c3d",
        "sda": "WD-12345",
        "sdb": "USB77",
        "vda": "root",
    }
    first = next(d for d in disks.all_disks(str(root)) if d.name == "nvme0n1")
    assert first == Disk("nvme0n1", "S5H9NS0N986834", "Fast 9000", "1.2", 3840 * GB)


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        ({"serial": "S5H9NS0N986834"}, ["nvme0n1"]),
        ({"serial": "vol-0a1b2c3d"}, ["nvme2n1"]),
        ({"model": "fast*", "count": 2}, ["nvme0n1", "nvme1n1"]),
        ({"model": "Amazon Elastic*"}, ["nvme2n1"]),
        ({"size_bytes": 3840 * GB, "count": 2}, ["nvme0n1", "nvme1n1"]),
        ({"size_bytes": 20 * GB}, ["vda"]),
        ({"model": "Spinner", "size_bytes": 498 * GB}, ["sda"]),
        ({"serial": "/tmp/a.img"}, ["loop0"]),
        # A loop device of the same size is not meant.
        ({"size_bytes": 100 * GB}, ["nvme2n1"]),
    ],
)
def test_a_choice_finds_just_what_it_says(
    root: Path, wanted: dict[str, object], names: list[str]
) -> None:
    assert [d.name for d in disks.choose(wanted, disks.all_disks(str(root)))] == names


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ({"serial": "S5H9"}, "there is no disk with serial S5H9; there are: loop0 serial"),
        ({"model": "Fast*"}, "2 disks match model Fast*, 1 are wanted"),
        ({"model": "Fast*", "count": 3}, "2 disks match model Fast*, 3 are wanted"),
        ({"model": "Fast*", "serial": "vol0a1b2c3d"}, "there is no disk with serial vol0a1b2c3d"),
        ({"count": 1}, "named by serial, model or size_bytes"),
        ({"serial": "", "model": ""}, "named by serial, model or size_bytes"),
    ],
)
def test_anything_else_than_the_asked_number_of_disks_is_refused_with_what_is_there(
    root: Path, wanted: dict[str, object], words: str
) -> None:
    with pytest.raises(DiskError) as caught:
        disks.choose(wanted, disks.all_disks(str(root)))
    assert words in str(caught.value)
    if "named by" not in words:
        assert "nvme0n1 serial S5H9NS0N986834, Fast 9000, 3840.0 GB" in str(caught.value)


def test_one_disk_cannot_be_chosen_twice(root: Path) -> None:
    choices = [{"serial": "S5H9NS0N986834"}, {"model": "Fast*", "count": 2}]
    with pytest.raises(DiskError, match="nvme0n1 is chosen twice"):
        disks.choose_all(choices, str(root))


def test_a_queue_is_read_and_what_is_missing_is_none(root: Path) -> None:
    block(
        root,
        "nvme0n1",
        3840 * GB,
        queue__scheduler="[none] mq-deadline kyber\n",
        queue__read_ahead_kb="128\n",
        queue__logical_block_size="512\n",
        queue__rotational="0\n",
    )
    there = next(d for d in disks.all_disks(str(root)) if d.name == "nvme0n1")
    assert disks.queue(there, str(root)) == {
        "scheduler": "none",
        "schedulers": ["none", "mq-deadline", "kyber"],
        "read_ahead_kib": 128,
        "write_cache": None,
        "logical_block_bytes": 512,
        "physical_block_bytes": None,
        "discard_max_bytes": None,
        "rotational": False,
    }


def test_health_says_each_warning_in_words() -> None:
    told = nvme.health_of(
        {
            "critical_warning": 0b10001,
            "temperature": 310,
            "avail_spare": 100,
            "percent_used": 3,
            "media_errors": 2,
        }
    )
    assert told["warnings"] == ["spare blocks run out", "backup of the volatile memory failed"]
    assert told["temperature_celsius"] == 37
    assert (told["used_percent"], told["media_errors"], told["power_on_hours"]) == (3, 2, None)
    assert nvme.health_of({"critical_warning": {"value": 8}})["warnings"] == ["read-only"]


def test_formats_tell_the_one_in_use() -> None:
    answer = {
        "flbas": 1,
        "lbafs": [{"ms": 0, "ds": 9}, {"ms": 0, "ds": 12}, {"ms": 8, "ds": 12}, {"ms": 0, "ds": 0}],
    }
    assert nvme.lba_formats(answer) == [
        {"index": 0, "bytes": 512, "metadata_bytes": 0, "in_use": False},
        {"index": 1, "bytes": 4096, "metadata_bytes": 0, "in_use": True},
        {"index": 2, "bytes": 4096, "metadata_bytes": 8, "in_use": False},
    ]
