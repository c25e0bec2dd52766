"""The roles dbms_build and dbms_tarball, applied by Ansible to hosts on this machine."""

import dataclasses
import hashlib
import json
import shutil
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest
import yaml
from standin_source import pack

from fleetmark import provision
from fleetmark.errors import Interrupted
from fleetmark.provision import HostProgress, Provisioning, ProvisionResult

pytestmark = pytest.mark.fleet
BUILD = {"source": "archive", "flavour": "mariadb", "version": "1.2.3"}


@dataclasses.dataclass(frozen=True)
class Machine:
    """Hosts that are this machine, each with a base directory and builds of its own."""

    root: Path
    archive: Path
    sha256: str

    def base(self, host: str) -> Path:
        return self.root / host

    def inventory(self, hosts: dict[str, dict[str, Any]]) -> Path:
        """Hosts by name, each with its variables."""
        members = {
            name: {"fleetmark_base_dir": str(self.base(name)), **variables}
            for name, variables in hosts.items()
        }
        python = (
            "/usr/bin/python3" if Path("/usr/bin/python3").exists() else shutil.which("python3")
        )
        common = {
            "ansible_connection": "local",
            "ansible_python_interpreter": python,
            "dbms_build_packages": [],
            "dbms_build_needed_bytes": 10_000_000,
            "dbms_build_poll_seconds": 1,
            "dbms_build_ccache_dir": str(self.root / "ccache"),
        }
        path = self.root / "inventory.yml"
        path.write_text(yaml.safe_dump({"all": {"vars": common, "hosts": members}}))
        return path

    def build(self, **values: Any) -> dict[str, Any]:
        return {**BUILD, "archive": str(self.archive), "sha256": self.sha256, **values}

    def work(self, hosts: dict[str, dict[str, Any]], check: bool = False) -> Provisioning:
        return Provisioning(
            self.inventory(hosts), list(hosts), self.root / "evidence", {}, check, "build.yml"
        )

    def apply(self, hosts: dict[str, dict[str, Any]], check: bool = False) -> ProvisionResult:
        return provision.run(self.work(hosts, check))

    def record(self, host: str, name: str) -> dict[str, Any]:
        path = self.base(host) / "builds" / "records" / f"{name}.json"
        document: dict[str, Any] = json.loads(path.read_text())
        return document


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    missing = [name for name in ("cmake", "c++", "tar") if not shutil.which(name)]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")
    root = tmp_path_factory.mktemp("builds")
    return Machine(root, *pack(root))


def test_two_builds_of_one_version_then_nothing_to_do(machine: Machine) -> None:
    """One story, because its stages need one another and each takes seconds."""
    two = [
        machine.build(record="plain"),
        machine.build(record="ssl", flags={"WITH_SSL": "bundled"}, engines=["rocksdb"]),
    ]
    binary = _binary_build(machine)
    db1 = {"db1": {"provision_builds": two}}
    hosts = {**db1, "db2": {"provision_builds": [binary]}}

    dry = machine.apply(db1, check=True)
    assert dry.status == "successful"
    assert dry.hosts["db1"].changed == 2, "it tells of both builds"
    assert not machine.base("db1").exists()
    said = (machine.root / "evidence" / "stdout.txt").read_text()
    assert "would build mariadb 1.2.3" in said
    assert "WITH_SSL=bundled" in said

    first = machine.apply(hosts)
    first.require_all()
    plain, ssl = machine.record("db1", "plain"), machine.record("db1", "ssl")
    assert plain["prefix"] != ssl["prefix"]
    assert plain["flags"]["WITH_SSL"] == "system", "a default of the flavour"
    assert "(ssl system)" in plain["server_says"]
    assert "(ssl bundled)" in ssl["server_says"], "the user's flag wins"
    assert ssl["engines"] == ["rocksdb"]
    assert (Path(ssl["prefix"]) / "lib" / "plugin" / "ha_rocksdb.so").is_file()
    assert not (Path(plain["prefix"]) / "lib" / "plugin").exists()
    assert (plain["sha256"], plain["source"]) == (machine.sha256, "archive")

    unpacked = machine.record("db2", "binary")
    assert unpacked["server_says"] == "mariadbd  Ver 1.2.3-MariaDB"
    assert (Path(unpacked["prefix"]) / "bin" / "mariadbd").is_file()

    again = machine.apply(hosts)
    assert {name: (host.ready, host.changed) for name, host in again.hosts.items()} == {
        "db1": (True, 0),
        "db2": (True, 0),
    }

    # Also the ways in which a build can fail, in one play: each host fails for itself.
    shutil.rmtree(Path(plain["prefix"]) / "bin")
    mistakes = _mistakes(machine)
    mistakes["flavour"] = {"provision_builds": [{**binary, "flavour": "mysql"}]}
    result = machine.apply({**db1, **mistakes})
    assert result.hosts["db1"].ready
    assert (Path(plain["prefix"]) / "bin" / "mariadbd").is_file(), "a damaged build is made again"
    why = {name: host.message for name, host in result.hosts.items() if not host.ready}
    assert sorted(why) == sorted(mistakes)
    digest = hashlib.sha256(b"something else").hexdigest()
    assert f"is {digest}, the build says {machine.sha256}" in why["sha256"]
    assert "it was not unpacked" in why["sha256"]
    assert list((machine.base("sha256") / "builds" / "archives").iterdir()) == []
    assert why["broken"].startswith("compile failed: broken.cc:2:")
    assert "GB free, a build needs about" in why["space"]
    assert "which a compile would disturb" in why["claimed"]
    needed = "the build needs no-such-package-libdev, missing on this host"
    assert why["needs"].startswith(needed)
    assert "does not run on this host" in why["flavour"]


