"""The verbs that look at hosts and make them ready: check, provision."""

import dataclasses
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from fleetmark import channel, conduct
from fleetmark.cli import deploy, prepare
from fleetmark.cli.interrupts import interruptible
from fleetmark.conduct import HostLook
from fleetmark.errors import ConfigError
from fleetmark.provision import HostProgress, ProvisionResult

_NEGATIVE = 1


def check(
    context: typer.Context,
    experiment: prepare.ExperimentArgument,
    inventory: prepare.InventoryOption = "",
    profile: prepare.ProfileOption = "",
    as_json: prepare.JsonOption = False,
) -> int:
    """Reach every host: Python, agent, tools, space, ports, contract. Changes nothing.

    Exit code 3 when a host is not fit for the run, 1 when it is fit but not as the contract
    declares.

    Example: fleetmark check my-first.yaml -i inventory.yml
    """
    prepared = _on_real_hosts(prepare.prepare(experiment, _option(context, inventory), profile))
    opened = channel.open_channels(prepared.plan.hosts.values())
    try:
        looks = conduct.look(prepared.plan, opened.channels)
    finally:
        opened.close()
    for host, error in opened.errors.items():
        looks[host] = HostLook(problems=[error])
    ordered = {host: looks[host] for host in prepared.plan.hosts}
    if as_json:
        typer.echo(json.dumps({host: _look_json(look) for host, look in ordered.items()}, indent=1))
    else:
        _print_looks(ordered)
    problems = [problem for look in ordered.values() for problem in look.problems]
    if problems:
        raise conduct.combined(problems)
    return _NEGATIVE if any(look.deviations for look in ordered.values()) else 0


def _option(context: typer.Context, inventory: str) -> str:
    return prepare.inventory_of(context, inventory)


def _on_real_hosts(prepared: prepare.Prepared) -> prepare.Prepared:
    if prepared.inventory is None:
        raise ConfigError(
            "the embedded fleet is not up; `run` makes it for the length of a run",
            next_step=f"make one that stays: fleetmark lab up {prepare.EMBEDDED}",
        )
    return prepared


def _look_json(look: HostLook) -> dict[str, object]:
    return {
        "facts": look.facts,
        "deviations": [dataclasses.asdict(d) for d in look.deviations],
        "problems": [
            {"message": str(p), "evidence": p.evidence, "next_step": p.next_step}
            for p in look.problems
        ],
    }


def _print_looks(looks: dict[str, HostLook]) -> None:
    table = Table("host", "state", "system", "python", "agent", "sysbench", "server", "free (data)")
    for host, look in looks.items():
        facts = look.facts
        tools = facts.get("tools") or {}
        free = (facts.get("data") or {}).get("free_bytes")
        cells = [
            facts.get("os"),
            facts.get("python"),
            facts.get("agent"),
            tools.get("sysbench"),
            tools.get("mariadbd") or tools.get("mysqld"),
            prepare.human_bytes(free) if free is not None else None,
        ]
        state = "not fit" if look.problems else "deviates" if look.deviations else "fit"
        table.add_row(host, state, *(str(c) if c is not None else "-" for c in cells))
    console = Console(highlight=False)
    console.print(table)
    for host, look in looks.items():
        for d in look.deviations:
            console.print(
                f"{host}: contract: {d.item} is {d.observed}, declared {d.expected}", markup=False
            )


def provision(
    context: typer.Context,
    experiment: prepare.ExperimentArgument,
    inventory: prepare.InventoryOption = "",
    results: Annotated[
        Path, typer.Option("--results", help="where Ansible's evidence is kept")
    ] = Path("results"),
    dry: Annotated[
        bool, typer.Option("--check", help="show what would change, change nothing")
    ] = False,
    as_json: prepare.JsonOption = False,
) -> int:
    """Make the hosts of an experiment ready: DBMS packages, load agent, facts.

    `run` does this by itself. One bad host does not stop the others; run it again to finish.

    Example: fleetmark provision my-first.yaml -i inventory.yml --check
    """
    prepared = _on_real_hosts(prepare.prepare(experiment, _option(context, inventory)))
    assert prepared.inventory is not None
    console = Console(stderr=as_json, highlight=False)
    directory = results / f"provision-{datetime.now(UTC):%Y%m%dT%H%M%SZ}"

    def show(progress: HostProgress) -> None:
        if line := deploy.line(progress):
            console.print(line, markup=False)

    what = deploy.Deployment(prepared.plan, prepared.inventory, directory, check=dry)
    with interruptible() as interrupts:
        result = deploy.deploy(what, show, interrupts.stop)
    if as_json:
        hosts = {name: dataclasses.asdict(host) for name, host in result.hosts.items()}
        typer.echo(json.dumps({"status": result.status, "hosts": hosts}, indent=1))
    else:
        _print_result(console, result, dry)
    result.require_all()
    return 0


def _print_result(console: Console, result: ProvisionResult, dry: bool) -> None:
    changes = "would change" if dry else "changed"
    table = Table("host", "state", "ok", changes, "skipped", "failed task")
    for name, host in result.hosts.items():
        state = "ready" if host.ready else "unreachable" if host.unreachable else "failed"
        counts = (str(count) for count in (host.ok, host.changed, host.skipped))
        table.add_row(name, state, *counts, host.failed_task)
    console.print(table)
    console.print(f"{result.seconds:.0f} s")
