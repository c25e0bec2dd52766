"""The verb that gives hosts back: clean."""

from pathlib import Path
from typing import Annotated

import typer

from fleetmark import channel, conduct, store
from fleetmark import inventory as inventories
from fleetmark.cli import prepare
from fleetmark.cli.options import RESULTS, ResultsOption
from fleetmark.cli.run import report_errors
from fleetmark.errors import ConfigError


def clean(
    context: typer.Context,
    run: Annotated[str, typer.Argument(help="a run: id, beginning of an id, or directory")],
    inventory: prepare.InventoryOption = "",
    results: ResultsOption = RESULTS,
    discard: Annotated[
        bool,
        typer.Option(
            "--discard", help="delete a run's files on the hosts although they are not here"
        ),
    ] = False,
) -> int:
    """End a run on its hosts, fetch what is there, delete its files, free the hosts.

    A run that is not in the results (another controller's, or its directory is gone) needs the
    hosts' inventory and --discard: what its hosts hold of it is lost.

    Example: fleetmark clean 20261201T101500Z-3fa9 -i inventory.yml --discard
    """
    if discard:
        return _discard(run, prepare.inventory_of(context, inventory))
    try:
        directory = store.find(results, run)
    except ConfigError as error:
        error.next_step = (
            "see fleetmark results ls; to free hosts from a run that is not here:"
            f" fleetmark clean {run} -i INVENTORY --discard"
        )
        raise
    what = conduct.replan(directory)
    opened = channel.open_channels(what.plan.hosts.values())
    try:
        stopped = conduct.stop_run(what, opened.channels)
        copied, errors = conduct.gather_run(what, opened.channels)
    finally:
        opened.close()
    for host, directories in copied.items():
        typer.echo(f"{host}: clean; fetched {', '.join(directories) or 'nothing new'}")
    return report_errors({**opened.errors, **stopped.errors, **errors})


def _discard(run: str, inventory: str) -> int:
    if not inventory:
        raise ConfigError("--discard needs the hosts: -i INVENTORY")
    fleet = inventories.load(Path(inventory))
    opened = channel.open_channels(fleet.hosts.values())
    try:
        done = conduct.discard_run(run, fleet.hosts, opened.channels)
    finally:
        opened.close()
    for host, answer in done.values.items():
        files = "its files are deleted" if answer["removed"] else "it had no files there"
        typer.echo(f"{host}: free of {run}, {files}")
    return report_errors({**opened.errors, **done.errors})
