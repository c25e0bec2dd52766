"""The variables of a config: what it extends, its my.cnf file, what it sets."""

import re
from pathlib import Path

from fleetmark.errors import ConfigError
from fleetmark.experiment.model import Experiment, Scalar


def config_variables(
    experiment: Experiment, name: str, directory: Path
) -> dict[str, Scalar | None]:
    """The variables of a config with everything it extends, later settings winning.

    Keys are normalised to lower case with underscores, as the servers do. Raises ConfigError
    when a file cannot be read.
    """
    by_name = {c.name: c for c in experiment.configs}
    config = by_name[name]
    merged: dict[str, Scalar | None] = {}
    if config.extends:
        merged.update(config_variables(experiment, config.extends, directory))
    if config.file:
        merged.update(_read_cnf(directory / config.file))
    merged.update({_normal(key): value for key, value in config.set.items()})
    return merged


def _normal(variable: str) -> str:
    return variable.strip().lower().replace("-", "_")


def _read_cnf(path: Path) -> dict[str, Scalar | None]:
    """The server sections of a my.cnf."""
    try:
        lines = path.read_text().splitlines()
    except OSError as error:
        raise ConfigError(f"cannot read the config file {path}: {error.strerror}") from None
    variables: dict[str, Scalar | None] = {}
    section = ""
    for number, raw in enumerate(lines, 1):
        line = raw.strip()
        if not line or line[0] in "#;":
            continue
        if header := re.fullmatch(r"\[([^]]+)\]", line):
            section = header[1].strip().lower()
        elif line.startswith("!"):
            raise ConfigError(f"{path}:{number}: !include is not read; name the file itself")
        elif section.startswith(("mysqld", "mariadb", "server")):
            key, equals, value = line.partition("=")
            variables[_normal(key)] = value.strip().strip("'\"") if equals else None
    return variables
