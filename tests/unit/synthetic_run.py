"""A small run directory in the stored format, made up but deterministic by its seed.

Fleet, plan and directory names come from the real plan; the numbers of each stream follow from
the options, so that a test knows what must come out.
"""

import json
from pathlib import Path
from typing import Any

from synthetic_step import DISK, SERVER_CPU, T0, Options, StepWriter

from fleetmark import plan as planning
from fleetmark import store
from fleetmark.experiment import Build, Config, Experiment, Target
from fleetmark.inventory import Fleet, Host
from fleetmark.workloads.insert_benchmark import InsertBenchmark

__all__ = ["DISK", "SERVER_CPU", "T0", "Options", "make_plan", "write"]


_DEFAULT = Options()


def _experiment(options: Options) -> Experiment:
    per_target = options.load_hosts
    targets = [
        Target(
            name=f"db{n}",
            db=f"db{n}",
            load=[f"load{(n - 1) * per_target + i}" for i in range(1, per_target + 1)],
        )
        for n in range(1, options.targets + 1)
    ]
    extra = {
        name: {"innodb_doublewrite": "ON" if name == "dw1" else "OFF"} for name in options.configs
    }
    workload = InsertBenchmark.model_validate(
        {
            "clients": options.clients,
            "rows_i0": options.rows_i0,
            "rows_i1": 3_000,
            "rows_i2": 600,
            "query_rates": list(options.query_rates),
            "query_seconds": options.seconds,
            "wait_seconds": 2.0,
        }
    )
    return Experiment(
        fleetmark=1,
        name="doublewrite",
        description="What does the doublewrite buffer cost with sync on commit?",
        targets=targets,
        builds=[Build(name="mariadb")],
        configs=[
            Config(name=name, set={"innodb_flush_log_at_trx_commit": 1, **extra[name]})
            for name in options.configs
        ],
        workloads=[workload],
        repeats=options.repeats,
    )


def make_plan(options: Options) -> planning.Plan:
    """The plan of the made-up run, by the real planner."""
    experiment = _experiment(options)
    assert isinstance(experiment.targets, list)
    names = [h for t in experiment.targets for h in (t.db, *t.load)]
    fleet = Fleet("synthetic.yml", {n: Host(n, "127.0.0.1") for n in names}, {"all": names})
    return planning.make_plan(experiment, fleet, Path())


def write(results: Path, options: Options = _DEFAULT) -> store.RunDirectory:
    """Write the whole run directory below `results` and return it."""
    run = store.create(results, f"20261201T101500Z-{options.seed:04x}")
    plan = make_plan(options)
    store.write_json(run.plan_json, planning.to_json(plan))
    store.write_atomic(run.experiment_yaml, b"fleetmark: 1\nname: doublewrite\n")
    partial = bool(options.lost_journals)
    store.write_json(run.run_json, _run_json(run, plan, options, partial))
    ledger = [{"seq": 0, "t": T0 - 60, "event": "run_started"}]
    store.write_atomic(run.ledger, "".join(json.dumps(r) + "\n" for r in ledger).encode())
    for host in plan.hosts:
        store.write_json(run.host(host) / "facts.json", _facts(host))
    clock = T0
    for trial in plan.trials:
        clock = _write_trial(run, trial, plan.target(trial.target), options, clock)
    if options.ended:
        store.write_sums(run)
    return run


def _run_json(
    run: store.RunDirectory, plan: planning.Plan, options: Options, partial: bool
) -> dict[str, Any]:
    state = "partial" if partial else "complete"
    return {
        "version": 1,
        "run": run.run_id,
        "state": state if options.ended else "running",
        "experiment": plan.experiment,
        "started": "2026-12-01T10:15:00Z",
        "ended": "2026-12-01T10:27:30Z" if options.ended else None,
        "command": ["fleetmark", "run", "doublewrite.yaml"],
        "fleetmark": "0.1.0",
        "python": "3.11.2",
        "packages": {"pyarrow": "26.0.1"},
        "controller": "control1",
        "partial_because": ["a load host sent nothing"] if partial else [],
    }


