"""Inventories in Ansible's forms, read by Ansible's loader."""

from pathlib import Path

import pytest
import yaml

from fleetmark import inventory
from fleetmark.errors import ConfigError

YAML = """
all:
  vars:
    net: 10.1.2
    ansible_user: bench
    ansible_password: geheim
    ansible_become_password: geheim
    ansible_ssh_common_args: -o UserKnownHostsFile=/keys/known -oStrictHostKeyChecking=yes
  children:
    db:
      hosts:
        dbz:
          ansible_host: "{{ net }}.3"
          ansible_become: "yes"
          fleetmark_base_dir: /srv/fleetmark/
          fleetmark_data_dir: /nvme
          fleetmark_db_port: "3307"
          fleetmark_db_address: "{{ net }}.103"
        dba:
          ansible_port: 2222
          ansible_ssh_private_key_file: /keys/id
          ansible_python_interpreter: /opt/python3.12
    load:
      hosts:
        load[1:2]:
          ansible_connection: local
          ansible_host: somewhere
"""


def load(directory: Path, text: str, name: str = "hosts.yml") -> inventory.Fleet:
    path = directory / name
    path.write_text(text)
    return inventory.load(path)


def test_hosts_and_groups_in_the_order_of_the_file(tmp_path: Path) -> None:
    fleet = load(tmp_path, YAML)
    assert fleet.source == str(tmp_path / "hosts.yml")
    assert list(fleet.hosts) == ["dbz", "dba", "load1", "load2"]
    assert fleet.groups == {
        "all": ["dbz", "dba", "load1", "load2"],
        "db": ["dbz", "dba"],
        "load": ["load1", "load2"],
    }


def test_variables_are_resolved(tmp_path: Path) -> None:
    fleet = load(tmp_path, YAML)
    assert fleet.hosts["dbz"] == inventory.Host(
        name="dbz",
        address="10.1.2.3",
        user="bench",
        known_hosts_file="/keys/known",
        become=True,
        base_dir="/srv/fleetmark",
        data_dir="/nvme",
        db_port=3307,
        db_address="10.1.2.103",
    )
    assert fleet.hosts["dba"] == inventory.Host(
        name="dba",
        address="dba",
        port=2222,
        user="bench",
        key_file="/keys/id",
        known_hosts_file="/keys/known",
        python="/opt/python3.12",
        data_dir="/var/lib/fleetmark/data",
        db_address="dba",
    )
    assert fleet.hosts["load1"].connection == "local"
    assert fleet.hosts["load1"].address == "127.0.0.1"


def test_no_password_comes_along(tmp_path: Path) -> None:
    assert "geheim" not in repr(load(tmp_path, YAML))


def test_an_ini_inventory_with_group_vars_beside_it(tmp_path: Path) -> None:
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "group_vars" / "load.yml").write_text("fleetmark_db_port: 4000\n")
    text = "[load]\nl1 ansible_host=192.0.2.1\n\n[db]\nd1\n\n[cloud:children]\nload\n"
    fleet = load(tmp_path, text, "hosts.ini")
    assert list(fleet.groups) == ["all", "load", "db", "cloud"]
    assert fleet.groups["cloud"] == ["l1"]
    assert (fleet.hosts["l1"].db_port, fleet.hosts["d1"].db_port) == (4000, 3306)


def test_a_directory_of_inventories(tmp_path: Path) -> None:
    (tmp_path / "a.yml").write_text("db: {hosts: {d1: {}}}")
    (tmp_path / "b.yml").write_text("load: {hosts: {l1: {}}}")
    assert inventory.load(tmp_path).groups == {"all": ["d1", "l1"], "db": ["d1"], "load": ["l1"]}


