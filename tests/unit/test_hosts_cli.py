"""The command line of provision and restore: what is refused before any host is touched."""

from pathlib import Path

import pytest
import yaml

from fleetmark import inventory
from fleetmark.cli import disks, prepare
from fleetmark.cli.hosts import _limited
from fleetmark.errors import ConfigError
from fleetmark.tuning import WipeConsent

EXPERIMENT = """
fleetmark: 1
name: t
inventory: hosts.yml
hosts: {db: {storage: [{mount: /data, disks: [{serial: S1}]}]}}
confirm_wipe: [{host: db1, serial: S1}]
builds: [{name: b}]
configs: [{name: c}]
workloads: [insert_benchmark]
"""
INVENTORY = """
all:
  children:
    db: {hosts: {db1: {}}}
    load: {hosts: {load1: {}}}
    spare: {hosts: {other: {}}}
"""


@pytest.fixture
def prepared(tmp_path: Path) -> prepare.Prepared:
    (tmp_path / "hosts.yml").write_text(INVENTORY)
    (tmp_path / "e.yaml").write_text(EXPERIMENT)
    return prepare.prepare(tmp_path / "e.yaml")


def test_consent_comes_from_the_experiment_and_the_command_line(
    prepared: prepare.Prepared,
) -> None:
    assert disks.consents(prepared, ["load1:a:b"]) == [
        WipeConsent(host="db1", serial="S1"),
        WipeConsent(host="load1", serial="a:b"),
    ]


@pytest.mark.parametrize("word", ["S1", "db1:", ":S1", ""])
def test_half_a_consent_is_none(prepared: prepare.Prepared, word: str) -> None:
    with pytest.raises(ConfigError, match="one host and one serial are named"):
        disks.consents(prepared, [word])


def test_consent_for_an_unknown_host_is_refused(prepared: prepare.Prepared) -> None:
    with pytest.raises(ConfigError, match="has no host 'other'"):
        disks.consents(prepared, ["other:S1"])


def test_limit_takes_hosts_and_groups(prepared: prepare.Prepared) -> None:
    assert _limited(prepared, "") == ()
    assert _limited(prepared, "load, db1") == ("db1", "load1")
    with pytest.raises(ConfigError, match="'nobody' is neither a group nor a host"):
        _limited(prepared, "db1,nobody")
    with pytest.raises(ConfigError, match="leaves no host"):
        _limited(prepared, "spare")


def test_an_inventory_cannot_give_consent(tmp_path: Path) -> None:
    (tmp_path / "e.yaml").write_text(EXPERIMENT)
    consent = "fleetmark_confirm_wipe: [{host: db1, serial: S1}]"
    (tmp_path / "hosts.yml").write_text(f"{INVENTORY}  vars: {{{consent}}}\n")
    with pytest.raises(ConfigError, match="unknown variable 'fleetmark_confirm_wipe'"):
        prepare.prepare(tmp_path / "e.yaml")


INVENTORIES = Path(__file__).parents[2] / "inventories"


@pytest.mark.parametrize("name", ["example.yml", "bare-metal.yml", "lab.yml", "cloud-static.yml"])
def test_the_inventories_that_we_show_can_be_read(name: str) -> None:
    fleet = inventory.load(INVENTORIES / name)
    assert fleet.groups["db"]
    assert fleet.groups["load"]
    assert all(fleet.hosts[host].data_dir.endswith("/fleetmark") for host in fleet.groups["db"])


@pytest.mark.parametrize("plugin", ["aws_ec2", "gcp_compute", "azure_rm"])
def test_a_dynamic_inventory_has_the_name_that_its_plugin_wants(plugin: str) -> None:
    shown = yaml.safe_load((INVENTORIES / f"cloud.{plugin}.yml").read_text())
    assert shown["plugin"].endswith(f".{plugin}")
    assert shown["keyed_groups"][0]["separator"] == ""
