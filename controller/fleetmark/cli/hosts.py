"""The verbs that look at hosts, make them ready and take that back: check, provision, restore."""

import dataclasses
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from fleetmark import channel, conduct
from fleetmark.cli import deploy, disks, prepare
from fleetmark.cli.interrupts import interruptible
from fleetmark.conduct import HostLook
from fleetmark.errors import ConfigError
from fleetmark.plan import Disk
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
    prepared = _on_real_hosts(
        prepare.prepare(experiment, prepare.inventory_of(context, inventory), profile)
    )
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


LimitOption = Annotated[
    str, typer.Option("--limit", help="only these hosts or groups, separated by commas")
]
ResultsOption = Annotated[Path, typer.Option("--results", help="where Ansible's evidence is kept")]
CheckOption = Annotated[
    bool, typer.Option("--check", help="show what would change, change nothing")
]


def provision(
    context: typer.Context,
    experiment: prepare.ExperimentArgument,
    inventory: prepare.InventoryOption = "",
    results: ResultsOption = Path("results"),
    dry: CheckOption = False,
    limit: LimitOption = "",
    tags: Annotated[
        str,
        typer.Option(
            "--tags",
            help="only these kinds of work: tuning (cpu, limits, time_sync, nvme, filesystem,"
            " monitoring), dbms, agent, builds",
        ),
    ] = "",
    confirm_wipe: Annotated[
        list[str] | None,
        typer.Option(
            "--confirm-wipe", metavar="HOST:SERIAL", help="all that is on this disk may be lost"
        ),
    ] = None,
    as_json: prepare.JsonOption = False,
) -> int:
    """Make the hosts of an experiment ready: tuning, disks, DBMS packages, load agent, facts.

    `run` does this by itself. Disks are shown with their contents before anything is changed; one
    that holds anything is refused unless it is named. One bad host does not stop the others; run
    it again to finish.

    Example: fleetmark provision my-first.yaml -i inventory.yml --check
    """
    prepared = _on_real_hosts(prepare.prepare(experiment, prepare.inventory_of(context, inventory)))
    assert prepared.inventory is not None
    plan = dataclasses.replace(
        prepared.plan, confirm_wipe=disks.consents(prepared, confirm_wipe or [])
    )
    console = Console(stderr=as_json, highlight=False)
    what = deploy.Deployment(
        plan,
        prepared.inventory,
        results / f"provision-{datetime.now(UTC):%Y%m%dT%H%M%SZ}",
        check=dry,
        hosts=_limited(prepared, limit),
        tags=tuple(part.strip() for part in tags.split(",") if part.strip()),
    )
    with interruptible() as interrupts:
        found = deploy.look_at_disks(what, interrupts.stop) if disks.concerned(what) else []
        if found and not as_json:
            disks.show(console, found)
        result = deploy.deploy(what, _shower(console), interrupts.stop)
    if as_json:
        typer.echo(json.dumps(_result_json(result, found), indent=1))
    else:
        _print_result(console, result, dry)
    result.require_all()
    return 0


def restore(
    context: typer.Context,
    experiment: prepare.ExperimentArgument,
    inventory: prepare.InventoryOption = "",
    results: ResultsOption = Path("results"),
    dry: CheckOption = False,
    limit: LimitOption = "",
    as_json: prepare.JsonOption = False,
) -> int:
    """Take the tuning of hosts back to what it was before the first provisioning.

    CPU and memory policy, scheduler and read-ahead, limits and services. File systems, packages
    and the agent stay.

    Example: fleetmark restore my-first.yaml -i inventory.yml --limit db
    """
    prepared = _on_real_hosts(prepare.prepare(experiment, prepare.inventory_of(context, inventory)))
    assert prepared.inventory is not None
    console = Console(stderr=as_json, highlight=False)
    what = deploy.Deployment(
        prepared.plan,
        prepared.inventory,
        results / f"restore-{datetime.now(UTC):%Y%m%dT%H%M%SZ}",
        check=dry,
        hosts=_limited(prepared, limit),
    )
    with interruptible() as interrupts:
        result = deploy.restore(what, _shower(console), interrupts.stop)
    if as_json:
        typer.echo(json.dumps(_result_json(result, []), indent=1))
    else:
        _print_result(console, result, dry)
    result.require_all()
    return 0


def _shower(console: Console) -> Callable[[HostProgress], None]:
    def show(progress: HostProgress) -> None:
        if line := deploy.line(progress):
            console.print(line, markup=False)

    return show


def _limited(prepared: prepare.Prepared, limit: str) -> tuple[str, ...]:
    """The hosts that --limit names; empty means all."""
    names: list[str] = []
    for word in (part.strip() for part in limit.split(",")):
        members = prepared.fleet.groups.get(word, [word] if word in prepared.fleet.hosts else [])
        if word and not members:
            raise ConfigError(f"--limit: {word!r} is neither a group nor a host of the inventory")
        names += members
    chosen = tuple(name for name in prepared.plan.hosts if name in names)
    if limit and not chosen:
        raise ConfigError("--limit leaves no host of the experiment")
    return chosen


def _result_json(result: ProvisionResult, found: list[Disk]) -> dict[str, object]:
    return {
        "status": result.status,
        "hosts": {name: dataclasses.asdict(host) for name, host in result.hosts.items()},
        "disks": [dataclasses.asdict(disk) for disk in found],
    }


def _print_result(console: Console, result: ProvisionResult, dry: bool) -> None:
    changes = "would change" if dry else "changed"
    table = Table("host", "state", "ok", changes, "skipped", "failed task")
    for name, host in result.hosts.items():
        state = "ready" if host.ready else "unreachable" if host.unreachable else "failed"
        counts = (str(count) for count in (host.ok, host.changed, host.skipped))
        table.add_row(name, state, *counts, host.failed_task)
    console.print(table)
    console.print(f"{result.seconds:.0f} s")
