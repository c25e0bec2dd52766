"""The command line of the agent: JSON answers, errors, the clock, facts, old Pythons."""

import ast
import json
import os
import platform
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

import fleetmark_agent
from fleetmark_agent import __main__ as entry
from fleetmark_agent import facts, verbs
from fleetmark_agent.facts_storage import place

PACKAGE = Path(fleetmark_agent.__file__).parent


def call(capsys, *arguments):
    code = verbs.run(list(arguments))
    return code, json.loads(capsys.readouterr().out)


def test_a_wrong_call_is_a_usage_error(capsys, tmp_path):
    for arguments in ([], ["fly"], ["release", "--run", "r"], ["arm"]):
        code, answer = call(capsys, *arguments)
        assert (code, answer["error"]["kind"]) == (2, "usage")
        assert answer["error"]["evidence"].startswith("usage:")
    code, answer = call(capsys, "--base", str(tmp_path), "arm", str(tmp_path / "none.json"))
    assert (code, answer["error"]["kind"]) == (2, "usage")
    code, answer = call(capsys, "--base", str(tmp_path), "stop", "--run", "../..")
    assert (code, answer["error"]["message"]) == (2, "run '../..' is not a name")


def test_a_job_of_another_version_says_so(capsys, tmp_path):
    path = tmp_path / "job.json"
    path.write_text('{"version": 99}')
    code, answer = call(capsys, "--base", str(tmp_path), "arm", str(path))
    assert code == 2
    assert "deploy the agent again" in answer["error"]["message"]


def test_a_base_that_cannot_be_made_is_a_host_error(capsys, tmp_path):
    (tmp_path / "file").write_text("")
    code, answer = call(capsys, "--base", str(tmp_path / "file" / "b"), "claim", "r1")
    assert (code, answer["error"]["kind"]) == (3, "host")
    assert "fleetmark_base_dir" in answer["error"]["next_step"]


def test_claim_status_clean(capsys, tmp_path):
    base = ("--base", str(tmp_path / "b"))
    assert call(capsys, *base, "claim", "r1", "--by", "x") == (0, {"run": "r1"})
    code, answer = call(capsys, *base, "status")
    assert (code, answer["claim"]["run"], answer["jobs"], answer["dbms"]) == (0, "r1", [], [])
    assert call(capsys, *base, "clean", "--run", "r1") == (0, {"stopped": [], "removed": False})
    assert call(capsys, *base, "status")[1]["claim"] is None


def test_the_clock_answers_each_line_between_two_looks_at_it():
    clock = subprocess.Popen(
        [sys.executable, "-m", "fleetmark_agent", "clock"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd="/",
    )
    assert clock.stdin
    assert clock.stdout
    for _ in range(3):
        before = time.time()
        clock.stdin.write(b"x\n")
        clock.stdin.flush()
        received, sent = map(float, clock.stdout.readline().split())
        after = time.time()
        # The text has nanoseconds, a double of this size steps by 240.
        assert before - 1e-6 <= received <= sent <= after + 1e-6
    clock.stdin.write(b"a\nb\n")
    clock.stdin.close()
    assert len(clock.stdout.read().splitlines()) == 2
    assert clock.wait(timeout=10) == 0


def test_facts_are_those_of_this_host(capsys, tmp_path):
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        code, found = call(
            capsys, "--base", str(tmp_path / "b"), "facts", "--data-dir", str(tmp_path / "d")
        )
        assert listener.getsockname()[1] in found["listening_ports"]
    assert code == 0
    assert set(found) == {
        "version", "hostname", "boot_id", "kernel", "os", "architecture", "virtualization",
        "python", "cpu", "memory_bytes", "swap_bytes", "swappiness", "transparent_hugepages",
        "clocksource", "base", "data", "disks", "network", "tools", "listening_ports", "agent",
        "claim", "user", "systemd",
    }  # fmt: skip
    assert found["kernel"] == os.uname().release
    assert found["python"] == platform.python_version()
    assert found["cpu"]["logical"] == os.sysconf("SC_NPROCESSORS_ONLN")
    assert found["memory_bytes"] == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert found["data"]["path"] == str(tmp_path / "d")
    assert found["base"]["free_bytes"] == pytest.approx(shutil.disk_usage(tmp_path).free, rel=0.05)
    assert found["claim"] is None
    for name in ("sysbench", "fio"):
        assert (found["tools"][name] is not None) == (shutil.which(name) is not None)
    assert set(found["tools"]) == {"sysbench", "fio", "mariadbd", "mysqld"}
    assert not (tmp_path / "b").exists()


def test_a_directory_lies_on_its_own_mount():
    assert place("/proc/self")["filesystem"] == "proc"
    assert place("/proc/self")["scheduler"] is None
    deeper = place("/no/such/place")
    assert deeper["filesystem"] == place("/")["filesystem"]


def test_a_missing_tool_is_null(monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    assert facts.tool_version("fio") is None


def test_an_old_python_gets_a_clear_answer(monkeypatch, capsys):
    monkeypatch.setattr(sys, "version_info", (3, 8, 1, "final", 0))
    with pytest.raises(SystemExit) as caught:
        entry.main()
    assert caught.value.code == 3
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["message"] == "the agent needs Python 3.9 or later"
    assert error["evidence"].endswith("is Python 3.8.1")


@pytest.mark.parametrize("name", ["__init__.py", "__main__.py"])
def test_the_entry_is_readable_for_an_old_python(name):
    ast.parse((PACKAGE / name).read_text(), feature_version=(3, 4))


def test_all_of_the_agent_is_readable_for_3_9():
    for path in PACKAGE.glob("*.py"):
        ast.parse(path.read_text(), feature_version=(3, 9))
