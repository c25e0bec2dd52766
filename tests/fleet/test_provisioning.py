"""Provisioning of light hosts by the real roles, over real SSH."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from light_hosts import LightFleet, light_lab

from fleetmark import bundle, processes, provision
from fleetmark.errors import HostError, InfrastructureError, Interrupted
from fleetmark.lab import machine
from fleetmark.provision import HostProgress, Provisioning, ProvisionResult

pytestmark = pytest.mark.fleet


@dataclass(frozen=True)
class Stage:
    """A lab of its own, the agent, and a run directory to provision into."""

    lab: LightFleet
    agent: bundle.Bundle
    run: Path

    def work(self, phase: str, hosts: list[str], check: bool = False) -> Provisioning:
        variables = provision.variables(
            self.agent, ["db1"], ["mariadb-server"], self.run / phase / "hosts"
        )
        return Provisioning(self.lab.inventory, hosts, self.run / phase, variables, check)

    def provision(self, phase: str, check: bool = False) -> ProvisionResult:
        return provision.run(self.work(phase, list(self.lab.fleet.hosts), check))

    def deployed(self, host: str) -> str:
        return self.lab.ssh(host, "cd /var/lib/fleetmark && find . -printf '%p %m\\n' | sort")


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with light_lab(1, 1) as fleet:
        directory = tmp_path_factory.mktemp("provision")
        agent = bundle.build(directory / "agent.pyz")
        yield Stage(fleet, agent, directory / "run")


def test_check_mode_then_once_then_again(stage: Stage) -> None:
    """One story, because its stages need one another and each takes seconds."""
    dry = stage.provision("dry", check=True)
    assert {name: host.ready for name, host in dry.hosts.items()} == {
        "db1": True,
        "load1": True,
    }
    assert all(host.changed == 2 for host in dry.hosts.values()), "it tells what it would do"
    assert stage.deployed("db1") == ". 700"
    assert (stage.run / "dry" / "hosts" / "db1" / "setup.json").is_file()

    first = stage.provision("first")
    assert first.status == "successful"
    assert all(host.changed == 2 for host in first.hosts.values())
    assert first.failed == {}
    first.require_all()
    for host in first.hosts:
        assert stage.deployed(host).splitlines() == [
            ". 700",
            "./agent 700",
            "./agent/fleetmark-agent.pyz 700",
        ]
        told = stage.lab.ssh(host, "sha256sum /var/lib/fleetmark/agent/fleetmark-agent.pyz")
        assert told.split()[0] == stage.agent.sha256
    facts = json.loads((stage.run / "first" / "hosts" / "load1" / "facts.json").read_text())
    assert (facts["version"], facts["hostname"]) == (1, "load1")
    assert facts["tools"]["sysbench"].startswith("1.")

    again = stage.provision("again")
    assert again.status == "successful"
    assert {name: host.changed for name, host in again.hosts.items()} == {
        "db1": 0,
        "load1": 0,
    }
    check_what_is_kept(stage.run / "first", first)


def check_what_is_kept(directory: Path, result: ProvisionResult) -> None:
    status = json.loads((directory / "status.json").read_text())
    assert (status["version"], status["status"]) == (1, "successful")
    assert status["hosts"]["db1"] == {
        "ok": result.hosts["db1"].ok,
        "changed": 2,
        "failures": 0,
        "unreachable": 0,
        "skipped": result.hosts["db1"].skipped,
        "failed_task": "",
        "message": "",
    }
    events = [json.loads(line) for line in (directory / "events.jsonl").read_text().splitlines()]
    copies = [
        e for e in events if e.get("task") == "Copy the agent" and e["event"] == "runner_on_ok"
    ]
    assert sorted(event["host"] for event in copies) == ["db1", "load1"]
    assert all(event["result"]["changed"] for event in copies)
    versions = [e for e in events if e.get("task") == "Ask the server for its version"]
    assert "MariaDB" in versions[-1]["result"]["stdout"]
    text = (directory / "events.jsonl").read_text()
    assert "task_args" not in text
    assert "invocation" not in text
    assert "PLAY RECAP" in (directory / "stdout.txt").read_text()


def test_bad_hosts_are_named_with_their_reason_and_the_others_are_ready(
    new_light_lab: Callable[[int, int], LightFleet], stage: Stage
) -> None:
    lab = new_light_lab(1, 3)
    for pid in machine.pids(f"{machine.prefix(lab.name)}-load1"):
        os.kill(pid, signal.SIGKILL)
    known_hosts = Path(lab.fleet.hosts["db1"].known_hosts_file)
    keys = known_hosts.read_text().splitlines()
    db_key = keys[0].split()[1:]
    changed = " ".join([lab.fleet.hosts["load2"].address, *db_key])
    known_hosts.write_text("\n".join([keys[0], keys[1], changed]) + "\n")

    seen: list[HostProgress] = []
    there = Stage(lab, stage.agent, stage.run / "bad")
    result = provision.run(there.work("phase", ["db1", "load1", "load2", "load3"]), seen.append)
    assert result.status == "failed"
    assert result.hosts["db1"].ready
    assert [result.hosts[h].unreachable for h in ("load1", "load2", "load3")] == [1, 1, 1]
    assert "refuses the connection" in result.hosts["load1"].message
    assert "host key is not the one on record" in result.hosts["load2"].message
    assert "host key is not on record" in result.hosts["load3"].message
    assert result.hosts["load2"].failed_task == "Ask for the agent's Python"
    outcomes = {(p.host, p.outcome) for p in seen}
    assert {("db1", "changed"), ("load1", "unreachable"), ("load2", "unreachable")} <= outcomes
    with pytest.raises(InfrastructureError, match="3 of 4 hosts are not ready") as caught:
        result.require_all()
    assert "load2: Ask for the agent's Python: its host key" in caught.value.evidence
    assert caught.value.exit_code == 3


def test_a_stopped_run_leaves_no_process_and_no_directory(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A directory of its own: other runs on this machine have theirs in the usual one. Its name
    # is short since Ansible keeps sockets there.
    own = Path(tempfile.mkdtemp(prefix="p", dir="/tmp"))
    monkeypatch.setattr(tempfile, "tempdir", str(own))
    stop = threading.Event()
    private: list[str] = []

    def stop_at_once(_: HostProgress) -> None:
        found = [path for path in own.glob("fm-*/cp") if path.is_dir()]
        private.extend(str(path.parent) for path in found)
        stop.set()

    work = stage.work("stopped", ["db1", "load1"])
    with pytest.raises(Interrupted):
        provision.run(work, stop_at_once, stop)
    assert private
    assert not [path for path in private if Path(path).exists()]
    assert not [path for path in private if processes.with_environment(path)]
    status = json.loads((work.directory / "status.json").read_text())
    assert status["status"] == "canceled"
    assert "ended before" in status["hosts"]["db1"]["message"]
    own.rmdir()


INTERRUPTED = """
import sys
from pathlib import Path
from fleetmark.provision import Provisioning, run
try:
    run(
        Provisioning(Path(sys.argv[1]), ["a", "b"], Path(sys.argv[2]), playbook=sys.argv[3]),
        lambda progress: print(progress.task, flush=True),
    )
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
ENDLESS = """
- hosts: all
  gather_facts: false
  tasks:
    - name: First
      ansible.builtin.debug:
    - name: Endless
      ansible.builtin.command: sleep 600
"""


