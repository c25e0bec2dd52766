"""`fleetmark lab`: disposable fleets on this machine."""

import json
from typing import Annotated

import typer

from fleetmark import lab
from fleetmark.errors import ConfigError

lab_app = typer.Typer(
    no_args_is_help=True,
    help="A disposable fleet on this machine, for trying things out. Example:"
    " fleetmark lab up --hosts 3; fleetmark lab status; fleetmark lab down",
)

DEFAULT_NAME = "lab"

Name = Annotated[str, typer.Argument(help="The lab's name.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for a script.")]


@lab_app.command()
def up(
    name: Name = DEFAULT_NAME,
    kind: Annotated[
        str, typer.Option(help="light (needs root), local, or auto: what this machine can do.")
    ] = "auto",
    hosts: Annotated[int, typer.Option(min=1, help="How many hosts in all.")] = 3,
    db: Annotated[int, typer.Option(min=0, help="How many of them are database hosts.")] = 1,
    as_json: AsJson = False,
) -> None:
    """Make a fleet. Example: fleetmark lab up --kind light --hosts 3"""
    if kind not in ("auto", "light", "local"):
        raise ConfigError(f"--kind is auto, light or local, not {kind!r}")
    if db > hosts:
        raise ConfigError(f"--db {db} is more than --hosts {hosts}")
    chosen = lab.default_kind() if kind == "auto" else kind
    spec = lab.LabSpec(name, "light" if chosen == "light" else "local", db, hosts - db)
    inventory = lab.up(spec, lambda line: None if as_json else typer.echo(line))
    if as_json:
        typer.echo(json.dumps({"name": name, "kind": spec.kind, "inventory": str(inventory)}))
    else:
        typer.echo(f"inventory {inventory}\nremove it again: fleetmark lab down {name}")


@lab_app.command()
def down(
    name: Name = DEFAULT_NAME,
    everything: Annotated[bool, typer.Option("--all", help="Remove every lab.")] = False,
    as_json: AsJson = False,
) -> None:
    """Remove a fleet and all that it left, also after a crash. Example: fleetmark lab down"""
    removed = {each: lab.down(each) for each in (lab.names() if everything else [name])}
    if as_json:
        typer.echo(json.dumps({"removed": removed}))
        return
    for each, things in removed.items():
        for thing in things:
            typer.echo(f"removed {thing}")
        if not things:
            typer.echo(f"there is no lab {each!r}")
    if not removed:
        typer.echo("there is no lab")


@lab_app.command()
def status(
    name: Annotated[str, typer.Argument(help="The lab's name; all labs without one.")] = "",
    as_json: AsJson = False,
) -> None:
    """Show the fleets that are up. Example: fleetmark lab status --json"""
    found = [s for s in map(lab.status, [name] if name else lab.names()) if s is not None]
    if as_json:
        typer.echo(json.dumps({"labs": [_as_json(s) for s in found]}))
        return
    if not found:
        typer.echo(f"there is no lab {name!r}" if name else "there is no lab")
    for each in found:
        whole = "" if each.complete else f", half made; fleetmark lab down {each.name}"
        typer.echo(f"{each.name} ({each.kind}{whole}) {each.inventory}")
        for host in each.hosts:
            answer = "answers" if host.alive else "DOES NOT ANSWER"
            typer.echo(f"  {host.name:<10}{host.address:<16}{answer}, {host.processes} processes")


def _as_json(status: lab.LabStatus) -> dict[str, object]:
    return {
        "name": status.name,
        "kind": status.kind,
        "inventory": str(status.inventory),
        "complete": status.complete,
        "hosts": [
            {
                "name": host.name,
                "group": host.group,
                "address": host.address,
                "alive": host.alive,
                "processes": host.processes,
            }
            for host in status.hosts
        ],
    }
