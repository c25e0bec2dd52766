"""Labs on real namespaces and real sshd: they come up, they are apart, they leave nothing."""

import contextlib
import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from light_hosts import LightFleet, why_no_light_hosts

from fleetmark import lab
from fleetmark.errors import ConfigError, HostError
from fleetmark.lab import light, machine, state

pytestmark = pytest.mark.fleet

BIN = Path(sys.executable).parent


def need_light() -> None:
    if why := why_no_light_hosts(lab.LabSpec("t-x", "light")):
        pytest.skip(why)


def traces(name: str) -> list[str]:
    """Everything on this machine that belongs to a lab."""
    links = subprocess.run(["ip", "-br", "link"], capture_output=True, text=True, check=True)
    found = [line.split()[0] for line in links.stdout.splitlines()]
    found += os.listdir("/run/netns") if Path("/run/netns").is_dir() else []
    found = [text for text in found if text.startswith(machine.prefix(name))]
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if f"/{name}/".encode() in (process / "cmdline").read_bytes():
                found.append(f"process {process.name}")
            mounts = (process / "mountinfo").read_text()
        except OSError:
            continue
        found += [line for line in mounts.splitlines() if f"/{name}/" in line]
    if state.directory(name).exists():
        found.append(str(state.directory(name)))
    return found


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_ansible_reaches_every_host(light_fleet: LightFleet) -> None:
    done = subprocess.run(
        [BIN / "ansible", "-i", light_fleet.inventory, "all", "-m", "ping"],
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count('"ping": "pong"') == 3


def test_the_inventory_names_the_fleet(light_fleet: LightFleet) -> None:
    fleet = light_fleet.fleet
    assert fleet.groups["db"] == ["db1"]
    assert fleet.groups["load"] == ["load1", "load2"]
    addresses = [host.address for host in fleet.hosts.values()]
    assert all(address.startswith("10.213.") for address in addresses)
    assert len(set(addresses)) == 3
    planned = lab.fleet(lab.LabSpec(light_fleet.name, "light", 1, 2))
    assert list(planned.hosts) == list(fleet.hosts)
    assert planned.groups == fleet.groups
    assert planned.hosts["db1"].base_dir == fleet.hosts["db1"].base_dir


def test_hosts_are_apart_and_reach_one_another_only(light_fleet: LightFleet) -> None:
    marker = "/var/lib/fleetmark/marker /tmp/marker-of-a-host /run/marker-of-a-host"
    told = light_fleet.ssh("db1", f"touch {marker}; hostname; ls /run/systemd 2>/dev/null | wc -l")
    assert told.split() == ["db1", "0"]
    address = light_fleet.fleet.hosts["db1"].address
    try:
        assert not Path("/tmp/marker-of-a-host").exists()
        told = light_fleet.ssh(
            "load1",
            f"ls {marker} 2>/dev/null | wc -l; head -c 4 < /dev/tcp/{address}/22; echo;"
            " ip -j route",
        )
    finally:
        light_fleet.ssh("db1", f"rm -f {marker}")
    seen, banner, routes = told.splitlines()
    stored = state.read(light_fleet.name)
    assert stored is not None
    assert seen == "0"
    assert banner == "SSH-"
    assert [route["dst"] for route in json.loads(routes)] == [stored.subnet]


def test_only_the_labs_key_opens_a_host(light_fleet: LightFleet, tmp_path: Path) -> None:
    host = light_fleet.fleet.hosts["db1"]
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "other"], check=True
    )
    common = ["-o", "BatchMode=yes", "-o", "IdentitiesOnly=yes", "-o", "IdentityAgent=none"]
    common += ["-o", f"UserKnownHostsFile={host.known_hosts_file}"]
    done = subprocess.run(
        ["ssh", *common, "-v", "-i", tmp_path / "other", f"root@{host.address}", "true"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 255
    assert "Permission denied (publickey)" in done.stderr
    assert oct(Path(host.key_file).stat().st_mode & 0o777) == "0o600"


def test_status_tells_which_host_is_dead(
    new_light_lab: Callable[[int, int], LightFleet],
) -> None:
    fleet = new_light_lab(1, 1)
    kill_sshd(fleet, "load1")
    status = lab.status(fleet.name)
    assert status is not None
    assert (status.kind, status.complete, status.inventory) == ("light", True, fleet.inventory)
    assert [(h.name, h.group, h.alive) for h in status.hosts] == [
        ("db1", "db", True),
        ("load1", "load", False),
    ]
    assert status.hosts[0].processes >= 1
    assert status.hosts[1].processes == 0


def kill_sshd(fleet: LightFleet, host: str) -> None:
    pids = machine.pids(f"{machine.prefix(fleet.name)}-{host}")
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + 10
    while machine.pids(f"{machine.prefix(fleet.name)}-{host}"):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_hosts_that_do_not_reach_one_another_are_found(
    new_light_lab: Callable[[int, int], LightFleet],
) -> None:
    fleet = new_light_lab(1, 1)
    made = state.read(fleet.name)
    assert made is not None
    namespace = f"{machine.prefix(fleet.name)}-load1"
    machine.ip("-n", namespace, "route", "add", "unreachable", f"{made.hosts[0].address}/32")
    with pytest.raises(HostError, match="load1: it does not reach db1") as caught:
        light.finish(made)
    assert "No route to host" in caught.value.evidence
    assert "bridge-nf-call-iptables" in caught.value.next_step


def test_down_leaves_nothing_not_even_detached_processes_or_after_a_kill(
    new_light_lab: Callable[[int, int], LightFleet],
) -> None:
    fleet = new_light_lab(1, 1)
    quiet = "</dev/null >/dev/null 2>&1"
    plain, stubborn = (
        int(pid)
        for pid in fleet.ssh(
            "load1",
            f"setsid sh -c 'echo $$ >/tmp/1; exec sleep 600' {quiet} &"
            f" setsid sh -c 'trap \"\" TERM HUP INT; echo $$ >/tmp/2; sleep 600' {quiet} &"
            " until [ -s /tmp/1 ] && [ -s /tmp/2 ]; do sleep 0.02; done; cat /tmp/1 /tmp/2",
        ).split()
    )
    assert alive(plain)
    assert alive(stubborn)
    kill_sshd(fleet, "db1")
    (state.directory(fleet.name) / "lab.json").unlink()
    assert traces(fleet.name)
    removed = lab.down(fleet.name)
    assert any("processes of" in line for line in removed)
    assert not alive(plain)
    assert not alive(stubborn)
    assert traces(fleet.name) == []
    assert lab.status(fleet.name) is None
    assert lab.down(fleet.name) == []


def test_the_machine_is_as_before() -> None:
    """In a mount namespace where no lab was ever made, all is compared with how it was."""
    need_light()
    program = (
        "import os, subprocess, sys\n"
        "from pathlib import Path\n"
        "from fleetmark import lab\n"
        "def machine():\n"
        "    links = subprocess.run(['ip', '-br', 'link'], capture_output=True, text=True)\n"
        "    mine = lab.machine.prefix('t-before')\n"
        "    return [\n"
        "        [l for l in links.stdout.splitlines() if l.startswith(mine)],\n"
        "        sorted(os.listdir('/run')), sorted(os.listdir('/var/lib')),\n"
        "        Path('/proc/self/mountinfo').read_text(),\n"
        "    ]\n"
        "before = machine()\n"
        "lab.up(lab.LabSpec('t-before', 'light', 1, 1), lambda _: None)\n"
        "between = machine()\n"
        "lab.down('t-before')\n"
        "assert all(b != a for b, a in zip(between, before)), between\n"
        "assert machine() == before, (before, machine())\n"
    )
    inside = 'mount -t tmpfs tmpfs /run && mount -t tmpfs tmpfs /var/lib && exec "$0" -c "$1"'
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", inside, sys.executable, program],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr


def test_an_interrupted_up_removes_what_it_made(monkeypatch: pytest.MonkeyPatch) -> None:
    need_light()
    seen: list[list[str]] = []

    def interrupt(made: state.LabState) -> Path:
        seen.append(traces(made.spec.name))
        raise KeyboardInterrupt

    monkeypatch.setattr(light, "finish", interrupt)
    with pytest.raises(KeyboardInterrupt):
        lab.up(lab.LabSpec("t-interrupted", "light", 1, 1), lambda _: None)
    assert len(seen[0]) > 4
    assert traces("t-interrupted") == []


def test_an_up_that_was_killed_can_be_taken_down() -> None:
    need_light()
    program = (
        "import os\n"
        "from fleetmark import lab\n"
        "def die(lab): os.kill(os.getpid(), 9)\n"
        "lab.light.finish = die\n"
        "lab.up(lab.LabSpec('t-killed', 'light', 1, 1), lambda _: None)\n"
    )
    try:
        done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True)
        assert done.returncode == -signal.SIGKILL, done.stderr
        status = lab.status("t-killed")
        assert status is not None
        assert not status.complete
        with pytest.raises(ConfigError, match="there already") as caught:
            lab.up(lab.LabSpec("t-killed", "light", 1, 1), lambda _: None)
        assert "lab down t-killed" in caught.value.next_step
    finally:
        removed = lab.down("t-killed")
    assert len([line for line in removed if line.startswith("namespace")]) == 2
    assert traces("t-killed") == []


def as_nobody(program: str, home: Path) -> subprocess.CompletedProcess[str]:
    """Run a Python program as a user without rights; skips where that user cannot run Python."""
    user = pwd.getpwnam("nobody")
    os.chown(home, user.pw_uid, user.pw_gid)
    environment = {
        "HOME": str(home),
        "PATH": "/usr/bin:/bin",
        "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for python in (sys.executable, shutil.which(version, path="/usr/bin:/usr/local/bin")):
        if python is None:
            continue
        with contextlib.suppress(PermissionError):
            return subprocess.run(
                [python, "-c", program],
                capture_output=True,
                text=True,
                check=False,
                user=user.pw_uid,
                group=user.pw_gid,
                extra_groups=[],
                env=environment,
                cwd="/",
                timeout=60,
            )
    pytest.skip("the user nobody cannot run this Python")


def test_local_hosts_need_no_root() -> None:
    if os.geteuid() != 0:
        pytest.skip("becoming another user needs root")
    home = Path(f"/tmp/t-local-{os.getpid()}")
    home.mkdir(mode=0o700)
    program = (
        "import json, os, subprocess\n"
        "from fleetmark import inventory, lab\n"
        "assert lab.default_kind() == 'local'\n"
        "path = lab.up(lab.LabSpec('t-nobody', 'local', 1, 1), lambda _: None)\n"
        "fleet = inventory.load(path)\n"
        "db = fleet.hosts['db1']\n"
        "agent = subprocess.Popen(['sleep', '600'], cwd=db.base_dir, start_new_session=True)\n"
        "processes = [h.processes for h in lab.status('t-nobody').hosts]\n"
        "alive = [h.alive for h in lab.status('t-nobody').hosts]\n"
        "removed = lab.down('t-nobody')\n"
        "print(json.dumps({'path': str(path), 'uid': os.getuid(), 'processes': processes,\n"
        "  'base': db.base_dir, 'data': db.data_dir, 'connection': db.connection,\n"
        "  'ports': [h.db_port for h in fleet.hosts.values()], 'alive': alive,\n"
        "  'address': db.db_address, 'ended': agent.wait(10), 'removed': removed,\n"
        "  'left': os.listdir(os.environ['HOME'])}))\n"
    )
    try:
        done = as_nobody(program, home)
        assert done.returncode == 0, done.stderr
        told = json.loads(done.stdout)
    finally:
        shutil.rmtree(home)
    assert told["uid"] == pwd.getpwnam("nobody").pw_uid
    assert told["path"] == f"{home}/.local/state/fleetmark-lab/t-nobody/inventory.yml"
    assert told["base"] == f"{home}/.local/state/fleetmark-lab/t-nobody/hosts/db1/fleetmark"
    assert told["data"] == f"{told['base']}/data"
    assert (told["connection"], told["address"]) == ("local", "127.0.0.1")
    assert told["ports"][0] >= 23306
    assert told["ports"][1] > told["ports"][0]
    assert told["alive"] == [True, True]
    assert told["processes"] == [1, 0]
    assert told["ended"] == -signal.SIGKILL
    assert told["removed"][0] == "1 processes"
