"""run.json: what the run is, by what it was made, and its state."""

import platform
import socket
from datetime import UTC, datetime
from importlib import metadata
from typing import Any

import fleetmark
from fleetmark import store

_PACKAGES = ("ansible-core", "ansible-runner", "fabric", "paramiko", "pyarrow", "pandas", "duckdb")
_ENDED = ("complete", "partial", "interrupted", "failed")


def begin(run: store.RunDirectory, experiment: str, command: list[str]) -> None:
    """Write the first run.json: state `planned`."""
    store.write_json(
        run.run_json,
        {
            "version": store.FORMAT_VERSION,
            "run": run.run_id,
            "state": "planned",
            "experiment": experiment,
            "started": _now(),
            "ended": None,
            "command": command,
            "fleetmark": fleetmark.__version__,
            "python": platform.python_version(),
            "packages": {name: metadata.version(name) for name in _PACKAGES},
            "controller": socket.gethostname(),
            "partial_because": [],
        },
    )


def set_state(
    run: store.RunDirectory, state: str, partial_because: list[str] | None = None
) -> None:
    """Move the run to another state. Raises ResultError when run.json is missing or damaged."""
    document: dict[str, Any] = store.read_json(run.run_json)
    document["state"] = state
    document["ended"] = _now() if state in _ENDED else None
    document["partial_because"] = partial_because or []
    store.write_json(run.run_json, document)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
