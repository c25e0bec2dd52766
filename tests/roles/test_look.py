"""What provisioning shows of disks before it begins; the words for a host without root."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from loop_disks import LoopDisk, loop_disk

from fleetmark import inventory, plan, provision, workloads
from fleetmark.experiment import Experiment
from fleetmark.plan import Disk
from fleetmark.provision import Provisioning

pytestmark = pytest.mark.fleet

LOCAL = {"ansible_connection": "local", "ansible_python_interpreter": "/usr/bin/python3"}
NO_SUDO = """#!/bin/sh
echo 'bench is not in the sudoers file.' >&2
exit 1
"""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[LoopDisk]:
    with loop_disk(tmp_path / "disk.img") as made:
        yield made


def hosts_file(directory: Path, hosts: dict[str, dict[str, Any]]) -> Path:
    path = directory / "hosts.yml"
    groups = {"db": {"hosts": hosts}, "load": {"hosts": {f"l-{name}": LOCAL for name in hosts}}}
    path.write_text(yaml.safe_dump({"all": {"children": groups}}))
    return path


def planned(path: Path, hosts: dict[str, Any], **more: Any) -> plan.Plan:
    asked = Experiment.model_validate(
        {
            "fleetmark": 1,
            "name": "t",
            "builds": [{"name": "b"}],
            "configs": [{"name": "c"}],
            "workloads": [workloads.parse("insert_benchmark")],
            "hosts": hosts,
            **more,
        }
    )
    return plan.make_plan(asked, inventory.load(path), path.parent)


def test_every_disk_is_shown_with_what_becomes_of_it(disk: LoopDisk, tmp_path: Path) -> None:
    path = hosts_file(tmp_path, {"db1": LOCAL})
    disk.call("mkfs.ext4", "-q", "-L", "ledger")
    before = disk.digest()
    choice = [{"serial": disk.serial}]
    asked = {
        "db1": {
            "storage": [
                {"mount": "/fm-data", "disks": choice},
                {"mount": "/fm-other", "disks": [{"serial": "S-NONE"}]},
            ],
            "nvme": [{"disks": choice, "lba_bytes": 4096}, {"disks": choice, "scheduler": "none"}],
        }
    }
    shown = provision.look_at_disks(planned(path, asked), path, tmp_path / "evidence")
    data, other, blocks = sorted(shown, key=lambda each: each.use.replace("blocks", "~"))
    what = "ext4 labelled 'ledger'"
    assert (data.host, data.serial, data.use) == ("db1", disk.serial, "ext4 at /fm-data")
    assert (data.contents, data.fate) == (what, "refuse")
    assert "refused" in data.why
    assert (other.fate, other.contents) == ("refuse", "")
    assert "there is no disk with serial S-NONE; there are: " in other.why
    assert (blocks.use, blocks.contents, blocks.fate) == ("blocks of 4096 bytes", what, "refuse")

    consent = [{"host": "db1", "serial": disk.serial}]
    named = planned(path, asked, confirm_wipe=consent)
    fates = {
        each.use: each.fate for each in provision.look_at_disks(named, path, tmp_path / "named")
    }
    assert fates["ext4 at /fm-data"] == "wipe"
    assert fates["blocks of 4096 bytes"] == "wipe"
    assert disk.digest() == before


def test_a_host_without_root_is_told_apart_and_named(tmp_path: Path) -> None:
    sudo = tmp_path / "sudo"
    sudo.write_text(NO_SUDO)
    sudo.chmod(0o755)
    become = {**LOCAL, "ansible_become_exe": str(sudo)}
    path = hosts_file(tmp_path, {"db1": {**become, "ansible_become_user": "nobody"}})
    asked = {"db1": {"storage": [{"mount": "/fm-data", "disks": [{"serial": "S1"}]}]}}
    made = planned(path, asked)
    (shown,) = provision.look_at_disks(made, path, tmp_path / "evidence")
    assert isinstance(shown, Disk)
    assert (shown.serial, shown.fate) == ("S1", "unknown")
    assert "does not let us become root" in shown.why
    assert "not in the sudoers" in shown.why
    variables = provision.tuning_variables(made)
    work = Provisioning(path, ["db1"], tmp_path / "p", variables, tags=("filesystem",))
    result = provision.run(work)
    assert "does not let us become root" in result.hosts["db1"].message


def test_without_disks_nothing_is_asked(tmp_path: Path) -> None:
    path = hosts_file(tmp_path, {"db1": LOCAL})
    assert provision.look_at_disks(planned(path, {}), path, tmp_path / "evidence") == []
    assert not (tmp_path / "evidence").exists()
