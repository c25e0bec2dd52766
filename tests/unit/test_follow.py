"""Following jobs: who is waited for, and for how long."""

import threading
import time
from pathlib import Path

import pytest

from fleetmark import gather
from fleetmark.channel.local import LocalChannel
from fleetmark.conduct import follow
from fleetmark.conduct.follow import Follower, wait_for_end
from fleetmark.conduct.links import HostLink
from fleetmark.errors import HostError
from fleetmark.inventory import Host

ENDED = b'{"seq":1,"t":0,"kind":"ended"}\n'


class Mute(LocalChannel):
    """A channel to a host that does not answer."""

    def read(self, path: str, offset: int = 0, limit: int = -1) -> bytes:
        raise HostError("does not answer", host=self.host)


def follower(tmp_path: Path, name: str, mute: bool = False, ended: bool = False) -> Follower:
    host = Host(name, "", connection="local", base_dir=str(tmp_path))
    remote = tmp_path / name / "remote"
    remote.mkdir(parents=True)
    (remote / "journal.jsonl").write_bytes(b'{"seq":0,"t":0,"kind":"ready"}\n')
    if ended:
        with (remote / "journal.jsonl").open("ab") as handle:
            handle.write(ENDED)
    link = HostLink(host, Mute(host) if mute else LocalChannel(host))
    return Follower(link, gather.Source(str(remote), tmp_path / name / "local"))


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "_ORDINARY_SECONDS", 0.1)


def wait(
    followers: dict[str, Follower], defining: list[str], stop: threading.Event | None = None
) -> dict[str, HostError]:
    for one in followers.values():
        one.start()
    try:
        return wait_for_end(followers, defining, stop or threading.Event(), lost_seconds=0.5)
    finally:
        for one in followers.values():
            one.give_up()


def test_the_end_is_when_the_defining_jobs_have_ended(tmp_path: Path) -> None:
    followers = {
        "load1": follower(tmp_path, "load1", ended=True),
        "load2": follower(tmp_path, "load2", ended=True),
        "db1": follower(tmp_path, "db1"),
    }
    assert wait(followers, ["load1", "load2"]) == {}
    assert [f.ended for f in followers.values()] == [True, True, False]
    local = tmp_path / "load1" / "local" / "journal.jsonl"
    assert local.read_bytes().endswith(ENDED)


def test_a_silent_load_host_is_left_when_the_others_have_ended(tmp_path: Path) -> None:
    followers = {
        "load1": follower(tmp_path, "load1", ended=True),
        "load2": follower(tmp_path, "load2", mute=True),
        "db1": follower(tmp_path, "db1"),
    }
    started = time.monotonic()
    lost = wait(followers, ["load1", "load2"])
    assert list(lost) == ["load2"]
    assert lost["load2"].host == "load2"
    assert "does not answer" in lost["load2"].evidence
    assert 0.4 < time.monotonic() - started < 5.0


def test_a_silent_load_host_is_waited_for_while_others_work(tmp_path: Path) -> None:
    followers = {
        "load1": follower(tmp_path, "load1"),
        "load2": follower(tmp_path, "load2", mute=True),
    }
    stop = threading.Event()
    timer = threading.Timer(1.5, stop.set)
    timer.start()
    assert wait(followers, ["load1", "load2"], stop) == {}
    assert stop.is_set()


def test_without_its_database_host_a_step_cannot_go_on(tmp_path: Path) -> None:
    followers = {
        "load1": follower(tmp_path, "load1"),
        "db1": follower(tmp_path, "db1", mute=True),
    }
    assert list(wait(followers, ["load1"])) == ["db1"]


def test_waiting_before_the_start_is_no_silence(tmp_path: Path) -> None:
    one = follower(tmp_path, "load1", ended=True)
    one._heard -= 60.0  # made a minute ago: T0 may be far away
    assert wait({"load1": one}, ["load1"]) == {}
