"""`fleetmark lab`, with local hosts in a directory of the test's own."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fleetmark.cli.lab import lab_app
from fleetmark.errors import ConfigError
from fleetmark.lab import LabSpec, life, missing_packages, state


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    if missing := missing_packages(LabSpec("t-cli", "local")):
        pytest.skip(f"not installed: {', '.join(missing)}")
    monkeypatch.setattr(state, "root", lambda: tmp_path / "labs")
    # This directory knows only local hosts; the machine's own network is not looked at.
    monkeypatch.setattr(life, "_may_be_light", lambda: False)
    return tmp_path / "labs"


def run(*words: str) -> str:
    result = CliRunner().invoke(lab_app, list(words), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_up_status_down(root: Path) -> None:
    told = run("up", "t-cli", "--kind", "local", "--hosts", "3", "--db", "1")
    inventory = root / "t-cli" / "inventory.yml"
    assert f"inventory {inventory}" in told
    assert "remove it again: fleetmark lab down t-cli" in told
    assert "t-cli (local)" in run("status")
    status = json.loads(run("status", "t-cli", "--json"))["labs"][0]
    assert status["complete"] is True
    assert [host["name"] for host in status["hosts"]] == ["db1", "load1", "load2"]
    assert run("down", "t-cli") == f"removed {root}/t-cli\n"
    assert not root.exists()
    assert run("down", "t-cli") == "there is no lab 't-cli'\n"
    assert run("status") == "there is no lab\n"


def test_json_of_up_and_down(root: Path) -> None:
    made = json.loads(run("up", "t-cli", "--kind", "local", "--hosts", "1", "--json"))
    assert made == {
        "name": "t-cli",
        "kind": "local",
        "inventory": f"{root}/t-cli/inventory.yml",
    }
    assert json.loads(run("down", "--all", "--json")) == {"removed": {"t-cli": [f"{root}/t-cli"]}}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["up", "t-cli", "--kind", "cloud"], "--kind is auto, light, local or vm, not 'cloud'"),
        (["up", "t-cli", "--hosts", "1", "--db", "2"], "--db 2 is more than --hosts 1"),
        (["up", "T CLI", "--kind", "local"], "cannot be the name of a lab"),
    ],
)
def test_what_cannot_be_asked_for(root: Path, words: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        CliRunner().invoke(lab_app, words, catch_exceptions=False)
    assert not root.exists()


def test_twice_up_is_refused(root: Path) -> None:
    run("up", "t-cli", "--kind", "local")
    with pytest.raises(ConfigError, match="there already"):
        run("up", "t-cli", "--kind", "local")
    run("down", "t-cli")
