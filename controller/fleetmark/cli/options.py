"""Arguments and options that many verbs take."""

from pathlib import Path
from typing import Annotated

import typer

RESULTS = Path("results")

RunArgument = Annotated[
    str, typer.Argument(help="a run: id, beginning of an id, directory, or 'latest'")
]
ResultsOption = Annotated[Path, typer.Option("--results", help="where the runs are")]
