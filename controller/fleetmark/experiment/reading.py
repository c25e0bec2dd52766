"""Read an experiment file; every mistake in it is told at once, each with its line."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from fleetmark import workloads
from fleetmark.errors import ConfigError
from fleetmark.experiment.model import Experiment
from fleetmark.experiment.places import explain, line_of, yaml_problem

_PLACEHOLDER = workloads.parse("insert_benchmark")


@dataclass(frozen=True)
class LoadedExperiment:
    """An experiment with the text and the place it came from."""

    experiment: Experiment
    path: Path
    text: str


def load(path: Path, profile: str = "") -> LoadedExperiment:
    """Read and check an experiment file.

    `profile` overrides the profile of every workload that has one. Raises ConfigError with
    file, line and nearest key.
    """
    try:
        text = path.read_text()
    except OSError as error:
        raise ConfigError(
            f"cannot read {path}: {error.strerror}", next_step="write one: fleetmark init"
        ) from None
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        data = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: {yaml_problem(error)}") from None
    if not isinstance(data, dict):
        raise ConfigError(f"{path}: an experiment is a mapping, see fleetmark init")
    if profile:
        data = _with_profile(data, profile)
    data, messages = _read_workloads(path, node, data)
    try:
        experiment = Experiment.model_validate(data)
    except ValidationError as error:
        messages += explain(path, node, error, (), Experiment)
    if messages:
        raise ConfigError("\n".join(dict.fromkeys(messages)))
    return LoadedExperiment(experiment, path, text)


def _read_workloads(
    path: Path, node: yaml.Node | None, data: dict[str, Any]
) -> tuple[dict[str, Any], list[str]]:
    """Replace each entry of `workloads` by its model; the problems found on the way."""
    items = data.get("workloads")
    if not isinstance(items, list):
        return data, []
    parsed: list[Any] = []
    messages: list[str] = []
    for index, item in enumerate(items):
        try:
            parsed.append(workloads.parse(item))
        except workloads.UnknownWorkload as error:
            messages.append(f"{path}:{line_of(node, ('workloads', index))}: {error}")
        except ValidationError as error:
            kind = next(iter(item)) if isinstance(item, dict) else item
            prefix = ("workloads", index, kind)
            messages += explain(path, node, error, prefix, workloads.KINDS[kind])
    # With a problem above, the rest of the file is still checked, without the workloads.
    return {**data, "workloads": parsed or [_PLACEHOLDER]}, messages


def _with_profile(data: dict[str, Any], profile: str) -> dict[str, Any]:
    changed = []
    for item in data.get("workloads") or []:
        if isinstance(item, dict) and len(item) == 1:
            ((kind, parameters),) = item.items()
            changed.append({kind: {**(parameters or {}), "profile": profile}})
        else:
            changed.append({item: {"profile": profile}} if isinstance(item, str) else item)
    return {**data, "workloads": changed}
