"""Look at every host before anything starts; all problems are shown together."""

import json
from dataclasses import dataclass
from typing import Any

import fleetmark
from fleetmark.conduct import instance
from fleetmark.conduct.context import RunContext
from fleetmark.conduct.links import HostLink, on_all
from fleetmark.conduct.render import render
from fleetmark.conduct.trial import read_facts
from fleetmark.errors import ConfigError, FleetmarkError, HostError, WorkloadError
from fleetmark.experiment import Target
from fleetmark.plan import Plan, engines, expected_bytes
from fleetmark_agent import job as jobs

OLDEST_PYTHON = (3, 9)
SPACE_MARGIN = 1.2
_LOAD_HOST_BYTES = 512 * 1024 * 1024
"""Telemetry and journals of a run, and the agent's own lower limit."""


@dataclass(frozen=True)
class Inspection:
    """What the hosts said: facts by host, and every problem found."""

    facts: dict[str, dict[str, Any]]
    problems: list[FleetmarkError]


def check_python(link: HostLink) -> None:
    """A Python new enough for the agent, asked in words that any Python understands."""
    program = "import sys; print('%d %d' % sys.version_info[:2])"
    done = link.channel.run([link.host.python, "-c", program], timeout_seconds=30.0)
    words = (done.stderr or done.stdout).decode(errors="replace").strip()
    hint = "install it, or name another: ansible_python_interpreter in the inventory"
    if done.returncode:
        raise HostError(f"{link.host.python} does not run", evidence=words[-300:], next_step=hint)
    try:
        major, minor = (int(part) for part in done.stdout.split())
    except ValueError:
        raise HostError(f"{link.host.python} is no Python", evidence=words[-300:]) from None
    if (major, minor) < OLDEST_PYTHON:
        raise HostError(
            f"{link.host.python} is Python {major}.{minor}; the agent needs"
            f" {OLDEST_PYTHON[0]}.{OLDEST_PYTHON[1]} or later",
            next_step=hint,
        )


def inspect(run: RunContext) -> Inspection:
    """Facts of every host, and what of them does not fit the plan. Changes nothing but files
    of this run in the agent's directory."""
    gathered = on_all(run.links.values(), read_facts)
    problems = list(gathered.errors.values())
    for name, facts in gathered.values.items():
        problems += host_problems(run.plan, name, facts)
    run.facts.update(gathered.values)
    for target in run.plan.targets:
        if target.db in gathered.values:
            problems += _config_problems(run, target)
    return Inspection(gathered.values, problems)


def host_problems(plan: Plan, name: str, facts: dict[str, Any]) -> list[FleetmarkError]:
    """What of a host's facts does not fit its part in the plan."""
    problems: list[FleetmarkError] = []
    if facts["agent"] != fleetmark.__version__:
        problems.append(
            HostError(
                f"the agent there is version {facts['agent']}, this is {fleetmark.__version__}",
                host=name,
                next_step="deploy it again: fleetmark provision",
            )
        )
    for target in plan.targets:
        if name == target.db:
            problems += _database_problems(plan, target, facts)
        if name in target.load:
            problems += _load_problems(name, facts)
    return problems


def _database_problems(plan: Plan, target: Target, facts: dict[str, Any]) -> list[FleetmarkError]:
    problems: list[FleetmarkError] = []
    host = plan.hosts[target.db]
    if host.db_port in (facts.get("listening_ports") or []):
        problems.append(
            HostError(
                f"port {host.db_port} is in use there already",
                host=host.name,
                next_step="stop what listens on it, or set fleetmark_db_port in the inventory",
            )
        )
    trials = [t for t in plan.trials if t.target == target.name]
    needed = max((expected_bytes(t) for t in trials), default=0) * SPACE_MARGIN
    problems += _space_problems(host.name, host.data_dir, facts.get("data"), needed)
    return problems


def _load_problems(name: str, facts: dict[str, Any]) -> list[FleetmarkError]:
    problems: list[FleetmarkError] = []
    if not (facts.get("tools") or {}).get("sysbench"):
        problems.append(
            HostError(
                "there is no sysbench, which makes the load",
                host=name,
                next_step="install it: fleetmark provision, or the distribution's package",
            )
        )
    base = facts.get("base") or {}
    problems += _space_problems(name, str(base.get("path")), base, _LOAD_HOST_BYTES)
    return problems


def _space_problems(
    name: str, path: str, place: dict[str, Any] | None, needed_bytes: float
) -> list[FleetmarkError]:
    free = (place or {}).get("free_bytes")
    if free is None:
        return [HostError(f"the free space of {path} cannot be read", host=name)]
    if free >= needed_bytes:
        return []
    return [
        HostError(
            f"{path} has {free / 1e9:.1f} GB free, about {needed_bytes / 1e9:.1f} GB are needed",
            host=name,
            next_step="free some space, set fleetmark_data_dir, or make the workload smaller",
        )
    ]


def _config_problems(run: RunContext, target: Target) -> list[FleetmarkError]:
    """Ask the server itself about every build x config that the target will start."""
    problems: list[FleetmarkError] = []
    wanted: dict[tuple[str, str], set[str]] = {}
    for trial in run.plan.trials:
        if trial.target == target.name:
            wanted.setdefault((trial.build, trial.config), set()).update(engines(trial))
    for (build, config), used in wanted.items():
        try:
            what = instance.Wanted(run.plan.build(build), used)
            _check_config(run, run.links[target.db], what, config)
        except FleetmarkError as error:
            problems.append(error)
    return problems


def _check_config(run: RunContext, link: HostLink, wanted: instance.Wanted, config: str) -> None:
    build = wanted.build.name
    rendered = render(run.plan.config(config), run.facts[link.name])
    name = f"{instance.CHECK_PREFIX}{build}.{config}"
    dbms = instance.describe(run, link, wanted, rendered, name)
    path = f"{link.host.base_dir}/runs/{run.run.run_id}/{name}/dbms/dbms.json"
    link.channel.write(path, jobs.encode(dbms).encode())
    try:
        link.agent("dbms-check", path)
    except WorkloadError as error:
        raise ConfigError(
            f"config {config!r} on build {build!r}: {error.message}",
            host=link.name,
            evidence=error.evidence or json.dumps(rendered.expected),
            next_step=error.next_step or "correct the config in the experiment",
        ) from None


def combined(problems: list[FleetmarkError]) -> FleetmarkError:
    """One error for all problems, of the class of the one that is to be mended first: what
    the user wrote before what the hosts are."""
    if len(problems) == 1:
        return problems[0]
    worst = next((p for p in problems if isinstance(p, ConfigError)), problems[0])
    lines = []
    for problem in problems:
        lines.append(str(problem))
        lines += [f"  {line}" for line in problem.evidence.splitlines()]
        if problem.next_step:
            lines.append(f"  next: {problem.next_step}")
    return type(worst)(
        f"{len(problems)} problems were found; nothing was started", evidence="\n".join(lines)
    )
