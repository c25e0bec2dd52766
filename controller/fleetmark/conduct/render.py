"""A config's variables over the facts of a host -> the text of a my.cnf. Pure."""

from dataclasses import dataclass
from typing import Any

import jinja2
from jinja2.sandbox import SandboxedEnvironment

from fleetmark.errors import ConfigError
from fleetmark.experiment import Scalar
from fleetmark.plan import PlannedConfig


@dataclass(frozen=True)
class RenderedConfig:
    """The user's part of a my.cnf, and the values to expect in effect."""

    text: str
    expected: dict[str, str]


def render(config: PlannedConfig, facts: dict[str, Any]) -> RenderedConfig:
    """Fill the facts into a config: `{{ (memory_bytes * 0.5) | int }}`.

    True and False become ON and OFF; a value of null becomes a bare option, which has no value
    to expect. Raises ConfigError that names config and variable.
    """
    environment = SandboxedEnvironment(undefined=jinja2.StrictUndefined)
    lines = []
    expected = {}
    for name, value in config.variables.items():
        if value is None:
            lines.append(name)
            continue
        text = _text(environment, config.name, name, value, facts)
        lines.append(f"{name} = {text}")
        expected[name] = text
    return RenderedConfig("".join(f"{line}\n" for line in lines), expected)


def _text(
    environment: SandboxedEnvironment,
    config: str,
    name: str,
    value: Scalar,
    facts: dict[str, Any],
) -> str:
    if isinstance(value, bool):
        return "ON" if value else "OFF"
    text = str(value)
    if "{{" in text or "{%" in text:
        try:
            text = environment.from_string(text).render(facts).strip()
        except (jinja2.TemplateError, ArithmeticError, TypeError, ValueError) as error:
            raise ConfigError(
                f"config {config!r}: {name} cannot be rendered: {error}",
                evidence=f"{name} = {value}",
                next_step=f"facts by name: {', '.join(sorted(facts))}",
            ) from None
    if "\n" in text:
        raise ConfigError(f"config {config!r}: the value of {name} has more than one line")
    return text
