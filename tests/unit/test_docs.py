"""The pages of docs/ against the code: nothing undocumented, no default that is another one."""

import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from fleetmark import errors, experiment, tuning, workloads
from fleetmark.workloads.insert_benchmark import PROFILES, InsertBenchmark

DOCS = Path(__file__).parents[2] / "docs"
MODELS: dict[str, type[BaseModel]] = {
    "experiment": experiment.Experiment,
    "targets": experiment.TargetRule,
    "target": experiment.Target,
    "builds": experiment.Build,
    "configs": experiment.Config,
    "hosts": tuning.HostTuning,
    "cpu": tuning.CpuTuning,
    "disks": tuning.DiskChoice,
    "nvme": tuning.DiskTuning,
    "storage": tuning.Storage,
    "limits": tuning.Limits,
    "time_sync": tuning.TimeSync,
    "monitoring": tuning.Monitoring,
    "confirm_wipe": tuning.WipeConsent,
    "contract": experiment.Contract,
    "policy": experiment.Policy,
    "metrics": experiment.Metrics,
    **workloads.KINDS,
}


def section(page: str, heading: str) -> str:
    """The text below a heading, up to the next heading of any level."""
    parts = re.split(r"(?m)^#+ (.+)$", page)
    return parts[parts.index(heading) + 1]


def rows(text: str) -> dict[str, list[str]]:
    """The table rows whose first cell is a key: key -> the other cells."""
    found = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if line.startswith("| `") and len(cells) == 4:
            found[cells[0].strip("`")] = cells[1:]
    return found


def default_of(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value: Any = field.get_default(call_default_factory=True)
    if isinstance(value, BaseModel):
        return "see"
    if value is None or value in ("", [], {}):
        return "none"
    if isinstance(value, list):
        return ", ".join(str(item) for item in value)
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


@pytest.mark.parametrize("heading", list(MODELS))
def test_every_key_of_an_experiment_is_documented_with_its_default(heading: str) -> None:
    documented = rows(section((DOCS / "experiments.md").read_text(), heading))
    fields = MODELS[heading].model_fields
    assert list(documented) == list(fields)
    for name, (meaning, _, default) in documented.items():
        assert meaning, name
        from_profile = all(name in profile for profile in PROFILES.values())
        expected = "from the profile" if from_profile else default_of(fields[name])
        assert default == expected or (expected == "see" and default.startswith("see [")), name


def test_the_profiles_are_documented() -> None:
    text = section((DOCS / "experiments.md").read_text(), "Profiles")
    for name in PROFILES:
        made = InsertBenchmark.model_validate({"profile": name})
        row = next(line for line in text.splitlines() if line.startswith(f"| `{name}`"))
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        sizes = [made.clients, made.rows_i0, made.rows_i1, made.rows_i2]
        assert cells[1:5] == [f"{size:,}" for size in sizes]
        assert cells[5].startswith(f"{made.query_seconds:g} s")


def test_every_error_class_and_exit_code_is_in_troubleshooting() -> None:
    page = (DOCS / "troubleshooting.md").read_text()
    kinds = [
        errors.ConfigError,
        errors.InfrastructureError,
        errors.HostError,
        errors.WorkloadError,
        errors.ResultError,
        errors.Interrupted,
    ]
    for kind in kinds:
        assert re.search(rf"(?m)^\| {kind.exit_code} \|.*`{kind.__name__}`", page), kind


def test_every_taint_is_in_troubleshooting() -> None:
    formats = (DOCS / "formats.md").read_text()
    listed = re.search(r"Taint kinds: (.+?)\.\n", formats, re.DOTALL)
    assert listed is not None
    kinds = re.findall(r"`(\w+)`", listed[1])
    assert len(kinds) > 5
    page = (DOCS / "troubleshooting.md").read_text()
    assert [kind for kind in kinds if f"| `{kind}` |" not in page] == []


def test_links_between_the_pages_lead_somewhere() -> None:
    for page in (*DOCS.rglob("*.md"), DOCS.parent / "README.md"):
        for link in re.findall(r"(?<!!)\[[^]]*\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / link).exists(), f"{page}: {link}"
