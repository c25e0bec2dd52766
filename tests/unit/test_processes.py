"""Finding and ending processes by what they work on."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fleetmark import processes
from fleetmark.errors import InfrastructureError

pytestmark = pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs /proc")

PARENT = "import subprocess; print(subprocess.Popen(['sleep', '600']).pid, flush=True); input()"


def test_those_that_work_in_a_directory_and_their_children_are_ended(tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT],
        cwd=inside,
        start_new_session=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    beside = subprocess.Popen(["sleep", "600"], cwd=tmp_path, start_new_session=True)
    try:
        assert processes.inside_directory(inside) == {parent.pid, child}
        killed = processes.end_all(lambda: processes.inside_directory(inside), "a test")
        assert killed == 2
        assert parent.wait(10) == -signal.SIGKILL
        assert processes.inside_directory(inside) == set()
        assert beside.poll() is None
    finally:
        beside.kill()
        beside.wait()
        parent.communicate()


def test_by_an_environment_that_children_inherit(tmp_path: Path) -> None:
    marked = subprocess.Popen(["sleep", "600"], env={"MARK": f"{tmp_path}/x"})
    try:
        assert processes.with_environment(str(tmp_path)) == {marked.pid}
        assert processes.end_all(lambda: processes.with_environment(str(tmp_path)), "a test") == 1
    finally:
        marked.kill()
    assert marked.wait(10) == -signal.SIGKILL


def test_what_does_not_end_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_END_SECONDS", 0.05)
    immortal = subprocess.Popen(["true"])
    immortal.wait()
    with pytest.raises(InfrastructureError, match=f"of a test do not end: {immortal.pid}"):
        processes.end_all(lambda: {immortal.pid}, "a test")
