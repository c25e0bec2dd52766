"""CPU and memory policy in a /sys and /proc that were made up, as real kernels lay them out."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import role_modules  # noqa: F401 (makes the next imports possible)
import yaml
from ansible.module_utils import fleetmark_cpu_state as state
from ansible.module_utils.fleetmark_cpu_state import CpuError, Host, absent, apply, differences

from fleetmark import provision
from fleetmark.provision import HostStatus, Provisioning

CPU = "sys/devices/system/cpu"


class Machine(Host):
    """Two cores with two threads each; switching SMT off takes the siblings away, as it does."""

    def put(self, **files: str) -> None:
        for name, content in files.items():
            path = Path(self.root) / name.replace("__", "/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)

    def cpu(self, **files: str) -> None:
        self.put(**{f"{CPU.replace('/', '__')}__{name}": text for name, text in files.items()})

    def siblings(self, *lists: str) -> None:
        for number, words in enumerate(lists):
            self.cpu(**{f"cpu{number}__topology__thread_siblings_list": words})

    def write(self, path: str, value: str) -> None:
        if path.endswith("smt/control"):
            together = ("0,2", "1,3", "0,2", "1,3")
            self.siblings(*(together if value == "on" else ("0", "1", "", "")))
        if path.endswith("transparent_hugepage/enabled"):
            value = "always madvise never".replace(value, f"[{value}]")
        super().write(path, value)

    def at(self, path: str) -> str:
        return (Path(self.root) / path).read_text()


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    made = Machine(str(tmp_path))
    made.siblings("0,2", "1,3", "0,2", "1,3")
    made.cpu(smt__control="on\n", cpufreq__boost="1\n")
    for number in range(2):
        governors = {
            "scaling_governor": "schedutil\n",
            "scaling_available_governors": "performance schedutil\n",
        }
        made.cpu(**{f"cpufreq__policy{number}__{k}": v for k, v in governors.items()})
        for index, latency_us in enumerate((0, 2, 10, 133)):
            idle = f"cpu{number}__cpuidle__state{index}__"
            made.cpu(**{idle + "latency": f"{latency_us}\n", idle + "disable": "0\n"})
    made.put(
        proc__sys__kernel__numa_balancing="1\n",
        proc__sys__vm__swappiness="60\n",
        sys__kernel__mm__transparent_hugepage__enabled="always [madvise] never\n",
    )
    return made


ALL: dict[str, Any] = {
    "smt": "off",
    "governor": "performance",
    "boost": "off",
    "idle_latency_us": 10,
    "numa_balancing": "off",
    "transparent_hugepages": "never",
    "swappiness": 1,
}
BEFORE = {
    "smt": "on",
    "governor": "schedutil",
    "boost": "on",
    "idle_latency_us": 133,
    "numa_balancing": "on",
    "transparent_hugepages": "madvise",
    "swappiness": 60,
}


def test_everything_is_set_once_and_taken_back(machine: Machine) -> None:
    assert differences(machine, ALL) == BEFORE
    assert apply(machine, ALL) == BEFORE
    assert differences(machine, ALL) == {}
    assert apply(machine, ALL) == {}
    assert machine.threads_per_core() == 1
    disabled = [machine.at(f"{CPU}/cpu1/cpuidle/state{n}/disable").strip() for n in range(4)]
    assert disabled == ["0", "0", "0", "1"]
    assert machine.at(f"{CPU}/cpufreq/policy1/scaling_governor") == "performance"
    apply(machine, BEFORE)
    assert {item: machine.read(item) for item in BEFORE} == BEFORE


def test_what_is_not_asked_for_is_not_touched(machine: Machine) -> None:
    apply(machine, {"swappiness": 1, "smt": None, "governor": None})
    assert machine.read("smt") == "on"
    assert machine.read("governor") == "schedutil"


def test_intel_says_boost_the_other_way_round(machine: Machine) -> None:
    (Path(machine.root) / CPU / "cpufreq/boost").unlink()
    machine.cpu(intel_pstate__no_turbo="0\n")
    assert machine.read("boost") == "on"
    apply(machine, {"boost": "off"})
    assert machine.at(f"{CPU}/intel_pstate/no_turbo") == "1"
    assert machine.read("boost") == "off"


@pytest.mark.parametrize("control", ["notsupported", "notimplemented"])
def test_smt_that_cannot_be_switched_is_judged_by_the_siblings(
    machine: Machine, control: str
) -> None:
    machine.cpu(smt__control=f"{control}\n")
    with pytest.raises(CpuError, match=f"the kernel cannot switch it .* says {control}"):
        apply(machine, {"smt": "off"})
    machine.siblings("0", "1", "2", "3")
    assert apply(machine, {"smt": "off"}) == {}
    with pytest.raises(CpuError, match="SMT is off, asked for is on"):
        apply(machine, {"smt": "on"})


def test_smt_that_was_forced_off_comes_back_only_by_a_boot(machine: Machine) -> None:
    machine.cpu(smt__control="forceoff\n")
    machine.siblings("0", "1", "", "")
    assert apply(machine, {"smt": "off"}) == {}
    with pytest.raises(CpuError, match="nosmt=force"):
        apply(machine, {"smt": "on"})


def test_a_kernel_without_the_switch_and_one_thread_a_core_is_off(tmp_path: Path) -> None:
    bare = Machine(str(tmp_path))
    bare.siblings("0", "1")
    assert apply(bare, {"smt": "off"}) == {}
    with pytest.raises(CpuError, match="says nothing"):
        apply(bare, {"smt": "on"})
    assert absent(bare, ALL) == [item for item in ALL if item != "smt"]
    assert apply(bare, ALL) == {}


def test_a_governor_that_is_not_there_and_a_value_that_does_not_stay(machine: Machine) -> None:
    with pytest.raises(CpuError, match="no governor turbo; the driver has performance schedutil"):
        apply(machine, {"governor": "turbo"})
    machine.write = lambda path, value: None  # type: ignore[method-assign]
    with pytest.raises(CpuError, match="set without effect: swappiness is 60 and not 1"):
        apply(machine, {"swappiness": 1})


def test_the_boot_program_sets_what_it_can_and_fails_for_the_rest(tmp_path: Path) -> None:
    wanted = tmp_path / "cpu.json"
    wanted.write_text(json.dumps({}))
    program = [sys.executable, state.__file__, str(wanted)]
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


ROLE = """
- hosts: all
  gather_facts: false
  tasks:
    - name: Apply the role
      ansible.builtin.include_role: {name: cpu, tasks_from: "{{ entry | default('main') }}"}
