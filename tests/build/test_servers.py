"""`make build-test`: MariaDB compiled by the role, started and measured; MySQL as far as it gets.

Settings by environment: FLEETMARK_BUILD_ARCHIVES (where archives are kept),
FLEETMARK_BUILD_MYSQL_MINUTES (how long MySQL may compile, 0 leaves it out).
"""

import contextlib
import json
import os
import re
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
ARCHIVES = Path(os.environ.get("FLEETMARK_BUILD_ARCHIVES", "~/.cache/fleetmark/archives"))
MYSQL_SECONDS = 60.0 * float(os.environ.get("FLEETMARK_BUILD_MYSQL_MINUTES", "60"))
MARIADB = (
    "mariadb",
    "10.11.18",
    "a46852c68075be7c31c7b33fee233c5b5a00c8c28117f5204d124e4f2fd56fa8",
)
MYSQL = ("mysql-9.7", "9.7.2", "e5a676c7cb73738dc6ea33db2093806ebd512b629a139b897fcab68fcd81aaa4")


def say(text: str) -> None:
    print(f"[{time.strftime('%H:%M:%S')}] {text}", flush=True)


def archive(package: str, version: str, sha256: str) -> Path:
    """The upstream archive of a Debian source package, by the role `archive`."""
    directory = ARCHIVES.expanduser()
    directory.mkdir(parents=True, exist_ok=True)
    wanted = {
        "wanted_package": package,
        "wanted_version": version,
        "wanted_sha256": sha256,
        "wanted_directory": str(directory),
    }
    command = [str(BIN / "ansible-playbook"), "-i", "localhost,", "-e", json.dumps(wanted)]
    done = subprocess.run(
        [*command, str(Path(__file__).parent / "archives.yml")],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    if done.returncode != 0:
        said = re.search(r'"msg": "([^"]*)"', done.stdout)
        pytest.skip(f"no source archive: {said[1] if said else done.stdout[-500:]}")
    return next(directory.glob(f"{sha256[:12]}-*"))


@pytest.fixture(scope="module")
def inventory() -> Iterator[Path]:
    """A light lab for the whole module: one database host, one load host."""
    name = f"build-{secrets.token_hex(3)}"
    up = ["lab", "up", name, "--kind", "light", "--hosts", "2", "--json"]
    done = subprocess.run(
        [str(BIN / "fleetmark"), *up], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        pytest.skip(f"no light hosts here: {done.stderr.strip()}")
    try:
        yield Path(json.loads(done.stdout)["inventory"])
    finally:
        subprocess.run([str(BIN / "fleetmark"), "lab", "down", name], check=True)


def experiment(directory: Path, builds: list[dict[str, Any]]) -> Path:
    path = directory / "experiment.yaml"
    document = yaml.safe_load((ROOT / "experiments" / "compiled-vs-packaged.yaml").read_text())
    document["builds"] = builds
    if builds[0]["flavour"] == "mysql":
        # MySQL has no log files of a fixed size any more.
        variables = document["configs"][0]["set"]
        variables["innodb_redo_log_capacity"] = variables.pop("innodb_log_file_size")
    path.write_text(yaml.safe_dump(document))
    return path


def build(flavour: str, source: tuple[str, str, str]) -> dict[str, Any]:
    return {
        "name": "compiled",
        "flavour": flavour,
        "source": "archive",
        "version": source[1],
        "archive": str(archive(*source)),
        "sha256": source[2],
    }


def fleetmark(*words: str, limit_seconds: float = 7200.0) -> tuple[int, list[str]]:
    """Run a verb, show its lines as they come; ended in order when its time is over."""
    say(" ".join(("fleetmark", *words)))
    process = subprocess.Popen(
        [str(BIN / "fleetmark"), *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=ROOT,
    )
    timer = threading.Timer(limit_seconds, process.send_signal, [signal.SIGINT])
    timer.start()
    lines = []
    assert process.stdout is not None
    with contextlib.closing(process.stdout):
        for line in process.stdout:
            lines.append(line.rstrip())
            say(lines[-1])
    timer.cancel()
    return process.wait(), lines


def test_mariadb_compiled_against_packaged(inventory: Path, tmp_path: Path) -> None:
    packaged = {"name": "packaged", "flavour": "mariadb"}
    path = experiment(tmp_path, [packaged, build("mariadb", MARIADB)])
    place = ("-i", str(inventory), "--results", str(tmp_path / "results"))
    code, lines = fleetmark("provision", str(path), *place)
    assert code == 0
    assert any(re.search(r"compile \d+ of \d+, .* left", line) for line in lines), "no progress"

    code, lines = fleetmark("provision", str(path), *place, "--json")
    text = "\n".join(lines)
    hosts = json.loads(text[text.index("{") :])["hosts"]
    assert hosts["db1"]["changed"] == 0, "the second time there is nothing to do"

    code, _ = fleetmark("run", str(path), *place)
    assert code == 0
    (run,) = (p for p in (tmp_path / "results").iterdir() if (p / "run.json").is_file())
    facts = {}
    for trial in run.glob("trials/*/trial.json"):
        document = json.loads(trial.read_text())
        assert document["state"] == "ok"
        facts[document["build"]] = document["build_facts"]
        if document["build"] == "compiled":
            assert document["instance"]["version"].startswith("10.11.18-MariaDB")
    stamp = facts["compiled"]["stamp"]
    assert stamp["sha256"] == MARIADB[2]
    assert stamp["flags"]["CMAKE_BUILD_TYPE"] == "RelWithDebInfo"
    assert facts["packaged"]["package"]["name"].startswith("mariadb-server")
    assert "mariadb_10.11.18.orig.tar.gz" in (run / "report.html").read_text()
    say(f"MariaDB: {json.dumps({k: stamp[k] for k in FIGURES})}")


FIGURES = ("seconds", "cpu_seconds", "largest_process_bytes", "jobs", "ccache", "work_bytes",
           "installed_bytes", "without_network", "compiler", "unused_flags")  # fmt: skip


@pytest.mark.skipif(MYSQL_SECONDS == 0, reason="MySQL is left out")
def test_mysql_as_far_as_its_time_allows(inventory: Path, tmp_path: Path) -> None:
    path = experiment(tmp_path, [build("mysql", MYSQL)])
    place = ("-i", str(inventory), "--results", str(tmp_path / "results"))
    code, lines = fleetmark("provision", str(path), *place, limit_seconds=MYSQL_SECONDS)
    if code == 0:
        code, _ = fleetmark("run", str(path), *place)
        assert code == 0
        return
    assert code == 130, "it was ended because its time was over, and for nothing else"
    steps = [found for line in lines if (found := re.search(r"compile (\d+) of (\d+)", line))]
    assert steps, "it was not even configured"
    pytest.skip(f"MySQL was configured, and compiled to step {steps[-1][1]} of {steps[-1][2]}")
