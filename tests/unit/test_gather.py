"""Copying from a host, in parts and as a whole."""

import hashlib
import json
from pathlib import Path

import pytest

from fleetmark import gather
from fleetmark.channel import Completed, Conversation
from fleetmark.channel.local import LocalChannel
from fleetmark.errors import HostError, ResultError
from fleetmark.inventory import Host


@pytest.fixture
def source(tmp_path: Path) -> gather.Source:
    remote = tmp_path / "remote"
    remote.mkdir()
    return gather.Source(str(remote), tmp_path / "local")


@pytest.fixture
def channel(tmp_path: Path) -> LocalChannel:
    return LocalChannel(Host("h1", "", connection="local", base_dir=str(tmp_path)))


def put(source: gather.Source, files: dict[str, bytes], **manifest: object) -> None:
    """Files on the host with their manifest."""
    for name, data in files.items():
        (Path(source.remote) / name).write_bytes(data)
    entries = {
        name: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        for name, data in files.items()
    }
    document = {"version": 1, "files": entries, **manifest}
    (Path(source.remote) / "manifest.json").write_text(json.dumps(document))


class Flaky:
    """A channel that spoils the first `times` copies of a file."""

    host = "h1"

    def __init__(self, channel: LocalChannel, name: str, times: int) -> None:
        self._channel, self._name, self._left = channel, name, times

    def read(self, path: str, offset: int = 0, limit: int = -1) -> bytes:
        data = self._channel.read(path, offset, limit)
        if path.endswith(self._name) and data and self._left:
            self._left -= 1
            return bytes([data[0] ^ 1]) + data[1:]
        return data

    def run(
        self, argv: list[str], *, stdin: bytes = b"", timeout_seconds: float = 60.0
    ) -> Completed:
        raise AssertionError(argv)

    def converse(self, argv: list[str]) -> Conversation:
        raise AssertionError(argv)

    def write(self, path: str, data: bytes, mode: int = 0o600) -> None:
        raise AssertionError(path)

    def close(self) -> None:
        raise AssertionError("not ours")


def test_the_tail_takes_whole_lines_and_goes_on(
    source: gather.Source, channel: LocalChannel
) -> None:
    remote = Path(source.remote) / "journal.jsonl"
    assert gather.tail(channel, source) == []
    remote.write_bytes(b"one\ntwo\nth")
    assert gather.tail(channel, source) == [b"one", b"two"]
    assert gather.tail(channel, source) == []
    with remote.open("ab") as handle:
        handle.write(b"ree\n")
    assert gather.tail(channel, source) == [b"three"]
    assert (source.local / "journal.jsonl").read_bytes() == remote.read_bytes()


def test_all_files_are_fetched_and_proved(source: gather.Source, channel: LocalChannel) -> None:
    files = {"journal.jsonl": b"a\nb\n", "sysbench.log": b"x" * 9_000_000, "empty": b""}
    put(source, files)
    gather.tail(channel, source)
    assert not gather.is_whole(source.local)
    assert gather.fetch_all(channel, source) == list(files)
    assert gather.is_whole(source.local)
    assert {p.name: p.read_bytes() for p in source.local.iterdir() if p.name in files} == files


def test_secrets_stay_even_when_a_manifest_names_them(
    source: gather.Source, channel: LocalChannel
) -> None:
    put(source, {"a": b"1", "secret.json": b"{}", "sysbench.cnf": b"p", "init.sql": b"q"})
    assert gather.fetch_all(channel, source) == ["a"]
    assert sorted(p.name for p in source.local.iterdir()) == ["a", "manifest.json"]


def test_a_bad_copy_is_fetched_again_once(source: gather.Source, channel: LocalChannel) -> None:
    put(source, {"a": b"12345"})
    gather.fetch_all(Flaky(channel, "/a", 1), source)
    assert (source.local / "a").read_bytes() == b"12345"


def test_a_copy_that_stays_bad_is_said(source: gather.Source, channel: LocalChannel) -> None:
    put(source, {"a": b"12345"})
    with pytest.raises(ResultError, match="a does not arrive") as caught:
        gather.fetch_all(Flaky(channel, "/a", 9), source)
    assert hashlib.sha256(b"12345").hexdigest() in caught.value.evidence
    assert caught.value.host == "h1"
    assert not gather.is_whole(source.local)


def test_a_damaged_local_tail_is_replaced(source: gather.Source, channel: LocalChannel) -> None:
    put(source, {"journal.jsonl": b"a\nb\n"})
    source.local.mkdir()
    (source.local / "journal.jsonl").write_bytes(b"a\nX\n")
    gather.fetch_all(channel, source)
    assert (source.local / "journal.jsonl").read_bytes() == b"a\nb\n"


def test_a_file_that_is_missing_on_the_host(source: gather.Source, channel: LocalChannel) -> None:
    put(source, {"a": b"1"})
    (Path(source.remote) / "a").unlink()
    with pytest.raises(ResultError, match="a does not arrive"):
        gather.fetch_all(channel, source)


def test_no_manifest_means_not_ended(source: gather.Source, channel: LocalChannel) -> None:
    assert not gather.has_manifest(channel, source)
    with pytest.raises(HostError, match="has no manifest"):
        gather.fetch_all(channel, source)


@pytest.mark.parametrize("name", ["../../x", "a/b", ".hidden"])
def test_a_manifest_cannot_name_a_place_outside(
    source: gather.Source, channel: LocalChannel, name: str
) -> None:
    entry = {"bytes": 1, "sha256": "0" * 64}
    manifest = json.dumps({"version": 1, "files": {name: entry}})
    (Path(source.remote) / "manifest.json").write_text(manifest)
    with pytest.raises(ResultError, match="names"):
        gather.fetch_all(channel, source)


def test_a_manifest_of_another_version(source: gather.Source, channel: LocalChannel) -> None:
    put(source, {"a": b"1"}, version=2)
    with pytest.raises(ResultError, match="version 2"):
        gather.fetch_all(channel, source)


def test_loose_files(source: gather.Source, channel: LocalChannel) -> None:
    (Path(source.remote) / "sysbench.log").write_bytes(b"x")
    assert gather.fetch_loose(channel, source, ["sysbench.log", "none"]) == ["sysbench.log"]
    assert (source.local / "sysbench.log").read_bytes() == b"x"
