"""Files of the agent: claim, names, manifest, processes, the journal on a full disk."""

import hashlib
import json
import os
import resource
import stat
import subprocess
import sys

import pytest

from fleetmark_agent import journal, process, spool
from fleetmark_agent.errors import HostError, UsageError
from fleetmark_agent.spool import Spool


@pytest.fixture
def store(tmp_path):
    return Spool(str(tmp_path / "base"))


def test_a_claim_is_for_one_run(store):
    assert store.claimed_by() is None
    store.claim("r1", "alice@desk")
    store.claim("r1", "bob")
    with pytest.raises(HostError, match="held by run r1") as caught:
        store.claim("r2")
    assert "alice@desk" in caught.value.evidence
    assert caught.value.exit_code == 3
    assert store.free("r2") is False
    assert store.free("r1") is True
    store.claim("r2")
    assert store.claimed_by()["run"] == "r2"
    assert stat.S_IMODE(os.stat(store.base).st_mode) == 0o700
    assert set(os.listdir(store.base)) == {"claim.json", "runs"}


def test_of_many_claims_at_once_one_wins(store):
    program = (
        "import sys; from fleetmark_agent.spool import Spool;Spool(sys.argv[1]).claim(sys.argv[2])"
    )
    runs = [f"r{n}" for n in range(6)]
    started = [
        subprocess.Popen([sys.executable, "-c", program, store.base, run], stderr=subprocess.PIPE)
        for run in runs
    ]
    won = [run for run, child in zip(runs, started, strict=True) if not child.communicate()[1]]
    assert won == [store.claimed_by()["run"]]


@pytest.mark.parametrize("name", ["", "..", "a/b", ".hidden", "a b", "a\nb", "-x"])
def test_names_are_harmless(store, name):
    with pytest.raises(UsageError):
        store.job("r1", "t1", name)
    with pytest.raises(UsageError):
        store.run_path(name)


def test_manifest_leaves_secrets_out(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"hello")
    (tmp_path / "secret.json").write_text("{}")
    (tmp_path / "shm").write_bytes(b"\0" * 9)
    (tmp_path / "lua").mkdir()
    spool.write_manifest(str(tmp_path))
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert manifest == {
        "version": 1,
        "files": {"a.txt": {"bytes": 5, "sha256": hashlib.sha256(b"hello").hexdigest()}},
    }


def test_a_process_is_its_number_and_its_start(tmp_path):
    child = subprocess.Popen(["sleep", "60"])
    identity = process.identify(child.pid)
    process.write_pid_file(str(tmp_path / "pid"), identity)
    assert process.read_pid_file(str(tmp_path / "pid")) == identity
    assert process.alive(identity)
    recycled = process.Identity(child.pid, identity.start_ticks - 1)
    assert not process.alive(recycled)
    assert process.end(recycled, 0.1) is True
    assert child.poll() is None
    process.send_signal(identity, 9)
    # A zombie is no running process, whoever has to collect it.
    assert process.wait_until(lambda: not process.alive(identity), 5.0)
    child.wait()
    assert process.read_pid_file(str(tmp_path / "none")) is None


def test_unit_command_names_limits():
    command = process.unit_command(
        "u1", ["/bin/x", "-a"], {"LimitNOFILE": "9", "KillMode": "process"}
    )
    assert command == [
        "systemd-run", "--quiet", "--collect", "--unit=u1", "--property=KillMode=process",
        "--property=LimitNOFILE=9", "--", "/bin/x", "-a",
    ]  # fmt: skip


def test_a_record_that_does_not_fit_leaves_no_half_line(tmp_path):
    path = tmp_path / "journal.jsonl"
    writer = journal.Writer(str(path))
    writer.append("note", level="info", text="first")
    size = path.stat().st_size
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    # A limit in the middle of the next line: the system writes a part, then refuses.
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 20, before[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            writer.append("note", level="info", text="x" * 100)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert path.stat().st_size == size
    writer.append("note", level="info", text="second")
    writer.close()
    assert [r["text"] for r in journal.read(path.read_bytes())] == ["first", "second"]
