"""The verbs before a run: init and plan; and how a run finds its fleet."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from fleetmark import experiment as experiments
from fleetmark import inventory as inventories
from fleetmark import lab
from fleetmark import plan as plans
from fleetmark.errors import ConfigError
from fleetmark.experiment import LoadedExperiment
from fleetmark.inventory import Fleet
from fleetmark.plan import Plan

EMBEDDED = "embedded"

ExperimentArgument = Annotated[Path, typer.Argument(help="the experiment file", show_default=False)]
InventoryOption = Annotated[
    str,
    typer.Option(
        "--inventory",
        "-i",
        help="Ansible inventory; beats the experiment's. 'embedded' is a fleet on this machine",
        show_default=False,
    ),
]
ProfileOption = Annotated[
    str, typer.Option("--profile", help="profile of every workload, beats the experiment's")
]
JsonOption = Annotated[bool, typer.Option("--json", help="print JSON for a script")]


@dataclass(frozen=True)
class Prepared:
    """An experiment with its fleet and its plan; nothing has been touched yet.

    `inventory` is None for the embedded fleet until it is up.
    """

    loaded: LoadedExperiment
    fleet: Fleet
    plan: Plan
    inventory: Path | None


def _embedded_spec() -> lab.LabSpec:
    return lab.LabSpec(name=EMBEDDED, kind=lab.default_kind(), db=1, load=2)


def _load_fleet(inventory: str, base: Path) -> tuple[Fleet, Path | None]:
    """The fleet that an inventory name or path means; relative paths begin at `base`."""
    if inventory == EMBEDDED:
        status = lab.status(EMBEDDED)
        if status is None:
            return lab.fleet(_embedded_spec()), None
        if not status.complete:
            raise ConfigError(
                "the embedded fleet is half made or half gone",
                next_step=f"remove the rest of it: fleetmark lab down {EMBEDDED}",
            )
        path = lab.inventory_path(EMBEDDED)
    else:
        path = Path(inventory) if Path(inventory).is_absolute() else base / inventory
    return inventories.load(path), path


def prepare(experiment: Path, inventory: str = "", profile: str = "") -> Prepared:
    """Read the experiment and the inventory and make the plan. Touches nothing.

    Raises ConfigError for anything that can be known to be wrong from the files.
    """
    loaded = experiments.load(experiment, profile)
    named = loaded.experiment.inventory
    if not inventory and not named:
        raise ConfigError(
            f"{experiment} names no inventory",
            next_step="add `inventory: FILE` to it, or pass -i FILE (-i embedded: this machine)",
        )
    base = Path.cwd() if inventory else experiment.parent
    fleet, path = _load_fleet(inventory or named, base)
    plan = plans.make_plan(loaded.experiment, fleet, experiment.parent)
    return Prepared(loaded, fleet, plan, path)


@contextmanager
def fleet_up(prepared: Prepared, say: Callable[[str], None]) -> Iterator[Prepared]:
    """The same experiment on a fleet that exists: the embedded fleet is brought up if needed.

    A fleet that was brought up here is taken down at the end; one that was there is left.
    """
    if prepared.inventory is not None:
        yield prepared
        return
    spec = _embedded_spec()
    say(f"bringing up the embedded fleet ({spec.kind} hosts on this machine)")
    # Not within the try: a fleet that is there already is somebody else's, and `up` cleans up
    # after itself when it fails.
    path = lab.up(spec, say)
    try:
        fleet = inventories.load(path)
        experiment = prepared.loaded.experiment
        plan = plans.make_plan(experiment, fleet, prepared.loaded.path.parent)
        yield Prepared(prepared.loaded, fleet, plan, path)
    finally:
        say("taking the embedded fleet down")
        lab.down(spec.name)


def inventory_of(context: typer.Context, option: str) -> str:
    """The inventory from after the verb, else from before it."""
    return option or str((context.obj or {}).get("inventory", ""))


def human_seconds(seconds: float) -> str:
    """A duration as a person writes it: 45 s, 12 min, 3 h 05 min."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02d} min"


