"""The way to a host, over a real sshd and on this machine."""

import hashlib
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import sshd

from fleetmark.channel import Channel, agent, open_channel, open_channels
from fleetmark.errors import HostError, InfrastructureError, WorkloadError
from fleetmark.inventory import Host

PORT = 13510


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sshd.Server]:
    with sshd.running(tmp_path_factory.mktemp("sshd"), PORT) as running:
        yield running


@pytest.fixture(params=["ssh", "local"])
def channel(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Channel]:
    if request.param == "local":
        host = Host("h1", "127.0.0.1", connection="local", base_dir=str(tmp_path / "base"))
    else:
        host = request.getfixturevalue("server").host()
    opened = open_channel(host)
    yield opened
    opened.close()


pytestmark = pytest.mark.fleet


def test_run_gives_output_errors_code_and_input(channel: Channel) -> None:
    done = channel.run(["sh", "-c", "cat; echo it\\'s; echo no >&2; exit 7"], stdin=b"in\n")
    assert (done.stdout, done.stderr, done.returncode) == (b"in\nit's\n", b"no\n", 7)


def test_arguments_arrive_as_they_are(channel: Channel) -> None:
    words = ["a b", "$HOME", "'q'", "*", ""]
    done = channel.run(["printf", "%s\\n", *words])
    assert done.stdout.decode().splitlines() == words


def test_write_makes_private_directories_and_reads_parts(channel: Channel, tmp_path: Path) -> None:
    path = tmp_path / "deep" / "er" / "file"
    data = os.urandom(3_000_000)
    channel.write(str(path), data)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert hashlib.sha256(channel.read(str(path))).digest() == hashlib.sha256(data).digest()
    assert channel.read(str(path), 10, 5) == data[10:15]
    assert channel.read(str(path), len(data)) == b""
    channel.write(str(path), b"new", 0o644)
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"new", 0o644)
    assert [p.name for p in path.parent.iterdir()] == ["file"]


