"""The verbs on stored results: report, compare, and `results` with its own."""

import json
import webbrowser
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fleetmark import archive, store
from fleetmark import report as reporting
from fleetmark.analyse.comparison import Comparison
from fleetmark.analyse.comparison import compare as compare_summaries
from fleetmark.analyse.summary import summarise
from fleetmark.analyse.tones import of_ratio
from fleetmark.cli.options import RESULTS, ResultsOption, RunArgument
from fleetmark.cli.prepare import JsonOption
from fleetmark.errors import ResultError
from fleetmark.report.figures import MISSING, duration, moment, number, parse_moment, ratio
from fleetmark.tables import query
from fleetmark.tables.build import count_taints, open_tables

__all__ = ["compare", "report", "results_app"]

results_app = typer.Typer(
    help="Look at stored runs: list, show, verify, export, import, ask with SQL.",
    no_args_is_help=True,
)

_STYLES = {"lower": "yellow", "higher": "blue", "": ""}
_FILE_WIDTH = 200


def _console() -> Console:
    console = Console(highlight=False)
    # In a file or a pipe there is no width to keep to.
    return console if console.is_terminal else Console(highlight=False, width=_FILE_WIDTH)


def report(
    run: RunArgument = "latest",
    results: ResultsOption = RESULTS,
    show: Annotated[bool, typer.Option("--open", help="open it in the browser")] = False,
    as_json: JsonOption = False,
) -> None:
    """Write the report of a run: report.html and report.md, from its raw files.

    Example: fleetmark report latest --open
    """
    written = reporting.write(store.find(results, run))
    if as_json:
        typer.echo(json.dumps({"html": str(written[0]), "markdown": str(written[1])}))
    else:
        for path in written:
            typer.echo(path)
    if show:
        webbrowser.open(written[0].as_uri())


def compare(
    runs: Annotated[list[str], typer.Argument(help="the runs; the first one is the base")],
    results: ResultsOption = RESULTS,
    as_json: JsonOption = False,
) -> None:
    """Compare the throughput of runs, step by step, relative to the first row.

    Example: fleetmark compare 20261201T101500Z latest
    """
    found = [store.find(results, run) for run in runs]
    summaries = []
    for directory in found:
        opened = open_tables(directory)
        lines = summarise(opened.rows("trials"), opened.rows("steps"))
        summaries.append((directory.run_id, lines))
    comparisons = compare_summaries(summaries)
    if not comparisons:
        raise ResultError(
            "these runs have no workload in common",
            next_step="fleetmark results ls shows what each run is",
        )
    if as_json:
        typer.echo(json.dumps([_comparison_json(c) for c in comparisons], indent=1))
        return
    for comparison in comparisons:
        _console().print(_comparison_table(comparison))


def _comparison_json(comparison: Comparison) -> dict[str, Any]:
    return {
        "workload": comparison.workload,
        "steps": comparison.steps,
        "rows": [
            {
                "run": row.run,
                "row": row.label,
                "throughput": dict(zip(comparison.steps, row.absolute, strict=True)),
                "relative": dict(zip(comparison.steps, row.relative, strict=True)),
                "sla_failed": dict(zip(comparison.steps, row.sla_failed, strict=True)),
                "tainted": dict(zip(comparison.steps, row.tainted, strict=True)),
            }
            for row in comparison.rows
        ],
    }


def _comparison_table(comparison: Comparison) -> Table:
    table = Table(
        title=f"{comparison.workload}: throughput a second, relative to the first row",
        title_justify="left",
        caption="SLA: missed, the number does not count. *: tainted or partial, see the report.",
        caption_justify="left",
    )
    table.add_column("run")
    table.add_column("target.build.config")
    for step in comparison.steps:
        table.add_column(step, justify="right")
    for row in comparison.rows:
        cells = []
        for n, value in enumerate(row.absolute):
            style = _STYLES[of_ratio(row.relative[n]).value]
            text = f"{number(value)}  {ratio(row.relative[n])}"
            text += " SLA" if row.sla_failed[n] else ""
            text += "*" if row.tainted[n] else ""
            cells.append(f"[{style}]{text}[/]" if style else text)
        table.add_row(row.run, row.label, *cells)
    return table


@results_app.command("ls")
def list_runs(results: ResultsOption = RESULTS, as_json: JsonOption = False) -> None:
    """List the stored runs, oldest first.

    Example: fleetmark results ls --json
    """
    lines = [_line(run) for run in store.list_runs(results)]
    if as_json:
        typer.echo(json.dumps(lines, indent=1))
        return
    if not lines:
        typer.echo(f"no runs in {results}")
        return
    table = Table()
    for heading in ("run", "experiment", "state", "started", "took", "trials", "taints"):
        table.add_column(heading, justify="right" if heading in ("trials", "taints") else "left")
    for line in lines:
        table.add_row(
            line["run"],
            line["experiment"],
            line["state"],
            moment(line["started"]),
            duration(line["duration_seconds"]),
            str(line["trials"]),
            str(line["taints"]),
        )
    _console().print(table)


