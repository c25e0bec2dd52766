"""The way to a host through a ProxyCommand: a real sshd, a real relay."""

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import sshd

from fleetmark.channel import open_channel
from fleetmark.errors import HostError
from fleetmark.lab import vm_relay

pytestmark = pytest.mark.fleet

PORT = 13518
RELAY = f"{sys.executable} -I -S {vm_relay.__file__}"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sshd.Server]:
    with sshd.running(tmp_path_factory.mktemp("sshd"), PORT) as running:
        yield running


def test_all_bytes_pass_and_the_host_key_is_checked(server: sshd.Server, tmp_path: Path) -> None:
    data = bytes(range(256)) * 8192
    # The address is only a name here: nothing but the relay leads to the server.
    server.known_hosts.write_text(
        server.known_hosts.read_text() + server.known_hosts.read_text().replace("127.0.0.1", "far")
    )
    host = server.host(address="far", proxy_command=f"{RELAY} 127.0.0.1 {PORT}")
    channel = open_channel(host)
    try:
        channel.write(str(tmp_path / "file"), data)
        assert channel.read(str(tmp_path / "file")) == data
        assert channel.run(["cat"], stdin=data).stdout == data
    finally:
        channel.close()
    known_hosts = tmp_path / "none"
    known_hosts.touch()
    with pytest.raises(HostError, match="host key is not known"):
        open_channel(
            server.host(
                address="far", known_hosts_file=str(known_hosts), proxy_command=host.proxy_command
            )
        )


def test_a_proxy_that_fails_is_quoted(server: sshd.Server) -> None:
    with pytest.raises(HostError, match="by the ProxyCommand") as caught:
        open_channel(server.host(proxy_command=f"{RELAY} 127.0.0.1 1"))
    assert caught.value.evidence == "the ProxyCommand says: 127.0.0.1:1: Connection refused"
    assert "vm_relay.py 127.0.0.1 1" in caught.value.next_step
    with pytest.raises(HostError) as caught:
        open_channel(server.host(proxy_command="/no/such/program"))
    assert "/no/such/program" in caught.value.evidence


def relay_that_tells_its_pid(path: Path) -> str:
    return f"sh -c 'echo $$ > {path}; exec {RELAY} 127.0.0.1 {PORT}'"


def test_a_proxy_that_ends_is_noticed_at_once_and_started_again(
    server: sshd.Server, tmp_path: Path
) -> None:
    pid = tmp_path / "pid"
    channel = open_channel(server.host(proxy_command=relay_that_tells_its_pid(pid)))
    try:
        started = time.monotonic()
        with pytest.raises(HostError, match="connection was lost while a program ran"):
            channel.run(["sh", "-c", f"kill $(cat {pid}); sleep 60"], timeout_seconds=50)
        assert time.monotonic() - started < 20
        assert channel.run(["echo", "again"]).stdout == b"again\n"
    finally:
        channel.close()


def test_closing_leaves_no_proxy(server: sshd.Server, tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    channel = open_channel(server.host(proxy_command=relay_that_tells_its_pid(mark)))
    pid = int(mark.read_text())
    assert Path(f"/proc/{pid}").exists()
    channel.close()
    assert not Path(f"/proc/{pid}").exists()