def test_ctrl_c_leaves_nothing(tmp_path: Path) -> None:
    """Local hosts, whose tasks run on this machine: the sleeps must go too."""
    inventory = tmp_path / "hosts"
    python = f"ansible_python_interpreter={sys.executable}"
    inventory.write_text(f"[all:vars]\nansible_connection=local\n{python}\n[all]\na\nb\n")
    playbook = tmp_path / "endless.yml"
    playbook.write_text(ENDLESS)
    caller = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, inventory, tmp_path / "phase", playbook],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        # As a shell would: a group of its own, which is not Ansible's.
        start_new_session=True,
    )
    assert caller.stdout is not None
    try:
        assert caller.stdout.readline() == "First\n"
        assert caller.stdout.readline() == "First\n"
        wait_until(lambda: sleeping(tmp_path) == 2)
        os.killpg(caller.pid, signal.SIGINT)
        assert caller.communicate(timeout=30)[0] == "interrupted\n"
    except BaseException:
        caller.kill()
        processes.end_all(lambda: processes.with_environment(f"{tmp_path}/fm-"), "the test")
        raise
    assert sleeping(tmp_path) == 0
    assert processes.with_environment(f"{tmp_path}/fm-") == set()
    assert list(tmp_path.glob("fm-*")) == []


def sleeping(directory: Path) -> int:
    found = processes.with_environment(f"{directory}/fm-")
    count = 0
    for pid in found:
        with contextlib.suppress(OSError):
            count += Path(f"/proc/{pid}/cmdline").read_bytes() == b"sleep\x00600\x00"
    return count


