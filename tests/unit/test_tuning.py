"""What an experiment asks of its hosts, and the contract that follows."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from fleetmark import plan, workloads
from fleetmark.contract import check
from fleetmark.errors import ConfigError
from fleetmark.experiment import Contract, Experiment
from fleetmark.inventory import Fleet, Host
from fleetmark.plan import NOT_LOOKED_AT, Disk
from fleetmark.tuning import HostTuning, implied_contract, merged

FLEET = Fleet(
    "inv",
    {
        "db1": Host("db1", "db1", data_dir="/data/fleetmark"),
        "db2": Host("db2", "db2"),
        "load1": Host("load1", "load1"),
        "load2": Host("load2", "load2"),
    },
    {"db": ["db1", "db2"], "load": ["load1", "load2"], "fast": ["db1"]},
)


def make(**changes: object) -> plan.Plan:
    parsed = [workloads.parse({"insert_benchmark": {"profile": "tiny"}})]
    asked = Experiment.model_validate(
        {
            "fleetmark": 1,
            "name": "t",
            "builds": [{"name": "b"}],
            "configs": [{"name": "c"}],
            "workloads": parsed,
            **changes,
        }
    )
    return plan.make_plan(asked, FLEET, Path())


STORAGE = {"mount": "/data", "disks": [{"serial": "S1"}]}


def test_a_host_gets_that_of_all_then_of_its_groups_then_its_own() -> None:
    made = make(
        hosts={
            "db1": {"cpu": {"swappiness": 10}},
            "all": {"cpu": {"smt": False, "swappiness": 1}},
            "db": {"cpu": {"governor": "performance"}, "storage": [STORAGE]},
            "fast": {"storage": [{**STORAGE, "filesystem": "xfs"}]},
        }
    )
    cpu = made.tuning["db1"].cpu
    assert cpu is not None
    assert (cpu.smt, cpu.governor, cpu.swappiness) == ("off", "performance", 10)
    assert [s.filesystem for s in made.tuning["db1"].storage] == ["xfs"]
    assert [s.filesystem for s in made.tuning["db2"].storage] == ["ext4"]
    assert made.tuning["load1"].storage == []
    assert made.disks == [
        Disk("db1", "S1", NOT_LOOKED_AT, "xfs at /data"),
        Disk("db2", "S1", NOT_LOOKED_AT, "ext4 at /data"),
    ]
    assert plan.to_json(made)["tuning"]["load1"] == {"cpu": {"smt": "off", "swappiness": 1}}


def test_tuning_implies_its_contract_and_what_is_written_wins() -> None:
    hosts = {"db": {"cpu": {"smt": "off", "governor": "performance"}, "storage": [STORAGE]}}
    first = make(hosts=hosts).contracts
    assert first["db1"].model_dump(exclude_unset=True) == {
        "smt": "off",
        "governor": "performance",
        "where_there_is_one": ["governor"],
        "data_filesystem": "ext4",
        "data_mount_options": ["noatime", "discard"],
    }
    # Its data directory lies elsewhere.
    assert first["db2"].data_filesystem is None
    assert first["load1"] == Contract()
    written = {"all": {"smt": None, "governor": "powersave"}}
    second = make(hosts=hosts, contract=written).contracts["db1"]
    assert (second.smt, second.governor, second.where_there_is_one) == (None, "powersave", [])


def test_the_scheduler_is_that_of_the_data_only_for_the_same_disks() -> None:
    queue = {"disks": [{"serial": "S1"}], "scheduler": "none"}
    same = HostTuning.model_validate({"storage": [STORAGE], "nvme": [queue]})
    assert implied_contract(same, "/data/fleetmark")["data_scheduler"] == "none"
    other = HostTuning.model_validate(
        {"storage": [STORAGE], "nvme": [{**queue, "disks": [{"serial": "S2"}]}]}
    )
    assert "data_scheduler" not in implied_contract(other, "/data/fleetmark")
    assert "data_filesystem" not in implied_contract(same, "/database")


def test_a_governor_counts_only_where_there_is_one() -> None:
    declared = Contract(governor="performance", where_there_is_one=["governor"])
    none: dict[str, Any] = {"cpu": {"governor": None, "driver": None}}
    assert check(declared, none) == []
    assert [d.item for d in check(Contract(governor="performance"), none)] == ["governor"]
    hidden: dict[str, Any] = {"cpu": {"governor": None, "driver": "acpi-cpufreq"}}
    assert [d.observed for d in check(declared, hidden)] == ["not readable"]
    other: dict[str, Any] = {"cpu": {"governor": "schedutil", "driver": "acpi-cpufreq"}}
    assert [d.observed for d in check(declared, other)] == ["schedutil"]


@pytest.mark.parametrize(
    ("cpu", "observed"),
    [
        ({"smt_active": False, "threads_per_core": 2}, "on"),
        ({"smt_active": False, "threads_per_core": 1}, "off"),
        ({"smt_active": True, "threads_per_core": None}, "on"),
        ({"smt_active": None, "threads_per_core": 1}, "off"),
        ({"smt_active": None, "threads_per_core": None}, "not readable"),
    ],
)
def test_smt_is_judged_by_the_siblings_first(cpu: dict[str, Any], observed: str) -> None:
    deviations = check(Contract(smt="off"), {"cpu": cpu})
    assert [d.observed for d in deviations] == ([] if observed == "off" else [observed])


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"storage": [{"mount": "/data", "disks": [{}]}]}, "named by serial, model or size_bytes"),
        ({"storage": [{"mount": "/data", "disks": []}]}, "at least 1 item"),
        ({"storage": [{**STORAGE, "mount": "data"}]}, "should match pattern"),
        ({"storage": [{**STORAGE, "mount": "/"}]}, "should match pattern"),
        ({"storage": [{**STORAGE, "mount": "/a/../etc "}]}, "should match pattern"),
        ({"storage": [{**STORAGE, "raid": 1}]}, "raid: 1 needs at least two disks"),
        (
            {"storage": [{"mount": "/d", "disks": [{"model": "x", "count": 2}]}]},
            "2 disks and one file system",
        ),
        ({"storage": [STORAGE, STORAGE]}, "two file systems have the mount"),
        ({"nvme": [{"disks": [{"serial": "S", "count": 2}]}]}, "count does not go with it"),
        ({"cpu": {"smt": "maybe"}}, "Input should be 'on' or 'off'"),
        ({"cpu": {"smd": "off"}}, "Extra inputs"),
    ],
)
def test_what_cannot_be_meant_is_refused(asked: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError) as caught:
        HostTuning.model_validate(asked)
    assert words in str(caught.value)


def test_parts_that_do_not_fit_together_are_refused() -> None:
    parts = [HostTuning.model_validate({"cpu": {"smt": "off"}}), HostTuning()]
    assert merged(parts) == HostTuning.model_validate({"cpu": {"smt": "off"}})
    assert merged([]) == HostTuning()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"hosts": {"db9": {}}}, "hosts: 'db9' is neither a group nor a host"),
        ({"contract": {"db9": {}}}, "contract: 'db9' is neither a group nor a host"),
        (
            {"confirm_wipe": [{"host": "db", "serial": "S1"}]},
            "confirm_wipe: 'db' is no host",
        ),
    ],
)
def test_names_must_be_of_the_inventory(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        make(**changes)


def test_consent_names_host_and_serial_and_nothing_less() -> None:
    for broken in (True, [{"host": "db1"}], [{"host": "db1", "serial": ""}]):
        with pytest.raises(ValidationError):
            make(confirm_wipe=broken)