def _binary_build(machine: Machine) -> dict[str, Any]:
    made = machine.root / "made" / "mariadb-1.2.3-linux"
    (made / "bin").mkdir(parents=True)
    server = made / "bin" / "mariadbd"
    server.write_text("#!/bin/sh\necho 'mariadbd  Ver 1.2.3-MariaDB'\n")
    server.chmod(0o755)
    archive = machine.root / "binary.tar.gz"
    subprocess.run(["tar", "-C", str(made.parent), "-czf", str(archive), made.name], check=True)
    return {
        "source": "tarball",
        "flavour": "mariadb",
        "archive": str(archive),
        "sha256": hashlib.sha256(archive.read_bytes()).hexdigest(),
        "record": "binary",
    }


def _mistakes(machine: Machine) -> dict[str, dict[str, Any]]:
    other = machine.root / "other.tar.gz"
    other.write_bytes(b"something else")
    machine.base("claimed").mkdir()
    (machine.base("claimed") / "claim.json").write_text("{}")
    builds = {
        "sha256": machine.build(archive=str(other)),
        "broken": machine.build(flags={"STANDIN_VARIANT": "broken"}, jobs=1),
        "space": machine.build(),
        "claimed": machine.build(),
        "needs": machine.build(),
    }
    hosts: dict[str, dict[str, Any]] = {
        name: {"provision_builds": [build]} for name, build in builds.items()
    }
    hosts["space"]["dbms_build_needed_bytes"] = 1 << 60
    hosts["needs"]["dbms_build_packages"] = ["no-such-package-libdev"]
    return hosts


def test_a_build_survives_the_loss_of_its_play_and_is_joined(machine: Machine) -> None:
    gate = machine.root / "gate"
    hosts = {
        "db3": {"provision_builds": [machine.build(record="g", flags={"STANDIN_GATE": str(gate)})]}
    }
    stop = threading.Event()
    seen: list[HostProgress] = []

    def watch(progress: HostProgress) -> None:
        seen.append(progress)
        if progress.outcome == "running" and progress.text.startswith("compile"):
            stop.set()

    with pytest.raises(Interrupted):
        provision.run(machine.work(hosts), watch, stop)
    assert any(p.outcome == "running" and p.host == "db3" for p in seen)
    (work,) = (machine.base("db3") / "builds" / "making").iterdir()
    assert _going_on(machine, work), "the play is gone, the build is not"

    gate.touch()
    machine.apply(hosts).require_all()
    assert machine.record("db3", "g")["server"] == "bin/mariadbd"


def _going_on(machine: Machine, work: Path) -> bool:
    program = machine.base("db3") / "builds" / "program" / "build_job.py"
    command = ["python3", str(program), "wait", str(work), "0"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 10
