"""The plan: how an experiment spreads over a fleet."""

import json
import re
from pathlib import Path

import pytest

from fleetmark import plan, workloads
from fleetmark.errors import ConfigError
from fleetmark.experiment import Experiment
from fleetmark.inventory import Fleet, Host

BASE = {
    "fleetmark": 1,
    "name": "t",
    "builds": [{"name": "b1"}, {"name": "b2", "source": "prefix", "basedir": "/opt/b2"}],
    "configs": [{"name": "c1"}, {"name": "c2"}],
    "repeats": 2,
}


def make(**changes: object) -> Experiment:
    tiny = workloads.parse({"insert_benchmark": {"profile": "tiny"}})
    return Experiment.model_validate({**BASE, "workloads": [tiny], **changes})


def fleet(db: list[str], load: list[str]) -> Fleet:
    return Fleet("inv", {n: Host(n, n) for n in [*db, *load]}, {"db": db, "load": load})


def test_trials_are_the_whole_product_in_the_order_written() -> None:
    made = plan.make_plan(make(), fleet(["db1"], ["l1", "l2"]), Path())
    assert [(t.build, t.config, t.repeat) for t in made.trials] == [
        ("b1", "c1", 1), ("b1", "c2", 1), ("b2", "c1", 1), ("b2", "c2", 1),
        ("b1", "c1", 2), ("b1", "c2", 2), ("b2", "c1", 2), ("b2", "c2", 2),
    ]  # fmt: skip
    assert made.trials[0].id == "db1.b1.c1.insert_benchmark.r1"
    assert len({t.id for t in made.trials}) == 8


def test_rotation_gives_each_place_to_each_combination() -> None:
    made = plan.make_plan(make(order="rotated", repeats=4), fleet(["db1"], ["l1"]), Path())
    combination = [(t.build, t.config) for t in made.trials]
    first_places = combination[0::4]
    assert sorted(first_places) == [("b1", "c1"), ("b1", "c2"), ("b2", "c1"), ("b2", "c2")]


def test_steps_have_the_published_names_and_directories() -> None:
    made = plan.make_plan(make(), fleet(["db1"], ["l1", "l2"]), Path())
    names = [s.name for s in made.trials[0].steps]
    assert names == [
        "l.i0", "l.x", "l.i1", "l.i2", "wait",
        "qr100", "qp100", "qr500", "qp500", "qr1000", "qp1000",
    ]  # fmt: skip
    assert made.trials[0].step_names[3] == "04-l.i2"


def test_clients_are_divided_over_load_hosts() -> None:
    made = plan.make_plan(make(), fleet(["db1"], ["l1", "l2", "l3"]), Path())
    loads = made.trials[0].steps[0].loads
    assert [(x.options["first_client"], x.options["clients"]) for x in loads] == [
        (1, 2), (3, 1), (4, 1),
    ]  # fmt: skip
    assert [x.streams[0].threads for x in loads] == [2, 1, 1]


def test_query_steps_hold_rate_and_row_count() -> None:
    made = plan.make_plan(make(), fleet(["db1"], ["l1", "l2"]), Path())
    step = next(s for s in made.trials[0].steps if s.name == "qp500")
    assert step.sla is not None
    assert step.sla.rate_per_second == 500 * 4
    assert step.measure_stream == "query"
    load = step.loads[0]
    assert load.options["rows_per_client"] == 8 * 500
    # Two clients x 500 rows a second, 50 rows an operation.
    assert {s.name: s.rate_per_second for s in load.streams} == {
        "insert": 20.0, "delete": 20.0, "query": 0.0,
    }  # fmt: skip


def test_published_wait_is_sixty_seconds_and_a_second_a_million_rows() -> None:
    workload = workloads.parse({"insert_benchmark": {"profile": "cpu_bound", "clients": 20}})
    wait = next(s for s in workload.steps(2) if s.name == "wait")
    assert wait.settle is not None
    assert wait.settle.minimum_seconds == pytest.approx(260.0)
    io_bound = workloads.parse({"insert_benchmark": {"profile": "io_bound"}})
    wait = next(s for s in io_bound.steps(1) if s.name == "wait")
    assert wait.settle is not None
    assert wait.settle.minimum_seconds == 1200.0


def test_two_targets_share_the_load_hosts_evenly() -> None:
    made = plan.make_plan(make(), fleet(["db1", "db2"], ["l1", "l2", "l3"]), Path())
    assert [(t.db, t.load) for t in made.targets] == [("db1", ["l1", "l3"]), ("db2", ["l2"])]


@pytest.mark.parametrize(
    ("db", "load", "words"),
    [
        ([], ["l1"], "group 'db' of the inventory inv is empty"),
        (["db1"], [], "group 'load' of the inventory inv is empty"),
        (["db1"], ["db1", "l1"], "host 'db1' is in group 'db' and in group 'load'"),
        (["db1", "db2"], ["l1"], "2 database hosts need as many load hosts"),
    ],
)
def test_groups_that_do_not_fit_are_refused(db: list[str], load: list[str], words: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(words)):
        plan.make_plan(make(), fleet(db, load), Path())


def test_an_unknown_host_of_a_target_is_refused() -> None:
    targets = [{"name": "a", "db": "db1", "load": ["elsewhere"]}]
    with pytest.raises(ConfigError, match="no host 'elsewhere'"):
        plan.make_plan(make(targets=targets), fleet(["db1"], ["l1"]), Path())


def test_more_load_hosts_than_clients_is_refused() -> None:
    with pytest.raises(ConfigError, match="4 clients cannot be divided over 5 load hosts"):
        plan.make_plan(make(), fleet(["db1"], [f"l{n}" for n in range(5)]), Path())


def test_contracts_merge_from_all_over_group_to_host() -> None:
    contract = {
        "all": {"smt": "off", "swappiness": 1},
        "db": {"governor": "performance", "swappiness": 10},
        "l1": {"smt": "on"},
    }
    made = plan.make_plan(make(contract=contract), fleet(["db1"], ["l1"]), Path())
    assert made.contracts["db1"].model_dump(exclude_unset=True) == {
        "smt": "off", "governor": "performance", "swappiness": 10,
    }  # fmt: skip
    assert made.contracts["l1"].smt == "on"


def test_the_plan_goes_to_json_and_counts_time_and_disk() -> None:
    made = plan.make_plan(make(), fleet(["db1"], ["l1"]), Path())
    stored = json.loads(json.dumps(plan.to_json(made)))
    trial = stored["trials"][0]
    assert stored["expected_seconds"] == pytest.approx(made.expected_seconds, abs=0.1)
    assert made.expected_seconds == pytest.approx(sum(map(plan.expected_seconds, made.trials)))
    # tiny: 4 tables x 150,000 rows and more; an empty instance besides.
    assert 450_000_000 < trial["expected_bytes"] < 700_000_000
    assert trial["steps"][0]["directory"] == "01-l.i0"
