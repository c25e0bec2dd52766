"""Several targets at once, and hosts given back from runs that are not here."""

import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from light_hosts import LightFleet
from short_runs import channels, deploy, experiment_text, on, prepared

from fleetmark import conduct, store

pytestmark = [
    pytest.mark.fleet,
    pytest.mark.skipif(not shutil.which("sysbench"), reason="sysbench is not installed"),
    pytest.mark.skipif(not shutil.which("mariadbd"), reason="mariadb-server is not installed"),
]


def test_targets_run_side_by_side_each_with_its_own_database(
    new_light_lab: Callable[[int, int], LightFleet], tmp_path: Path
) -> None:
    fleet = new_light_lab(2, 2)
    deploy(fleet, tmp_path)
    what = prepared(fleet, tmp_path, experiment_text(["l.i0"], rows=2000))
    with channels(fleet) as opened:
        outcome = conduct.conduct(what, opened.channels, threading.Event())
    assert outcome.state == "complete"
    trials = {}
    for target in ("db1", "db2"):
        directory = what.run.trial(f"{target}.mariadb.base.insert_benchmark.r1")
        trials[target] = store.read_json(directory / "trial.json")
        hosts = store.read_json(directory / "01-l.i0" / "step.json")["hosts"]
        rows = [
            json.loads(line)["rows"]
            for host in hosts
            for line in (directory / "01-l.i0" / host / "journal.jsonl").read_text().splitlines()
            if '"kind":"stream_end"' in line
        ]
        # Two clients of 2,000 rows, both on the one load host of the target.
        assert rows == [4000]
    assert {name: t["load"] for name, t in trials.items()} == {"db1": ["load1"], "db2": ["load2"]}
    # At once: each began before the other had ended.
    assert trials["db1"]["started"] < trials["db2"]["ended"]
    assert trials["db2"]["started"] < trials["db1"]["ended"]


def test_hosts_are_freed_from_a_run_that_is_not_here(
    light_fleet: LightFleet, tmp_path: Path
) -> None:
    deploy(light_fleet, tmp_path)
    gone = "20260101T000000Z-dead"
    on(light_fleet, "db1", "claim", gone)
    command = [str(Path(sys.executable).parent / "fleetmark"), "clean", gone]
    refused = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert f"fleetmark clean {gone} -i INVENTORY --discard" in refused.stderr
    assert on(light_fleet, "db1", "status")["claim"]["run"] == gone
    command += ["-i", str(light_fleet.inventory), "--discard"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert f"db1: free of {gone}" in done.stdout
    assert on(light_fleet, "db1", "status")["claim"] is None
