"""Small Insert Benchmark runs on light hosts, as the fleet tests conduct them."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fleetmark import bundle, channel, conduct, experiment, plan, store
from fleetmark.channel import Opened, agent
from fleetmark.conduct import Conduct, Patience
from fleetmark.inventory import Host


def experiment_text(steps: list[str], rows: int = 3000, **settings: object) -> str:
    """A small Insert Benchmark: 2 clients, one on each load host."""
    document = {
        "fleetmark": 1,
        "name": "short",
        "builds": [{"name": "mariadb"}],
        "configs": [
            {
                "name": "base",
                "set": {
                    "innodb_buffer_pool_size": "64M",
                    "innodb_log_file_size": "16M",
                    "innodb_flush_log_at_trx_commit": 0,
                    "innodb_doublewrite": False,
                    "skip_name_resolve": None,
                    **settings,
                },
            }
        ],
        "policy": {"start_error_limit_seconds": 0.5, "minimum_overlap": 0.01},
        "metrics": {"listen": "127.0.0.1:0", "linger_seconds": 0},
        "workloads": [
            {
                "insert_benchmark": {
                    "clients": 2,
                    "rows_i0": rows,
                    "rows_i1": 1000,
                    "rows_i2": 100,
                    "query_rates": [100],
                    "query_seconds": 3,
                    "wait_seconds": 0,
                    "steps_only": steps,
                }
            }
        ],
    }
    return json.dumps(document)


def deploy(fleet: Any, directory: Path) -> None:
    """The agent on every host, as provisioning leaves it."""
    agent_file = bundle.build(directory / "agent.pyz").path.read_bytes()
    opened = channel.open_channels(fleet.fleet.hosts.values())
    for name, host in fleet.fleet.hosts.items():
        opened.channels[name].write(host.agent, agent_file, 0o755)
    opened.close()


def prepared(fleet: Any, directory: Path, text: str, **patience: float) -> Conduct:
    """A run directory as the command line makes it, ready to be conducted."""
    path = directory / "experiment.yaml"
    path.write_text(text)
    loaded = experiment.load(path)
    planned = plan.make_plan(loaded.experiment, fleet.fleet, directory)
    run = store.create(directory / "results")
    store.write_atomic(run.experiment_yaml, text.encode())
    store.write_json(run.plan_json, plan.to_json(planned))
    conduct.begin(run, "short", ["test"])
    return Conduct(planned, loaded.experiment.policy, run, Patience(**patience))


@contextmanager
def channels(fleet: Any) -> Iterator[Opened]:
    opened = channel.open_channels(fleet.fleet.hosts.values())
    assert opened.errors == {}
    yield opened
    opened.close()


def on(fleet: Any, name: str, *arguments: str) -> dict[str, Any]:
    host: Host = fleet.fleet.hosts[name]
    way = channel.open_channel(host)
    try:
        return agent(way, host, *arguments)
    finally:
        way.close()
