"""Two guests from nothing to a benchmark that was gathered; between them a reboot and a refusal."""

import hashlib
import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from vm_hosts import VmFleet
from waiting import wait_for

from fleetmark import lab

pytestmark = pytest.mark.fleet

BIN = Path(sys.executable).parent
SMT = "/sys/devices/system/cpu/smt/control"


class Whole:
    """An experiment over the two guests, in a directory of its own."""

    def __init__(self, fleet: VmFleet, directory: Path) -> None:
        self.fleet = fleet
        self.directory = directory
        inventory = yaml.safe_load(fleet.inventory.read_text())
        inventory["all"]["vars"]["fleetmark_data_dir"] = "/data/fleetmark"
        (directory / "hosts.yml").write_text(yaml.safe_dump(inventory))
        self.write("EMPTY")

    def serial(self, host: str, label: str) -> str:
        return self.fleet.disk(host, label)[0]

    def write(self, label: str, filesystem: str = "ext4") -> None:
        """Ask for the data of db1 on this disk."""
        asked: dict[str, Any] = {
            "fleetmark": 1,
            "name": "guests",
            "inventory": "hosts.yml",
            "hosts": {
                "all": {"cpu": {"smt": "off", "governor": "performance", "swappiness": 1}},
                "db": {
                    "limits": {},
                    "monitoring": {},
                    "fstrim_timer": "off",
                    "nvme": [
                        {"disks": [{"serial": self.serial("db1", label)}], "read_ahead_kib": 64}
                    ],
                    "storage": [
                        {
                            "mount": "/data",
                            "filesystem": filesystem,
                            "disks": [{"serial": self.serial("db1", label)}],
                        }
                    ],
                },
            },
            "builds": [{"name": "mariadb"}],
            "configs": [{"name": "small", "set": {"innodb_buffer_pool_size": "128M"}}],
            "workloads": [
                {
                    "insert_benchmark": {
                        "clients": 2,
                        "rows_i0": 3000,
                        "rows_i1": 500,
                        "steps_only": ["l.i0", "l.x", "l.i1"],
                    }
                }
            ],
        }
        (self.directory / "e.yaml").write_text(yaml.safe_dump(asked))

    def fleetmark(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [BIN / "fleetmark", *words],
            capture_output=True,
            text=True,
            check=False,
            cwd=self.directory,
            timeout=1200,
        )

    def provision(self, *words: str) -> tuple[int, dict[str, Any], str]:
        done = self.fleetmark("provision", "e.yaml", "--json", *words)
        return done.returncode, json.loads(done.stdout), done.stderr

    def check(self) -> tuple[int, dict[str, Any]]:
        done = self.fleetmark("check", "e.yaml", "--json")
        return done.returncode, json.loads(done.stdout)

    def changed(self, told: dict[str, Any]) -> dict[str, int]:
        return {name: host["changed"] for name, host in told["hosts"].items()}


@pytest.fixture(scope="module")
def whole(two_guests: VmFleet, tmp_path_factory: pytest.TempPathFactory) -> Whole:
    return Whole(two_guests, tmp_path_factory.mktemp("whole"))


def test_provisioned_once_and_fit_after_a_reboot(whole: Whole) -> None:
    """One story, since each stage needs the one before and takes a minute."""
    code, told, said = whole.provision()
    assert code == 0, said
    empty = whole.serial("db1", "EMPTY")
    assert [(d["serial"], d["contents"], d["fate"]) for d in told["disks"]] == [
        (empty, "empty", "format")
    ]
    code, told, said = whole.provision()
    assert code == 0, said
    assert whole.changed(told) == {"db1": 0, "load1": 0}
    assert [d["fate"] for d in told["disks"]] == ["keep"]

    lab.reboot(whole.fleet.name, "db1", lambda _: None)
    code, looks = whole.check()
    assert {host: look["deviations"] for host, look in looks.items()} == {"db1": [], "load1": []}
    assert code == 0
    facts = looks["db1"]["facts"]
    assert (facts["cpu"]["smt_control"], facts["cpu"]["threads_per_core"]) == ("off", 1)
    assert facts["data"]["filesystem"] == "ext4"
    assert {"noatime", "discard"} <= set(facts["data"]["mount_options"])
    name = next(d["name"] for d in facts["disks"] if d["serial"] == empty)
    assert whole.fleet.ssh("db1", f"cat /sys/block/{name}/queue/read_ahead_kb") == "64"
    verify = whole.fleetmark("provision", "e.yaml", "--limit", "db1", "--tags", "tuning")
    assert verify.returncode == 0, verify.stderr

    whole.fleet.ssh("db1", f"echo on > {SMT}")
    code, looks = whole.check()
    assert code == 1
    assert [(d["item"], d["observed"]) for d in looks["db1"]["deviations"]] == [("smt", "on")]
    assert whole.changed(whole.provision("--limit", "db1", "--tags", "cpu")[1]) == {"db1": 1}


