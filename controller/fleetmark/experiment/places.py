"""Where in the file a mistake stands, and what was meant."""

import difflib
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

Location = tuple[int | str, ...]
"""Keys and positions from the top of the file."""


def nearest(word: str, known: list[str]) -> str:
    """`; did you mean …?` for the known word that is like `word`, else nothing."""
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else ""


def yaml_problem(error: yaml.YAMLError) -> str:
    """The line and the words of a YAML error."""
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error)
    return f"line {mark.line + 1}: {problem}" if mark else str(problem)


def line_of(node: yaml.Node | None, location: Location) -> int:
    """The line of the deepest part of `location` that stands in the file."""
    line = node.start_mark.line + 1 if node else 1
    for part in location:
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                if key.value == part:
                    line, node = key.start_mark.line + 1, value
                    break
        elif (
            isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value)
        ):
            node = node.value[part]
            line = node.start_mark.line + 1
    return line


def _known_keys(location: Location, root: type[BaseModel]) -> list[str]:
    """The keys that are allowed where an unknown key stands."""
    model: type[BaseModel] | None = root
    for part in location[:-1]:
        if model is not None and part in model.model_fields:
            leaves = _leaves(model.model_fields[str(part)].annotation)
            model = next((a for a in leaves if issubclass(a, BaseModel)), None)
    return list(model.model_fields) if model else []


def _leaves(annotation: Any) -> list[type]:
    arguments = getattr(annotation, "__args__", None)
    if arguments:
        return [leaf for argument in arguments for leaf in _leaves(argument)]
    return [annotation] if isinstance(annotation, type) else []


def explain(
    path: Path,
    node: yaml.Node | None,
    error: ValidationError,
    prefix: Location,
    root: type[BaseModel],
) -> list[str]:
    """One message a problem, each with file, line and, for a key, the nearest known one."""
    messages = []
    for problem in error.errors():
        location = (*prefix, *problem["loc"])
        line = line_of(node, location)
        where = ".".join(str(p) for p in location) or "experiment"
        if problem["type"] == "extra_forbidden":
            key = str(location[-1])
            text = f"unknown key {key!r}{nearest(key, _known_keys(problem['loc'], root))}"
        else:
            text = f"{where}: {problem['msg'].removeprefix('Value error, ')}"
        messages.append(f"{path}:{line}: {text}")
    return messages