def human_bytes(count: float) -> str:
    """A size with a binary unit: 1.4 GiB."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    raise AssertionError("unreachable")


def plan(
    context: typer.Context,
    experiment: ExperimentArgument,
    inventory: InventoryOption = "",
    profile: ProfileOption = "",
    as_json: JsonOption = False,
) -> None:
    """Show what a run would do: targets, trials, steps, time and disk. Touches no host.

    Example: fleetmark plan experiments/demo.yaml
    """
    prepared = prepare(experiment, inventory_of(context, inventory), profile)
    if as_json:
        typer.echo(json.dumps(plans.to_json(prepared.plan), indent=1))
        return
    _print_plan(prepared)


def _print_plan(prepared: Prepared) -> None:
    console = Console(highlight=False)
    plan = prepared.plan
    console.print(f"[bold]{plan.experiment}[/]  {plan.description}")
    where = plan.inventory if prepared.inventory else "embedded: brought up for the run"
    console.print(f"fleet: {where}\n")
    targets = Table("target", "database host", "load hosts", title="Targets", title_justify="left")
    for target in plan.targets:
        targets.add_row(target.name, target.db, ", ".join(target.load))
    console.print(targets)
    configs = Table("config", "variables", title="Configs", title_justify="left")
    for config in plan.configs:
        settings = (k if v is None else f"{k} = {v}" for k, v in config.variables.items())
        configs.add_row(config.name, "\n".join(settings))
    console.print(configs)
    trials = Table("", "trial", "steps", "time", "disk", title="Trials", title_justify="left")
    for number, trial in enumerate(plan.trials, 1):
        trials.add_row(
            str(number),
            trial.id,
            " ".join(step.name for step in trial.steps),
            human_seconds(plans.expected_seconds(trial)),
            human_bytes(plans.expected_bytes(trial)),
        )
    console.print(trials)
    console.print(_disks_text(plan))
    total = human_seconds(plan.expected_seconds)
    console.print(f"{len(plan.trials)} trials, about {total} (estimated; targets run side by side)")


def _disks_text(plan: Plan) -> str:
    if not plan.disks:
        return "disks to format: none"
    lines = [f"  {d.host} serial {d.serial}, {d.use}: {d.contents}" for d in plan.disks]
    return "\n".join(["disks to format, if they are not as asked for:", *lines])


_TEMPLATE = """\
# A Fleetmark experiment: what to compare, on which hosts, how often.
# Every key is explained in docs/experiments.md. See the plan first: fleetmark plan {file}
fleetmark: 1
name: {name}
description: What this experiment asks, in one sentence.
inventory: {inventory}

builds:
  - name: mariadb
    flavour: mariadb
    source: package            # the distribution's package

configs:
  - name: base
    set:
      innodb_buffer_pool_size: "{{{{ (memory_bytes * 0.5) | int }}}}"   # over the host's facts
      innodb_flush_log_at_trx_commit: 1
  - name: nosync
    extends: base
    set:
      innodb_flush_log_at_trx_commit: 0

workloads:
  - insert_benchmark:
      profile: tiny            # cpu_bound and io_bound have the published sizes

repeats: 1
"""

_INVENTORY_TEMPLATE = """\
# An ordinary Ansible inventory. One database host and the hosts that drive it.
all:
  vars:
    ansible_user: root
  children:
    db:
      hosts:
        db1: {{ansible_host: 192.0.2.10, fleetmark_data_dir: /data/fleetmark}}
    load:
      hosts:
        load1: {{ansible_host: 192.0.2.11}}
        load2: {{ansible_host: 192.0.2.12}}
"""


def init(
    directory: Annotated[Path, typer.Argument(help="where to write")] = Path(),
    name: Annotated[str, typer.Option("--name", help="the experiment's name")] = "my-first",
    embedded: Annotated[
        bool, typer.Option("--embedded", help="use a disposable fleet on this machine")
    ] = False,
) -> None:
    """Write a commented experiment, and an inventory to go with it. Overwrites nothing.

    Example: fleetmark init my-benchmarks --name doublewrite
    """
    experiment, inventory = directory / f"{name}.yaml", directory / "inventory.yml"
    files = {
        experiment: _TEMPLATE.format(
            file=experiment, name=name, inventory=EMBEDDED if embedded else inventory.name
        )
    }
    if not embedded:
        files[inventory] = _INVENTORY_TEMPLATE.format()
    for path in files:
        if path.exists():
            raise ConfigError(f"{path} is there already", next_step="choose another --name")
    directory.mkdir(parents=True, exist_ok=True)
    for path, text in files.items():
        path.write_text(text)
        typer.echo(f"wrote {path}")
    # What we write must be an experiment that we read.
    experiments.load(experiment)
    typer.echo(f"next: fleetmark plan {experiment}")