def test_a_delete_shrinks_the_backing_file(whole: Whole) -> None:
    backing = whole.fleet.disk("db1", "EMPTY")[1]
    whole.fleet.ssh("db1", "head -c 96M /dev/urandom > /data/large && sync -f /data")
    full_bytes = backing.stat().st_blocks * 512
    whole.fleet.ssh("db1", "rm /data/large && sync -f /data")
    wait_for(lambda: backing.stat().st_blocks * 512 < full_bytes - (90 << 20), "discard", 120)


def test_a_run_on_tuned_hosts_is_gathered_and_has_no_contract_taint(whole: Whole) -> None:
    done = whole.fleetmark("run", "e.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    (run,) = (whole.directory / "results").glob("2*")
    assert json.loads((run / "run.json").read_text())["state"] == "complete"
    (trial,) = run.glob("trials/*/trial.json")
    taints = [taint["kind"] for taint in json.loads(trial.read_text())["taints"]]
    assert "contract" not in taints
    checked = [json.loads(path.read_text()) for path in run.glob("hosts/db1/contract-*.json")]
    assert len(checked) == 2
    for one in checked:
        assert one["deviations"] == []
        assert {"smt", "data_filesystem", "data_mount_options"} <= set(one["checked"])


def test_limits_are_read_from_the_running_process(whole: Whole) -> None:
    """The unit of the stock service says less of open files than was asked for."""
    assert whole.provision("--limit", "db1", "--tags", "limits")[0] == 0
    whole.fleet.ssh("db1", "systemctl start mariadb")
    try:
        code, _, said = whole.provision("--limit", "db1", "--tags", "limits")
    finally:
        whole.fleet.ssh("db1", "systemctl stop mariadb")
    assert code == 3
    assert "mariadbd (pid" in said
    assert "may open 32768 files" in said


def test_data_is_refused_until_its_serial_is_named(whole: Whole) -> None:
    serial = whole.serial("db1", "DATA")
    whole.fleet.ssh("db1", "umount /data")
    whole.write("DATA")
    code, told, said = whole.provision("--tags", "filesystem", "--limit", "db1")
    assert code == 3
    assert "refused" in said
    assert "ext4 labelled 'data'" in said
    assert [(d["serial"], d["fate"]) for d in told["disks"]] == [(serial, "refuse")]
    device = f"/dev/disk/by-id/nvme-QEMU_NVMe_Ctrl_{serial}"
    whole.fleet.ssh("db1", f"mount -o ro {device} /mnt")
    read = whole.fleet.ssh("db1", "sha256sum < /mnt/ledger.bin; umount /mnt").split()[0]
    assert read == hashlib.sha256(random.Random(serial).randbytes(8 << 20)).hexdigest()

    whole.fleet.ssh("db1", f"mount {device} /mnt")
    consent = ("--confirm-wipe", f"db1:{serial}")
    code, _, said = whole.provision("--tags", "filesystem", "--limit", "db1", *consent)
    assert code == 3
    assert "is mounted at /mnt" in said
    whole.fleet.ssh("db1", "test -s /mnt/ledger.bin; umount /mnt")

    whole.write("DATA", "xfs")
    code, told, said = whole.provision("--tags", "filesystem,nvme", "--limit", "db1", *consent)
    assert code == 0, said
    assert [d["fate"] for d in told["disks"]] == ["wipe"]
    assert whole.fleet.ssh("db1", "findmnt -no FSTYPE /data; ls /data") == "xfs"


def test_one_host_that_is_lost_stops_no_other_and_a_rerun_finishes(whole: Whole) -> None:
    lab.power_off(whole.fleet.name, "load1", hard=True)
    code, told, said = whole.provision("--tags", "cpu")
    assert code == 3
    assert (told["hosts"]["db1"]["failures"], told["hosts"]["load1"]["unreachable"]) == (0, 1)
    assert "load1" in said
    lab.power_on(whole.fleet.name, "load1")
    code, told, said = whole.provision("--tags", "cpu")
    assert code == 0, said


def test_restore_takes_the_tuning_back(whole: Whole) -> None:
    done = whole.fleetmark("restore", "e.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    for host in ("db1", "load1"):
        assert whole.fleet.ssh(host, f"cat {SMT} /proc/sys/vm/swappiness").split() == ["on", "60"]
    assert whole.fleet.ssh("db1", "findmnt -no FSTYPE /data") == "xfs"
