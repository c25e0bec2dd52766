"""The verbs that look at a run from its directory: status, watch, metrics."""

import dataclasses
import json
import sys
import threading
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.live import Live

from fleetmark import store
from fleetmark.cli.options import RESULTS, ResultsOption, RunArgument
from fleetmark.cli.prepare import JsonOption
from fleetmark.errors import Interrupted
from fleetmark.store import RunDirectory
from fleetmark.watch import (
    ENDED_STATES,
    RunWatcher,
    scrape_config,
    serve,
    serve_during_run,
    write_file_sd,
)
from fleetmark.watch.screen import plain_line, screen, warnings
from fleetmark_exporters import dashboard_path, rules_path
from fleetmark_exporters.snapshot import RunSnapshot

__all__ = ["metrics_app", "serve_during_run", "status", "watch"]

metrics_app = typer.Typer(
    help="Serve a run to Prometheus, and what Prometheus and Grafana need for it.",
    no_args_is_help=True,
)

ListenOption = Annotated[
    str, typer.Option("--listen", help="address and port of /metrics; port 0 takes any free one")
]
_LISTEN = "127.0.0.1:9518"
_PLAIN_INTERVAL_SECONDS = 10.0
_QUIET_SECONDS = 60.0
_FILE_WIDTH = 160


def status(
    run: RunArgument = "latest",
    results: ResultsOption = RESULTS,
    as_json: JsonOption = False,
) -> None:
    """Show how a run stands: state, targets, steps, rates, SLA, errors.

    Example: fleetmark status latest --json
    """
    directory = store.find(results, run)
    snapshot = RunWatcher(directory).poll()
    if as_json:
        typer.echo(json.dumps(_json(snapshot), indent=1))
        return
    now = time.time()
    # In a file or a pipe there is no width to keep to.
    console = Console(highlight=False, width=None if sys.stdout.isatty() else _FILE_WIDTH)
    console.print(screen(snapshot, now))
    quiet = _quiet_text(snapshot, directory, now)
    if quiet:
        console.print(quiet, style="yellow")


def _json(snapshot: RunSnapshot) -> dict[str, object]:
    """The snapshot without histograms, which `results export` gives in full."""
    data = dataclasses.asdict(snapshot)
    for target in data["targets"]:
        for step in target["steps"]:
            for stream in step["streams"]:
                del stream["service"], stream["response"]
    return data


def _quiet_text(snapshot: RunSnapshot, directory: RunDirectory, now: float) -> str:
    if snapshot.state in ENDED_STATES or snapshot.last_news is None:
        return ""
    silent_seconds = now - snapshot.last_news
    if silent_seconds < _QUIET_SECONDS:
        return ""
    return (
        f"nothing new for {silent_seconds:.0f} s; if the controller has died, go on with:"
        f" fleetmark resume {directory.run_id}"
    )


def watch(
    run: RunArgument = "latest",
    results: ResultsOption = RESULTS,
    interval_seconds: Annotated[
        float, typer.Option("--interval", min=0.2, help="seconds between two looks")
    ] = 1.0,
) -> None:
    """Look at a run live, from this or another terminal; ends with the run. Changes nothing.

    Example: fleetmark watch
    """
    directory = store.find(results, run)
    watcher = RunWatcher(directory)
    console = Console(highlight=False)
    try:
        if console.is_terminal:
            _watch_screen(watcher, console, interval_seconds)
        else:
            _watch_lines(watcher, interval_seconds)
    except KeyboardInterrupt:
        raise Interrupted(
            "stopped looking; the run itself is not touched",
            next_step=f"look again: fleetmark watch {directory.run_id}",
        ) from None


def _watch_screen(watcher: RunWatcher, console: Console, interval_seconds: float) -> None:
    snapshot = watcher.poll()
    with Live(screen(snapshot, time.time()), console=console, auto_refresh=False) as live:
        while snapshot.state not in ENDED_STATES:
            time.sleep(interval_seconds)
            snapshot = watcher.poll()
            live.update(screen(snapshot, time.time()), refresh=True)


def _watch_lines(watcher: RunWatcher, interval_seconds: float) -> None:
    """A line whenever a target does something else, and one each ten seconds."""
    activities: dict[str, str] = {}
    told: set[str] = set()
    printed_at = 0.0
    while True:
        snapshot = watcher.poll()
        due = time.monotonic() - printed_at >= _PLAIN_INTERVAL_SECONDS
        for target in snapshot.targets:
            if due or activities.get(target.name) != target.activity:
                typer.echo(plain_line(target))
                activities[target.name] = target.activity
        for text in (*snapshot.host_failures, *snapshot.problems):
            if text not in told:
                typer.echo(f"! {text}")
                told.add(text)
        if due:
            printed_at = time.monotonic()
        if snapshot.state in ENDED_STATES:
            for text in warnings(snapshot):
                typer.echo(f"! {text}")
            typer.echo(f"run {snapshot.run} {snapshot.state}")
            return
        time.sleep(interval_seconds)


@metrics_app.command("serve")
def metrics_serve(
    run: RunArgument = "latest",
    listen: ListenOption = _LISTEN,
    results: ResultsOption = RESULTS,
) -> None:
    """Serve a finished or running run at /metrics until Ctrl-C.

    Example: fleetmark metrics serve latest --listen 127.0.0.1:9518
    """
    directory = store.find(results, run)
    with serve(directory, listen) as server:
        typer.echo(f"run {directory.run_id} at {server.url}; Ctrl-C ends it")
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            typer.echo(f"served {server.scrapes} scrapes")


@metrics_app.command("scrape-config")
def metrics_scrape_config(
    listen: ListenOption = _LISTEN,
    file_sd: Annotated[
        Path | None,
        typer.Option("--file-sd", help="also write a file for file discovery, and refer to it"),
    ] = None,
) -> None:
    """Print the part of prometheus.yml that scrapes a run and loads our rules.

    Example: fleetmark metrics scrape-config > prometheus.yml
    """
    text = scrape_config(listen, file_sd)
    if file_sd:
        write_file_sd(file_sd, listen)
    typer.echo(text, nl=False)


@metrics_app.command("rules")
def metrics_rules() -> None:
    """Print the recording and alerting rules for Prometheus.

    Example: fleetmark metrics rules > /etc/prometheus/fleetmark.rules.yml
    """
    typer.echo(rules_path().read_text(), nl=False)


@metrics_app.command("dashboard")
def metrics_dashboard() -> None:
    """Print the Grafana dashboard of a run, to be imported as JSON.

    Example: fleetmark metrics dashboard > fleetmark-run.json
    """
    typer.echo(dashboard_path().read_text(), nl=False)
