"""What a lab is, before it is made."""

import os
import socket

import pytest

from fleetmark import lab
from fleetmark.errors import ConfigError, InfrastructureError
from fleetmark.lab import light, local, spec


def test_the_hosts_of_a_lab() -> None:
    wanted = lab.LabSpec("t-a", "local", 1, 2)
    assert wanted.hosts == ["db1", "load1", "load2"]
    fleet = lab.fleet(wanted)
    assert fleet.groups == {
        "all": ["db1", "load1", "load2"],
        "db": ["db1"],
        "load": ["load1", "load2"],
    }
    assert {host.connection for host in fleet.hosts.values()} == {"local"}
    assert fleet.hosts["db1"].db_address == "127.0.0.1"


@pytest.mark.parametrize("name", ["", "A", "a/b", "..", "-a", "a" * 21, "a b"])
def test_names_that_cannot_be(name: str) -> None:
    with pytest.raises(ConfigError, match="cannot be the name of a lab"):
        lab.LabSpec(name, "local")
    with pytest.raises(ConfigError):
        lab.down(name)


@pytest.mark.parametrize(("db", "load"), [(0, 0), (-1, 3), (1, 200)])
def test_numbers_that_cannot_be(db: int, load: int) -> None:
    with pytest.raises(ConfigError, match="1 to 200 hosts"):
        lab.LabSpec("t-a", "light", db, load)


def test_interface_names_fit_the_kernel_and_differ_between_labs() -> None:
    assert light.prefix("a") != light.prefix("a-b")
    assert len(f"{light.prefix('x' * 20)}v{spec.MOST_HOSTS}") <= 15


def test_what_a_machine_lacks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spec, "program", lambda name: None if name in {"sshd", "fio"} else name)
    assert lab.missing_packages(lab.LabSpec("t-a", "local")) == ["fio"]
    assert lab.missing_packages(lab.LabSpec("t-a", "light")) == ["fio", "openssh-server"]
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(InfrastructureError, match="fio, openssh-server") as caught:
        lab.up(lab.LabSpec("t-lacks", "light"), lambda _: None)
    assert caught.value.next_step.startswith("apt-get install fio openssh-server")
    assert lab.status("t-lacks") is None


def test_light_needs_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert lab.default_kind() == "local"
    with pytest.raises(InfrastructureError, match="needs root") as caught:
        lab.up(lab.LabSpec("t-a", "light"), lambda _: None)
    assert "--kind local" in caught.value.next_step


def test_ports_in_use_are_passed_over() -> None:
    with socket.socket() as taken:
        chosen = [host.port for host in local.choose(lab.LabSpec("t-a", "local", 2, 1)).hosts]
        assert chosen == sorted(set(chosen))
        taken.bind(("127.0.0.1", chosen[1]))
        taken.listen()
        again = [host.port for host in local.choose(lab.LabSpec("t-a", "local", 2, 1)).hosts]
        assert chosen[1] not in again
        assert len(set(again)) == 3
