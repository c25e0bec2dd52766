"""House rules of the roles that no linter checks."""

from pathlib import Path
from typing import Any

import pytest
import yaml

ROLES = sorted((Path(__file__).parents[2] / "roles").iterdir())


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_argument_specs_and_defaults_say_the_same(role: Path) -> None:
    options = read(role / "meta" / "argument_specs.yml")["argument_specs"]["main"]["options"]
    defaults = read(role / "defaults" / "main.yml") or {}
    assert list(options) == list(defaults)
    for name, option in options.items():
        # A template cannot stand in a specification, and what is required has no default.
        if not (option.get("required") or "{{" in str(defaults[name])):
            assert option.get("default") == defaults[name], name
    assert all(option["description"] for option in options.values())
    assert all(name.startswith(f"{role.name}_") for name in defaults)


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_no_role_uses_a_shell(role: Path) -> None:
    for path in sorted(role.rglob("*.yml")):
        assert "ansible.builtin.shell" not in path.read_text()
