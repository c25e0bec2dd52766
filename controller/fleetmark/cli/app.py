"""The `fleetmark` command: verbs, and the one place where errors become exit codes."""

import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

import fleetmark
from fleetmark.cli import clean, hosts, metrics, prepare, results, run
from fleetmark.cli.lab import lab_app
from fleetmark.errors import FleetmarkError

app = typer.Typer(
    name="fleetmark",
    help="Benchmark databases and storage on a fleet of machines at once, with numbers that"
    " carry their proof.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"fleetmark {fleetmark.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    context: typer.Context,
    inventory: Annotated[
        str,
        typer.Option(
            "--inventory",
            "-i",
            help="Ansible inventory; goes before the verb or after it",
            show_default=False,
        ),
    ] = "",
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="print the version"),
    ] = False,
) -> None:
    context.obj = {"inventory": inventory}


def _add(panel: str, verbs: dict[str, Callable[..., Any]]) -> None:
    for name, function in verbs.items():
        app.command(name, rich_help_panel=panel)(function)


_add(
    "Prepare",
    {
        "init": prepare.init,
        "plan": prepare.plan,
        "check": hosts.check,
        "provision": hosts.provision,
        "restore": hosts.restore,
    },
)
_add(
    "Run",
    {
        "run": run.run,
        "status": metrics.status,
        "watch": metrics.watch,
        "stop": run.stop,
        "resume": run.resume,
        "gather": run.gather,
        "clean": clean.clean,
    },
)
_add("Results", {"report": results.report, "compare": results.compare})
app.add_typer(results.results_app, name="results", rich_help_panel="Results")
app.add_typer(metrics.metrics_app, name="metrics", rich_help_panel="Run")
app.add_typer(lab_app, name="lab", rich_help_panel="Prepare")


# Typer brings its own copy of click in some versions; BadParameter is public in all of them.
_UsageError: Any = typer.BadParameter.__mro__[1]


def show_error(error: FleetmarkError) -> None:
    """Print an error for the person at the terminal: what, where, evidence, next step."""
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    console.print(f"[bold red]error:[/] {escape(str(error))}")
    if error.evidence:
        for line in error.evidence.strip().splitlines():
            console.print(f"  [dim]|[/] {escape(line)}")
    if error.next_step:
        console.print(f"  [cyan]next:[/] {escape(error.next_step)}")


def main() -> None:
    """Run the command line and leave with the exit code of its outcome."""
    try:
        outcome = app(standalone_mode=False)
    except FleetmarkError as error:
        show_error(error)
        sys.exit(error.exit_code)
    except _UsageError as error:
        error.show()
        sys.exit(2)
    except (KeyboardInterrupt, typer.Abort):
        typer.echo("interrupted", err=True)
        sys.exit(130)
    except BrokenPipeError:
        # The reader of our output has gone (| head): not worth a word.
        sys.stderr.close()
        sys.exit(0)
    sys.exit(outcome if isinstance(outcome, int) else 0)