def wait_until(condition: Callable[[], bool], bound_seconds: float = 30.0) -> None:
    deadline = time.monotonic() + bound_seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_ansible_itself_failing_is_said_with_its_words(stage: Stage, tmp_path: Path) -> None:
    broken = tmp_path / "broken.yml"
    broken.write_text("- hosts: all\n  nonsense: true\n")
    work = Provisioning(stage.lab.inventory, ["db1"], tmp_path / "p", playbook=str(broken))
    with pytest.raises(InfrastructureError, match="before it reached the hosts") as caught:
        provision.run(work)
    assert "nonsense" in caught.value.evidence


ROLE_ON_HOSTS = """
- hosts: all
  gather_facts: false
  roles: [load_agent]
"""


def test_a_host_that_is_not_as_needed_says_so(stage: Stage, tmp_path: Path) -> None:
    """The role's own refusals, on local hosts of which each lacks something else."""
    old = tmp_path / "old-python"
    old.write_text("#!/bin/sh\necho 3.8\n")
    old.chmod(0o755)
    busy = tmp_path / "busy"
    (busy / "agent").mkdir(parents=True)
    (busy / "agent" / "fleetmark-agent.pyz").write_text("another agent")
    (busy / "claim.json").write_text('{"run": "r"}')
    poor = Path(f"/tmp/t-poor-{os.getpid()}")
    hosts = {
        "old": {"load_agent_base_dir": str(tmp_path / "o"), "load_agent_python": str(old)},
        "none": {"load_agent_base_dir": str(tmp_path / "n"), "load_agent_python": "no-such-python"},
        "busy": {"load_agent_base_dir": str(busy)},
        "poor": {
            "load_agent_base_dir": str(poor),
            "load_agent_tools": {"no-such-tool": "no-such-package"},
            "ansible_become": True,
            "ansible_become_user": "nobody",
            "ansible_become_method": "su",
            "ansible_become_flags": "-s /bin/sh",
        },
        "fine": {"load_agent_base_dir": str(tmp_path / "fine")},
    }
    variables = {"ansible_connection": "local", "ansible_python_interpreter": "/usr/bin/python3"}
    inventory = tmp_path / "inventory.yml"
    inventory.write_text(yaml.safe_dump({"all": {"vars": variables, "hosts": hosts}}))
    playbook = tmp_path / "role.yml"
    playbook.write_text(ROLE_ON_HOSTS)
    agent = {"load_agent_zipapp": str(stage.agent.path), "load_agent_sha256": stage.agent.sha256}
    result = provision.run(
        Provisioning(inventory, list(hosts), tmp_path / "p", agent, playbook=str(playbook))
    )
    said = {name: host.message for name, host in result.hosts.items()}
    assert "needs Python 3.9 or later" in said["old"]
    assert "is 3.8" in said["old"]
    assert "no-such-python is not there" in said["none"]
    assert "claimed by a run" in said["busy"]
    assert (busy / "agent" / "fleetmark-agent.pyz").read_text() == "another agent"
    assert "no-such-package is missing, and installing it needs root" in said["poor"]
    assert not poor.exists()
    assert result.hosts["fine"].ready
    assert (tmp_path / "fine" / "agent" / "fleetmark-agent.pyz").read_bytes() == (
        stage.agent.path.read_bytes()
    )
    with pytest.raises(HostError) as caught:
        ProvisionResult("failed", {"busy": result.hosts["busy"]}, 1.0).require_all()
    assert caught.value.host == "busy"