@pytest.mark.parametrize(
    ("text", "name", "words"),
    [
        (
            "all: {hosts: {h: {fleetmark_bse_dir: /x}}}",
            "h.yml",
            "did you mean 'fleetmark_base_dir'",
        ),
        ("all: {hosts: {h: {fleetmark_base_dir: x}}}", "h.yml", "must be an absolute path"),
        ("all: {hosts: {h: {fleetmark_data_dir: /}}}", "h.yml", "must be an absolute path below /"),
        (
            "all: {hosts: {h: {fleetmark_db_port: many}}}",
            "h.yml",
            "'many', which is no port number",
        ),
        ("all: {hosts: {h: {ansible_port: 70000}}}", "h.yml", "which is no port number"),
        ("all: {hosts: {h: {ansible_host: '{{ nowhere }}'}}}", "h.yml", "ansible_host: .*nowhere"),
        (
            "all: {hosts: {h: {ansible_connection: docker}}}",
            "h.yml",
            "ansible_connection is 'docker'",
        ),
        ("all: {hosts: {h: {ansible_host_key_checking: false}}}", "h.yml", "is switched off"),
        (
            "all: {hosts: {h: {ansible_ssh_extra_args: -o StrictHostKeyChecking=no}}}",
            "h.yml",
            "is switched off",
        ),
        ('all: {hosts: {h: {ansible_ssh_args: "-o \'x"}}}', "h.yml", "No closing quotation"),
        ("all: {children: {db: {}}}", "h.yml", "has no hosts"),
    ],
)
def test_what_does_not_fit_is_named(tmp_path: Path, text: str, name: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        load(tmp_path, text, name)
    assert str(tmp_path / name) in caught.value.message
    assert caught.value.exit_code == 2


def test_a_broken_file_is_shown_with_ansibles_words_and_the_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Ansible cannot read the inventory") as caught:
        load(tmp_path, "all:\n  hosts: [1\n", "broken.yml")
    assert caught.value.evidence.startswith(f"{tmp_path}/broken.yml:3:1: ")
    assert "YAML parsing failed" in caught.value.evidence
    with pytest.raises(ConfigError, match="Ansible cannot read") as caught:
        load(tmp_path, "[db\nh1\n", "broken.ini")
    assert caught.value.evidence


def test_one_broken_file_of_a_directory_is_an_error_too(tmp_path: Path) -> None:
    (tmp_path / "a.yml").write_text("db: {hosts: {d1: {}}}")
    (tmp_path / "b.yml").write_text("load: [1\n")
    with pytest.raises(ConfigError, match="Ansible cannot read"):
        inventory.load(tmp_path)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no inventory") as caught:
        inventory.load(tmp_path / "none.yml")
    assert "--inventory" in caught.value.next_step


def test_the_example_can_be_read(capfd: pytest.CaptureFixture[str]) -> None:
    fleet = inventory.load(Path(__file__).parents[2] / "inventories" / "example.yml")
    assert fleet.groups["db"] == ["db1"]
    assert fleet.groups["load"] == ["load1", "load2"]
    assert fleet.hosts["db1"].become
    assert fleet.hosts["db1"].data_dir == "/mnt/nvme/fleetmark"
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        ("-o ProxyCommand='nc -x relay:1080 %h %p'", "nc -x relay:1080 10.0.0.9 2222"),
        ('-o "ProxyCommand ssh -W %h:%p %r@jump"', "ssh -W 10.0.0.9:2222 bench@jump"),
        ("-oProxyCommand='tool 100%% %n'", "tool 100% 10.0.0.9"),
        (
            "-o ProxyJump=me@jump:2200",
            "ssh -W '[10.0.0.9]:2222' -o BatchMode=yes -o ServerAliveInterval=5 -p 2200 me@jump",
        ),
        (
            "-J one,two",
            "ssh -J one -W '[10.0.0.9]:2222' -o BatchMode=yes -o ServerAliveInterval=5 two",
        ),
        ("-o ProxyCommand=none", ""),
        ("-o ConnectTimeout=5", ""),
    ],
)
def test_the_way_through_other_hosts(tmp_path: Path, arguments: str, command: str) -> None:
    path = tmp_path / "hosts.yml"
    document = {
        "all": {
            "hosts": {
                "far": {
                    "ansible_host": "10.0.0.9",
                    "ansible_port": 2222,
                    "ansible_user": "bench",
                    "ansible_ssh_common_args": arguments,
                }
            }
        }
    }
    path.write_text(yaml.safe_dump(document))
    assert inventory.load(path).hosts["far"].proxy_command == command