def _facts(host: str) -> dict[str, Any]:
    place = {
        "path": "/var/lib/fleetmark",
        "filesystem": "ext4",
        "device": f"/dev/{DISK}p1",
        "mount_options": ["rw", "noatime"],
        "free_bytes": 400_000_000_000,
        "scheduler": "none",
    }
    return {
        "version": 1,
        "hostname": host,
        "boot_id": f"boot-{host}",
        "kernel": "6.1.0-30-amd64",
        "os": "Debian 12",
        "architecture": "x86_64",
        "virtualization": None,
        "python": "3.11.2",
        "cpu": {
            "model": "Example CPU 9000",
            "logical": 8,
            "cores": 8,
            "sockets": 1,
            "threads_per_core": 1,
            "numa_nodes": 1,
            "smt_active": False,
            "governor": "performance" if host.startswith("db") else None,
        },
        "memory_bytes": 34_359_738_368,
        "swap_bytes": 0,
        "swappiness": 1,
        "clocksource": "tsc",
        "base": place,
        "data": place,
        "disks": [{"name": DISK, "model": "Example SSD", "size_bytes": 960_000_000_000}],
        "tools": {"sysbench": "1.0.20", "fio": "3.33", "mariadbd": "10.11.14", "mysqld": None},
        "listening_ports": [22],
        "agent": "0.1.0",
    }


def _write_trial(
    run: store.RunDirectory,
    trial: planning.Trial,
    target: Target,
    options: Options,
    clock: float,
) -> float:
    directory = run.trial(trial.id)
    taints = [
        {"step": step, "kind": kind, "text": text}
        for name, step, kind, text in options.taints
        if name == trial.id and not step
    ]
    doublewrite = "ON" if trial.config == "dw1" else "OFF"
    store.write_json(
        directory / "trial.json",
        {
            "version": 1,
            "id": trial.id,
            "target": trial.target,
            "build": trial.build,
            "config": trial.config,
            "workload": trial.workload,
            "repeat": trial.repeat,
            "db": target.db,
            "load": target.load,
            "attempt": 1,
            "state": "ok",
            "started": "2026-12-01T10:16:00Z",
            "ended": "2026-12-01T10:20:00Z",
            "instance": {
                "version": "10.11.14-MariaDB",
                "version_comment": "Debian 12",
                "flavour": "mariadb",
                "port": 3306,
                "socket": "/run.sock",
                "pid": 4711,
                "data_dir": "/var/lib/fleetmark/data",
                "mismatches": [],
                "start_seconds": 1.4,
                "command": ["/usr/sbin/mariadbd", "--defaults-file=my.cnf"],
            },
            "rendered_config": f"[mysqld]\ninnodb_flush_log_at_trx_commit = 1\n"
            f"innodb-doublewrite = {doublewrite}\n",
            "stop": {
                "clean": True,
                "seconds": 0.8,
                "data_bytes": 260_000_000,
                "database_bytes": 41_000_000,
                "error_log_tail": "",
            },
            "taints": taints,
        },
    )
    variables = {"innodb_doublewrite": doublewrite, "innodb_flush_log_at_trx_commit": "1"}
    variables |= {"max_connections": "200", "innodb_page_size": "16384"}
    store.write_json(directory / "variables.json", variables)
    for host in (target.db, *target.load):
        for moment in ("before", "after"):
            store.write_json(
                run.host(host) / f"contract-{trial.id}-{moment}.json",
                {"version": 1, "deviations": [], "checked": ["governor", "kernel"]},
            )
    for number, step in enumerate(trial.steps, 1):
        clock = StepWriter(run, trial, target, options, clock).write(
            f"{number:02d}-{step.name}", step
        )
    return clock
