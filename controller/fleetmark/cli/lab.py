"""`fleetmark lab`: disposable fleets on this machine."""

import json
from typing import Annotated, cast

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
        str,
        typer.Option(
            help="light (needs root), local, vm (QEMU guests; needs root), or auto: light or local,"
            " what this machine can do."
        ),
    ] = "auto",
    hosts: Annotated[int, typer.Option(min=1, help="How many hosts in all.")] = 3,
    db: Annotated[int, typer.Option(min=0, help="How many of them are database hosts.")] = 1,
    memory_mib: Annotated[int, typer.Option(help="Memory of a guest (vm).")] = 1536,
    accel: Annotated[
        str,
        typer.Option(help="kvm, tcg (emulation), or auto: kvm where it works (vm)."),
    ] = "auto",
    as_json: AsJson = False,
) -> None:
    """Make a fleet. Example: fleetmark lab up --kind light --hosts 3"""
    if kind not in ("auto", "light", "local", "vm"):
        raise ConfigError(f"--kind is auto, light, local or vm, not {kind!r}")
    if accel not in ("auto", "kvm", "tcg"):
        raise ConfigError(f"--accel is auto, kvm or tcg, not {accel!r}")
    if db > hosts:
        raise ConfigError(f"--db {db} is more than --hosts {hosts}")
    chosen = lab.default_kind() if kind == "auto" else cast(lab.Kind, kind)
    guests = lab.VmSpec(memory_mib << 20, accel=cast(lab.Accel, accel))
    spec = lab.LabSpec(name, chosen, db, hosts - db, guests)
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
            if host.vm is None:
                answer += f", {host.processes} processes"
            elif not host.processes:
                answer = "is off"
            typer.echo(f"  {host.name:<10}{host.address:<16}{answer}")
            if host.vm is not None:
                typer.echo(f"            {host.vm.accel}, disks {', '.join(host.vm.disks)}")
                typer.echo(f"            console {host.vm.console}")


Host = Annotated[str, typer.Argument(help="The host, as lab status names it.")]


@lab_app.command()
def reboot(name: Name, host: Host) -> None:
    """Let a guest boot anew, and wait for it. Example: fleetmark lab reboot lab db1"""
    lab.reboot(name, host, typer.echo)
    typer.echo(f"host {host} has booted")


@lab_app.command("power-off")
def power_off(
    name: Name,
    host: Host,
    hard: Annotated[bool, typer.Option("--hard", help="As if the plug was pulled.")] = False,
) -> None:
    """Switch a guest off; its disks keep all. Example: fleetmark lab power-off lab db1"""
    lab.power_off(name, host, hard=hard)
    typer.echo(f"host {host} is off")


@lab_app.command("power-on")
def power_on(name: Name, host: Host) -> None:
    """Switch a guest on again, and wait for it. Example: fleetmark lab power-on lab db1"""
    lab.power_on(name, host)
    typer.echo(f"host {host} has booted")


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
                **_vm_as_json(host.vm),
            }
            for host in status.hosts
        ],
    }


def _vm_as_json(vm: lab.VmHostStatus | None) -> dict[str, object]:
    if vm is None:
        return {}
    disks = {serial: str(path) for serial, path in vm.disks.items()}
    return {"accel": vm.accel, "console": str(vm.console), "disks": disks}
