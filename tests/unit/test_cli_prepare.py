"""The verbs before a run, through the real command."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

COMMAND = [str(Path(sys.executable).parent / "fleetmark")]
INVENTORY = """\
db:
  hosts:
    db1: {ansible_host: 192.0.2.1}
load:
  hosts:
    load1: {ansible_host: 192.0.2.2}
    load2: {ansible_host: 192.0.2.3}
"""


def fleetmark(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments], cwd=cwd, capture_output=True, text=True, check=False, timeout=60
    )


@pytest.fixture
def project(tmp_path: Path) -> Path:
    done = fleetmark("init", ".", "--name", "first", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (tmp_path / "inventory.yml").write_text(INVENTORY)
    return tmp_path


def test_what_init_writes_can_be_planned(project: Path) -> None:
    done = fleetmark("plan", "first.yaml", "--json", cwd=project)
    plan = json.loads(done.stdout)
    assert plan["experiment"] == "first"
    assert plan["targets"] == [{"name": "db1", "db": "db1", "load": ["load1", "load2"]}]
    assert [t["config"] for t in plan["trials"]] == ["base", "nosync"]
    assert plan["hosts"]["load2"]["address"] == "192.0.2.3"
    assert plan["disks"] == []


def test_the_plan_for_people_names_trials_steps_and_time(project: Path) -> None:
    done = fleetmark("plan", "first.yaml", cwd=project)
    assert done.returncode == 0
    assert done.stderr == ""
    for words in ("l.i0", "qp1000", "disks to format: none", "2 trials, about"):
        assert words in done.stdout


def test_init_overwrites_nothing(project: Path) -> None:
    (project / "first.yaml").write_text("mine")
    done = fleetmark("init", ".", "--name", "first", cwd=project)
    assert done.returncode == 2
    assert "first.yaml is there already" in done.stderr
    assert (project / "first.yaml").read_text() == "mine"


def test_the_inventory_may_stand_before_or_after_the_verb(project: Path) -> None:
    other = project / "other.yml"
    other.write_text(INVENTORY.replace("load2", "load9"))
    before = fleetmark("-i", "other.yml", "plan", "first.yaml", "--json", cwd=project)
    after = fleetmark("plan", "first.yaml", "--json", "-i", "other.yml", cwd=project)
    assert before.stdout == after.stdout
    assert json.loads(after.stdout)["targets"][0]["load"] == ["load1", "load9"]


def test_the_embedded_fleet_is_planned_before_it_exists(tmp_path: Path) -> None:
    fleetmark("init", ".", "--name", "e", "--embedded", cwd=tmp_path)
    done = fleetmark("plan", "e.yaml", "--json", cwd=tmp_path)
    assert list(json.loads(done.stdout)["hosts"]) == ["db1", "load1", "load2"]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("repeats: 1", "repeat: 1", "unknown key 'repeat'; did you mean 'repeats'?"),
        ("inventory: inventory.yml", "inventory: no.yml", "no.yml"),
        ("inventory: inventory.yml", "", "names no inventory"),
        ("profile: tiny", "clients: 1", "1 clients cannot be divided over 2 load hosts"),
    ],
)
def test_a_mistake_is_told_without_a_traceback(
    project: Path, old: str, new: str, words: str
) -> None:
    experiment = project / "first.yaml"
    experiment.write_text(experiment.read_text().replace(old, new))
    done = fleetmark("plan", "first.yaml", cwd=project)
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_an_empty_group_is_named(project: Path) -> None:
    (project / "inventory.yml").write_text("db: {hosts: {db1: }}\nload: {hosts: {}}\n")
    done = fleetmark("plan", "first.yaml", cwd=project)
    assert done.returncode == 2
    assert "group 'load'" in done.stderr
    assert "is empty" in done.stderr


def test_an_unknown_verb_is_a_usage_error(tmp_path: Path) -> None:
    done = fleetmark("plam", cwd=tmp_path)
    assert done.returncode == 2
    assert "plam" in done.stderr