def test_a_missing_file_is_no_host_error(channel: Channel, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        channel.read(str(tmp_path / "none"))


def test_a_program_that_hangs_is_given_up(channel: Channel) -> None:
    with pytest.raises(HostError, match=r"did not end within 0\.3 s") as caught:
        channel.run(["sleep", "5"], timeout_seconds=0.3)
    assert caught.value.host == "h1"


def test_conversation(channel: Channel) -> None:
    talk = channel.converse(["sh", "-c", 'while read -r l; do echo "got $l"; done'])
    assert [talk.ask(str(n)) for n in range(5)] == [f"got {n}" for n in range(5)]
    talk.close()


def test_a_conversation_partner_that_has_gone(channel: Channel) -> None:
    talk = channel.converse(["true"])
    with pytest.raises(HostError):
        talk.ask("anyone?", timeout_seconds=5.0)
    talk.close()


def test_many_threads_at_once(channel: Channel, tmp_path: Path) -> None:
    def work(n: int) -> bytes:
        path = str(tmp_path / f"f{n}")
        channel.write(path, str(n).encode() * 1000)
        return channel.run(["echo", str(n)]).stdout + channel.read(path, 0, 3)

    with ThreadPoolExecutor(6) as pool:
        results = list(pool.map(work, range(10, 30)))
    assert results == [f"{n}\n{str(n) * 3}"[: len(str(n)) + 4].encode() for n in range(10, 30)]


def test_a_dropped_connection_is_opened_again(server: sshd.Server, tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"0123456789")
    channel = open_channel(server.host())
    assert channel.read(str(path), 0, 5) == b"01234"
    server.drop_sessions()
    assert channel.read(str(path), 5) == b"56789"
    server.drop_sessions()
    assert channel.run(["echo", "back"]).stdout == b"back\n"
    server.drop_sessions()
    channel.write(str(path), b"new")
    assert path.read_bytes() == b"new"
    channel.close()


def test_a_connection_lost_under_a_program_is_an_error(server: sshd.Server) -> None:
    channel = open_channel(server.host())
    timer = threading.Timer(0.2, server.drop_sessions)
    timer.start()
    with pytest.raises(HostError, match="connection was lost"):
        channel.run(["sleep", "5"])
    timer.join()
    assert channel.run(["echo", "1"]).stdout == b"1\n"
    channel.close()


def test_a_stopped_host_is_refused_and_comes_back(server: sshd.Server, tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"x")
    channel = open_channel(server.host())
    assert channel.read(str(path)) == b"x"
    server.stop()
    try:
        with pytest.raises(HostError, match="refuses the connection") as caught:
            channel.read(str(path))
        assert "sshd" in caught.value.next_step
    finally:
        server.start()
    assert channel.read(str(path)) == b"x"
    channel.close()


def test_a_changed_key_is_never_accepted(server: sshd.Server) -> None:
    right = server.known_hosts.read_text()
    server.learn(sshd.make_key(server.directory / "other"))
    try:
        with pytest.raises(HostError, match=f"{server.known_hosts}:2") as caught:
            open_channel(server.host())
    finally:
        server.known_hosts.write_text(right)
    assert "attack" in caught.value.next_step
    assert "installed anew" in caught.value.next_step
    assert f"[127.0.0.1]:{PORT}" in caught.value.next_step
    assert "SHA256:" in caught.value.evidence


def test_an_unknown_key_is_never_accepted(server: sshd.Server, tmp_path: Path) -> None:
    empty = tmp_path / "known_hosts"
    empty.write_text("")
    with pytest.raises(HostError, match="host key is not known") as caught:
        open_channel(server.host(known_hosts_file=str(empty)))
    assert empty.read_text() == ""
    assert "ssh-keyscan" in caught.value.next_step


def test_a_wrong_key_file_is_said(server: sshd.Server, tmp_path: Path) -> None:
    sshd.make_key(tmp_path / "stranger")
    with pytest.raises(HostError, match="does not accept the key of user root"):
        open_channel(server.host(key_file=str(tmp_path / "stranger")))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"port": 13599}, "refuses the connection"),
        ({"address": "no-such-host.invalid"}, "does not resolve"),
        ({"known_hosts_file": "/none/known_hosts"}, "cannot read the host keys"),
    ],
)
def test_why_a_host_cannot_be_reached(
    server: sshd.Server, changes: dict[str, object], words: str
) -> None:
    with pytest.raises(HostError, match=words) as caught:
        open_channel(server.host(**changes))
    assert caught.value.host == "h1"


def test_all_hosts_are_tried(server: sshd.Server) -> None:
    opened = open_channels([server.host(name="a"), server.host(name="b", port=13599)])
    assert list(opened.channels) == ["a"]
    assert list(opened.errors) == ["b"]
    opened.close()


@pytest.mark.parametrize(
    ("kind", "code", "expected"),
    [("host", 3, HostError), ("workload", 4, WorkloadError), ("usage", 2, InfrastructureError)],
)
def test_the_agents_errors_become_ours(
    tmp_path: Path, kind: str, code: int, expected: type[Exception]
) -> None:
    host = Host("h9", "", connection="local", base_dir=str(tmp_path))
    _fake_agent(
        tmp_path,
        f"""print('{{"error": {{"kind": "{kind}", "message": "m", "evidence": "e",'
        ' "next_step": "n"}}}}'); raise SystemExit({code})""",
    )
    with pytest.raises(expected) as caught:
        agent(open_channel(host), host, "status")
    error = caught.value
    assert isinstance(error, InfrastructureError | WorkloadError)
    assert (error.message, error.host, error.evidence, error.next_step) == ("m", "h9", "e", "n")


def test_an_agent_that_is_missing_or_talks_nonsense(tmp_path: Path) -> None:
    host = Host("h9", "", connection="local", base_dir=str(tmp_path))
    with pytest.raises(HostError, match="agent is not there") as caught:
        agent(open_channel(host), host, "status")
    assert "provision" in caught.value.next_step
    _fake_agent(tmp_path, "print('hello'); raise SystemExit(1)")
    with pytest.raises(HostError, match="ended with 1 and no answer") as caught:
        agent(open_channel(host), host, "status")
    assert caught.value.evidence == "hello"


def _fake_agent(base: Path, program: str) -> None:
    (base / "agent").mkdir(exist_ok=True)
    (base / "agent" / "fleetmark-agent.pyz").write_text(program)
