"""Two guests: a benchmark from one to the other, reboot, shutdown, a throttled disk."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from vm_hosts import VmFleet

from fleetmark import lab

pytestmark = pytest.mark.fleet

BIN = Path(sys.executable).parent

EXPERIMENT = """\
fleetmark: 1
name: guests
inventory: {inventory}
targets: {{db: db, load: load}}
builds: [{{name: mariadb, flavour: mariadb, source: package}}]
configs:
  - name: small
    set: {{innodb_buffer_pool_size: 128M, innodb_log_file_size: 64M}}
workloads:
  - insert_benchmark:
      profile: tiny
      clients: 2
      rows_i0: 3000
      rows_i1: 500
      steps_only: [l.i0, l.x, l.i1]
repeats: 1
"""


def fleetmark(directory: Path, *words: str) -> str:
    done = subprocess.run(
        [BIN / "fleetmark", *words],
        capture_output=True,
        text=True,
        check=False,
        cwd=directory,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_run_from_guest_to_guest_is_gathered(two_guests: VmFleet, tmp_path: Path) -> None:
    (tmp_path / "e.yaml").write_text(EXPERIMENT.format(inventory=two_guests.inventory))
    fleetmark(tmp_path, "run", "e.yaml")
    (run,) = (tmp_path / "results").glob("2*")
    assert json.loads((run / "run.json").read_text())["state"] == "complete"
    facts = json.loads((run / "hosts" / "db1" / "facts.json").read_text())
    assert facts["systemd"]
    assert facts["cpu"]["threads_per_core"] == 2
    assert two_guests.disk("db1", "EMPTY")[0] in [disk["serial"] for disk in facts["disks"]]
    rows = {}
    for path in sorted(run.glob("trials/*/*/load1/journal.jsonl")):
        records = [json.loads(line) for line in path.read_text().splitlines()]
        assert records[-1]["kind"] == "ended"
        assert records[-1]["reason"] == "completed"
        ends = [record["rows"] for record in records if record["kind"] == "stream_end"]
        rows[path.parent.parent.name] = max(ends, default=0)
    assert (rows["01-l.i0"], rows["03-l.i1"]) == (6000, 1000)
    # The supervisor and the server were units of their own, and none is left.
    told = two_guests.ssh("db1", "journalctl -b -o cat -u 'fleetmark-*' | grep -c '^Started '")
    assert int(told) == 4
    assert two_guests.ssh("db1", "systemctl list-units -q --all 'fleetmark-*'") == ""


def test_a_reboot_and_a_shutdown_come_back(two_guests: VmFleet, tmp_path: Path) -> None:
    boot_id = "cat /proc/sys/kernel/random/boot_id"
    two_guests.ssh("load1", "echo kept > /root/kept")
    ids = [two_guests.ssh("load1", boot_id)]
    fleetmark(tmp_path, "lab", "reboot", two_guests.name, "load1")
    ids.append(two_guests.ssh("load1", boot_id))
    fleetmark(tmp_path, "lab", "power-off", two_guests.name, "load1")
    status = lab.status(two_guests.name)
    assert status is not None
    assert [host.alive for host in status.hosts] == [True, False]
    fleetmark(tmp_path, "lab", "power-on", two_guests.name, "load1")
    ids.append(two_guests.ssh("load1", boot_id))
    assert len(set(ids)) == 3
    assert two_guests.ssh("load1", "cat /root/kept; cat /etc/hostname") == "kept\nload1"


def test_a_throttled_disk_is_slow_and_the_others_are_not(two_guests: VmFleet) -> None:
    rates = {}
    for label in ("SLOW", "EMPTY"):
        device = f"/dev/disk/by-id/nvme-QEMU_NVMe_Ctrl_{two_guests.disk('db1', label)[0]}"
        command = f"fio --name=t --filename={device} --rw=randwrite --bs=4k --direct=1"
        command += " --number_ios=160 --size=64m --output-format=json"
        told = json.loads(two_guests.ssh("db1", command))
        rates[label] = told["jobs"][0]["write"]["iops"]
    # A burst of one second's worth goes through at once, so 160 take three seconds, not four.
    assert 30 < rates["SLOW"] < 70
    assert rates["EMPTY"] > 3 * rates["SLOW"]
