"""The program that builds on a host: a real cmake and compiler, a source of a few lines."""

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from standin_source import BUILT, FAILED, GOING_ON, SOURCE, Job, pack

pytestmark = pytest.mark.fleet


@pytest.fixture(scope="module", autouse=True)
def tools() -> None:
    missing = [name for name in ("cmake", "c++", "tar") if not shutil.which(name)]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pack(tmp_path_factory.mktemp("archive"))[0]


def wait_until(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    limit = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.02)


def test_a_build_is_stamped_and_cleared_up(archive: Path, tmp_path: Path) -> None:
    job = Job(tmp_path)
    job.spec(archive, WITH_SSL="system")
    done = job.build()
    assert done.returncode == BUILT, done.stdout
    stamp = job.stamp()
    assert stamp["server"] == "bin/mariadbd"
    assert stamp["server_says"].startswith("mariadbd  Ver 1.2.3-MariaDB")
    assert "(ssl system)" in stamp["server_says"]
    assert stamp["flags"] == {"CMAKE_BUILD_TYPE": "RelWithDebInfo", "WITH_SSL": "system"}
    assert stamp["jobs"] == 1
    assert stamp["installed_bytes"] > 0
    assert stamp["compiler"].startswith("c++")
    assert (job.prefix / "fleetmark-build" / "compile.log").is_file()
    assert not (job.work / "source").exists()
    assert not (job.work / "build").exists()


@pytest.mark.skipif(not shutil.which("ccache"), reason="not installed: ccache")
def test_builds_in_two_directories_share_objects(archive: Path, tmp_path: Path) -> None:
    first, second = Job(tmp_path, "a"), Job(tmp_path, "b")
    first.spec(archive)
    second.spec(archive, PLUGIN_ROCKSDB="DYNAMIC")
    assert first.build().returncode == BUILT
    assert second.build().returncode == BUILT
    assert first.stamp()["ccache"] == {"hits": 0, "misses": 3}
    assert second.stamp()["ccache"] == {"hits": 3, "misses": 1}, "the engine is one more file"


def test_the_first_error_is_shown_with_its_file(archive: Path, tmp_path: Path) -> None:
    job = Job(tmp_path)
    job.spec(archive, STANDIN_VARIANT="broken")
    done = job.build()
    assert done.returncode == FAILED
    first = done.stdout.splitlines()[0]
    assert first.startswith("compile failed: broken.cc:2:")
    assert "no_such_name" in first
    assert "another_missing_name" not in first
    assert not job.prefix.exists()


def test_a_download_is_stopped_and_named(archive: Path, tmp_path: Path) -> None:
    job = Job(tmp_path)
    job.spec(archive, STANDIN_VARIANT="download")
    done = job.build()
    assert done.returncode == FAILED
    lines = done.stdout.splitlines()
    assert lines[0].startswith("the source tried to download something")
    assert "http://boost.invalid/boost.tar.gz" in lines[1]


def test_a_flag_that_nobody_knows_is_an_error_unless_it_switches_off(
    archive: Path, tmp_path: Path
) -> None:
    job = Job(tmp_path)
    job.spec(archive, WITH_SLS="system", PLUGIN_TOKUDB="NO")
    done = job.build()
    assert done.returncode == FAILED
    assert done.stdout.splitlines()[0] == "the source does not know the flag WITH_SLS"


def test_an_engine_that_was_not_built_is_named(archive: Path, tmp_path: Path) -> None:
    job = Job(tmp_path)
    job.spec(archive)
    spec = json.loads((job.work / "spec.json").read_text())
    (job.work / "spec.json").write_text(json.dumps({**spec, "engines": ["connect"]}))
    done = job.build()
    assert done.returncode == FAILED
    assert done.stdout.splitlines()[0] == "the build has no engine connect"


def test_another_version_than_named_is_refused(archive: Path, tmp_path: Path) -> None:
    job = Job(tmp_path)
    job.spec(archive)
    spec = json.loads((job.work / "spec.json").read_text())
    (job.work / "spec.json").write_text(json.dumps({**spec, "dbms_version": "1.2.30"}))
    done = job.build()
    assert done.returncode == FAILED
    assert done.stdout.splitlines()[0] == "the source is version 1.2.3, the build says 1.2.30"


def test_a_second_start_joins_and_a_killed_build_goes_on(archive: Path, tmp_path: Path) -> None:
    job, gate = Job(tmp_path), tmp_path / "gate"
    job.spec(archive, STANDIN_GATE=str(gate))
    assert job.call("start").stdout == "begun\n"
    wait_until((job.work / "compile.log").exists)
    assert job.call("start").stdout == "it is going on already\n"
    waiting = job.call("wait", "0")
    assert waiting.returncode == GOING_ON
    assert waiting.stdout.startswith("compile")

    os.kill(_worker(job), signal.SIGKILL)
    wait_until(lambda: job.call("wait", "0").returncode != GOING_ON)
    died = job.call("wait", "0")
    assert died.returncode == FAILED
    assert died.stdout.splitlines()[0] == "the build died in its stage `compile`"
    assert not (job.prefix / "fleetmark-build.json").exists()

    gate.touch()
    assert job.build().returncode == BUILT
    assert job.stamp()["server"] == "bin/mariadbd"


def _worker(job: Job) -> int:
    """The process that does the work: `run` with this directory, by its command line."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if b"run" in words and os.fsencode(job.work) in words:
                return int(entry.name)
    raise AssertionError("nothing works there")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("a small disk needs root")
    point = tmp_path / "disk"
    point.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(point)]
    if subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip("no file system can be mounted here")
    yield point
    subprocess.run(["umount", str(point)], check=True)


def test_a_full_disk_says_so_and_the_build_goes_on_later(
    archive: Path, tmp_path: Path, small_disk: Path
) -> None:
    job = Job(small_disk)
    job.spec(archive, STANDIN_VARIANT="large")
    done = job.build()
    assert done.returncode == FAILED
    lines = done.stdout.splitlines()
    assert lines[0] == "the disk is full"
    assert "No space left on device" in lines[1]
    assert lines[-1].startswith("next: free some space")

    subprocess.run(["mount", "-o", "remount,size=128m", str(small_disk)], check=True)
    again = job.build()
    assert again.returncode == BUILT, again.stdout


def test_a_git_commit_is_built(tmp_path: Path) -> None:
    if not shutil.which("git"):
        pytest.skip("not installed: git")
    repository = tmp_path / "repository"
    shutil.copytree(SOURCE, repository)
    git = ["git", "-C", str(repository), "-c", "user.name=t", "-c", "user.email=t@example.org"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "all"]):
        subprocess.run([*git, *words], check=True)
    head = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
    (repository / "VERSION").write_text("MYSQL_VERSION_MAJOR=9\n")
    subprocess.run([*git, "commit", "-qam", "later"], check=True)

    job = Job(tmp_path)
    job.spec(Path("none"))
    spec = json.loads((job.work / "spec.json").read_text())
    spec.update(archive="", repository=f"file://{repository}", commit=head.stdout.strip())
    (job.work / "spec.json").write_text(json.dumps(spec))
    done = job.build()
    assert done.returncode == BUILT, done.stdout
    assert job.stamp()["commit"] == head.stdout.strip()

    spec.update(commit="0" * 40, digest="b", prefix=str(tmp_path / "other"))
    other = Job(tmp_path, "b")
    other.work.mkdir(parents=True)
    (other.work / "spec.json").write_text(json.dumps(spec))
    missing = other.build()
    assert missing.returncode == FAILED
    assert missing.stdout.startswith("unpack failed in git")