def _line(run: store.RunDirectory) -> dict[str, Any]:
    document = store.read_versioned(run.run_json)
    started, ended = parse_moment(document.get("started")), parse_moment(document.get("ended"))
    plan = store.read_versioned(run.plan_json) if run.plan_json.is_file() else {"trials": []}
    return {
        "run": run.run_id,
        "experiment": document["experiment"],
        "state": document["state"],
        "started": document.get("started"),
        "duration_seconds": (ended - started).total_seconds() if started and ended else None,
        "trials": len(plan["trials"]),
        "taints": count_taints(run),
        "path": str(run.path.resolve()),
    }


@results_app.command()
def show(
    run: RunArgument = "latest", results: ResultsOption = RESULTS, as_json: JsonOption = False
) -> None:
    """Show one run: its trials and steps with throughput, SLA, worst latency and taints.

    Example: fleetmark results show latest
    """
    directory = store.find(results, run)
    opened = open_tables(directory)
    line = _line(directory)
    if as_json:
        whole = {**line, "steps": opened.rows("steps"), "taint_list": opened.rows("taints")}
        typer.echo(json.dumps(whole, indent=1))
        return
    console = _console()
    console.print(f"{line['run']}  {line['experiment']}: {line['state']}")
    console.print(f"trials: {line['trials']}, taints: {line['taints']}")
    console.print(line["path"])
    table = Table()
    for heading in ("trial", "step", "throughput", "SLA", "p99 ms", "max ms", "state", "taints"):
        right = heading in ("throughput", "p99 ms", "max ms")
        table.add_column(heading, justify="right" if right else "left")
    for step in opened.rows("steps"):
        table.add_row(
            step["trial"],
            step["name"],
            number(step["throughput"]),
            {True: "met", False: "missed", None: ""}[step["sla_met"]],
            number(_thousandth(step["response_p99_us"])),
            number(_thousandth(step["response_max_us"])),
            "partial" if step["partial"] else step["state"],
            step["taints"],
        )
    console.print(table)


def _thousandth(value: float | None) -> float | None:
    return None if value is None else value / 1000.0


@results_app.command()
def verify(
    run: RunArgument = "latest", results: ResultsOption = RESULTS, as_json: JsonOption = False
) -> None:
    """Check every checksum of a run; a changed, missing or added file is named.

    Example: fleetmark results verify latest
    """
    directory = store.find(results, run)
    checked, damage = store.verify_sums(directory)
    if as_json:
        listed = [{"path": d.path, "problem": d.problem} for d in damage]
        typer.echo(json.dumps({"run": directory.run_id, "files": checked, "damage": listed}))
    store.refuse_damaged(directory.run_id, checked, damage)
    if not as_json:
        typer.echo(f"{directory.run_id}: {checked} files, all as they were stored")


@results_app.command()
def export(
    run: RunArgument = "latest",
    to: Annotated[Path, typer.Option("--to", help="directory for the CSV files")] = Path("export"),
    to_archive: Annotated[
        Path | None,
        typer.Option("--archive", help="write the whole run as one .tar.gz instead"),
    ] = None,
    results: ResultsOption = RESULTS,
) -> None:
    """Write every table of a run as a CSV file, or the run itself as one archive.

    Example: fleetmark results export latest --archive /tmp/run.tar.gz
    """
    directory = store.find(results, run)
    if to_archive:
        files = archive.export(directory, to_archive)
        typer.echo(f"{directory.run_id}: {files} files and their checksums in {to_archive}")
        return
    written = query.export(directory, to)
    typer.echo(f"{len(written)} tables in {to}: {', '.join(path.stem for path in written)}")


@results_app.command("import")
def bring_in(
    path: Annotated[Path, typer.Argument(help="a run's directory, or an archive of one")],
    results: ResultsOption = RESULTS,
    as_json: JsonOption = False,
) -> None:
    """Take in a run that was made elsewhere, once every checksum of it is right.

    Example: fleetmark results import /tmp/run.tar.gz
    """
    imported = archive.bring_in(path, results)
    run = imported.run
    if as_json:
        whole = {"run": run.run_id, "files": imported.files, "path": str(run.path.resolve())}
        typer.echo(json.dumps(whole))
        return
    typer.echo(f"{run.run_id}: {imported.files} files, all as they were stored, now in {results}")
    typer.echo(f"its report: fleetmark report {run.run_id}")


@results_app.command()
def sql(
    run: RunArgument,
    statement: Annotated[str, typer.Argument(metavar="SQL", help="one query")],
    results: ResultsOption = RESULTS,
    as_json: JsonOption = False,
) -> None:
    """Ask a run with SQL; its tables are trials, steps, series and so on.

    Example: fleetmark results sql latest "select name, config, throughput from steps"
    """
    answer = query.sql(store.find(results, run), statement)
    if as_json:
        rows = [dict(zip(answer.columns, row, strict=True)) for row in answer.rows]
        typer.echo(json.dumps(rows, indent=1, default=str))
        return
    table = Table()
    for column in answer.columns:
        table.add_column(column)
    for row in answer.rows:
        table.add_row(*(MISSING if value is None else escape(str(value)) for value in row))
    _console().print(table)