"""


@pytest.mark.fleet
def test_the_role_remembers_once_and_restores(machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "role.yml").write_text(ROLE)

    def play(check: bool = False, **changes: Any) -> HostStatus:
        variables = {
            "ansible_connection": "local",
            "ansible_python_interpreter": "/usr/bin/python3",
            "cpu_become": False,
            "cpu_persist": False,
            "cpu_root": machine.root,
            "cpu_etc": str(tmp_path / "etc"),
            "cpu_governor": "performance",
            "cpu_swappiness": 1,
            **changes,
        }
        (tmp_path / "hosts.yml").write_text(yaml.safe_dump({"all": {"hosts": {"h": variables}}}))
        work = Provisioning(
            tmp_path / "hosts.yml",
            ["h"],
            tmp_path / "evidence",
            {},
            check,
            str(tmp_path / "role.yml"),
        )
        return provision.run(work).hosts["h"]

    former = tmp_path / "etc" / "former" / "cpu.json"
    dry = play(check=True)
    assert (dry.message, dry.changed, former.exists()) == ("", 1, False)
    assert machine.read("swappiness") == 60
    assert "swappiness is 60, asked for is 1" in play(entry="verify").message
    assert play().changed == 1
    assert (machine.read("swappiness"), machine.read("governor")) == (1, "performance")
    assert play().changed == 0
    assert play(entry="verify").ready
    # Another value later: what was before us is still what is remembered, and one item more.
    assert play(cpu_swappiness=10, cpu_boost="off").changed == 1
    assert json.loads(former.read_text()) == {
        "governor": "schedutil",
        "swappiness": 60,
        "boost": "on",
    }
    assert play(entry="restore").changed > 0
    assert {item: machine.read(item) for item in ("governor", "swappiness", "boost")} == {
        "governor": "schedutil",
        "swappiness": 60,
        "boost": "on",
    }
    assert not former.exists()
