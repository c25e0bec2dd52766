"""The plan: experiment + fleet -> ordered trials and steps. Pure: no network, no clock.

Everything that can be known to be wrong without touching a host is found here.
"""

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fleetmark import builds
from fleetmark.errors import ConfigError
from fleetmark.experiment import (
    Build,
    Contract,
    Experiment,
    Scalar,
    Target,
    TargetRule,
    config_variables,
)
from fleetmark.inventory import Fleet, Host
from fleetmark.tuning import HostTuning, WipeConsent, implied_contract, merged
from fleetmark.workloads import Step

PLAN_VERSION = 1

_STEP_OVERHEAD_SECONDS = 4.0
_TRIAL_OVERHEAD_SECONDS = 12.0
_BASE_BYTES = 400_000_000
"""An empty instance: system tables, redo and undo logs at common settings."""


@dataclass(frozen=True)
class PlannedConfig:
    """A config with everything it extends merged; values not rendered yet."""

    name: str
    variables: dict[str, Scalar | None]


@dataclass(frozen=True)
class Trial:
    """One target x build x config x workload x repeat. `id` is its directory's name."""

    id: str
    target: str
    build: str
    config: str
    workload: str
    repeat: int
    steps: list[Step]

    @property
    def step_names(self) -> list[str]:
        """The steps' directory names: `<nn>-<step>`, counted from 1."""
        return [f"{n:02d}-{step.name}" for n, step in enumerate(self.steps, 1)]


@dataclass(frozen=True)
class Disk:
    """A disk that provisioning is to prepare.

    From the plan alone `contents` is NOT_LOOKED_AT, and `serial` is what the experiment says of
    the disk; provisioning looks first. `fate` is then keep (it is as asked for), format (it is
    empty), wipe (it is not, and consent names it) or refuse, with the reason in `why`.
    """

    host: str
    serial: str
    contents: str
    use: str = ""
    fate: str = ""
    why: str = ""


NOT_LOOKED_AT = "not looked at yet"


@dataclass(frozen=True)
class Plan:
    """All that a run will do. Trials of one target run in order, targets side by side."""

    experiment: str
    description: str
    inventory: str
    hosts: dict[str, Host]
    targets: list[Target]
    builds: list[Build]
    configs: list[PlannedConfig]
    trials: list[Trial]
    contracts: dict[str, Contract]
    disks: list[Disk]
    tuning: dict[str, HostTuning] = field(default_factory=dict)
    confirm_wipe: list[WipeConsent] = field(default_factory=list)

    def target(self, name: str) -> Target:
        """The target of that name."""
        return next(t for t in self.targets if t.name == name)

    def build(self, name: str) -> Build:
        """The build of that name."""
        return next(b for b in self.builds if b.name == name)

    def config(self, name: str) -> PlannedConfig:
        """The config of that name."""
        return next(c for c in self.configs if c.name == name)

    @property
    def expected_seconds(self) -> float:
        """Estimate of the whole run: the slowest target's trials one after another."""
        return max(
            sum(expected_seconds(t) for t in self.trials if t.target == target.name)
            for target in self.targets
        )


def expected_seconds(trial: Trial) -> float:
    """Estimate of one trial, the start and stop of the instance included."""
    steps = sum(step.expected_seconds + _STEP_OVERHEAD_SECONDS for step in trial.steps)
    return _TRIAL_OVERHEAD_SECONDS + steps


def expected_bytes(trial: Trial) -> int:
    """Estimate of the disk space that one trial needs on its database host."""
    return _BASE_BYTES + sum(step.grown_bytes for step in trial.steps)


def engines(trial: Trial) -> set[str]:
    """The storage engines that a trial's steps name, in small letters."""
    named = {load.options.get("engine") for step in trial.steps for load in step.loads}
    named |= {step.settle.engine for step in trial.steps if step.settle is not None}
    return {str(engine).lower() for engine in named if engine}


def make_plan(experiment: Experiment, fleet: Fleet, directory: Path) -> Plan:
    """Expand an experiment over a fleet.

    `directory` is where the experiment's relative paths begin. Raises ConfigError for empty
    groups, unknown hosts, hosts in two targets, and loads that cannot be divided.
    """
    targets = _targets(experiment, fleet)
    trials = _trials(experiment, targets)
    for trial in trials:
        build = next(b for b in experiment.builds if b.name == trial.build)
        builds.check_engines(build, engines(trial), trial.workload)
    hosts = {name: _host(fleet, name) for t in targets for name in (t.db, *t.load)}
    tuning = {name: _tuning(experiment, fleet, name) for name in hosts}
    _check_consent(experiment, fleet)
    return Plan(
        experiment=experiment.name,
        description=experiment.description,
        inventory=fleet.source,
        hosts=hosts,
        targets=targets,
        builds=[builds.locate(build, directory) for build in experiment.builds],
        configs=[
            PlannedConfig(c.name, config_variables(experiment, c.name, directory))
            for c in experiment.configs
        ],
        trials=trials,
        contracts=_contracts(experiment, fleet, tuning),
        disks=_disks(tuning),
        tuning=tuning,
        confirm_wipe=experiment.confirm_wipe,
    )


def _targets(experiment: Experiment, fleet: Fleet) -> list[Target]:
    rule = experiment.targets
    if isinstance(rule, list):
        return list(rule)
    databases = _group(fleet, rule, "db")
    loads = [h for h in _group(fleet, rule, "load") if h not in databases or rule.db == rule.load]
    if not loads:
        raise ConfigError(
            f"every host of group {rule.load!r} is also in {rule.db!r}: no host is left for load",
            next_step="a database host that drives itself is asked for with explicit targets",
        )
    both = sorted(set(databases) & set(_group(fleet, rule, "load")))
    if both:
        raise ConfigError(
            f"host {both[0]!r} is in group {rule.db!r} and in group {rule.load!r}",
            next_step="a host belongs to one target and has one part in it",
        )
    if len(loads) < len(databases):
        raise ConfigError(
            f"{len(databases)} database hosts need as many load hosts, {rule.load!r} has"
            f" {len(loads)}",
            next_step="add load hosts, or list targets in the experiment",
        )
    # Dealt out like cards, so that every target gets the same number, give or take one.
    return [
        Target(name=db, db=db, load=loads[index :: len(databases)])
        for index, db in enumerate(databases)
    ]


def _group(fleet: Fleet, rule: TargetRule, part: str) -> list[str]:
    name: str = getattr(rule, part)
    if name not in fleet.groups:
        raise ConfigError(
            f"the inventory {fleet.source} has no group {name!r} (targets.{part})",
            evidence=f"its groups: {', '.join(sorted(fleet.groups)) or 'none'}",
        )
    if not fleet.groups[name]:
        raise ConfigError(f"group {name!r} of the inventory {fleet.source} is empty")
    return fleet.groups[name]


def _host(fleet: Fleet, name: str) -> Host:
    if name not in fleet.hosts:
        raise ConfigError(
            f"the inventory {fleet.source} has no host {name!r}",
            evidence=f"its hosts: {', '.join(fleet.hosts) or 'none'}",
        )
    return fleet.hosts[name]


def _trials(experiment: Experiment, targets: list[Target]) -> list[Trial]:
    trials = []
    for position, target in enumerate(targets):
        combinations = [
            (build.name, config.name, workload)
            for workload in experiment.workloads
            for build in experiment.builds
            for config in experiment.configs
        ]
        for repeat in range(1, experiment.repeats + 1):
            # Rotated: over targets and repeats each combination takes each place in turn,
            # so that what drifts with time or differs between hosts cancels.
            shift = position + repeat - 1 if experiment.order == "rotated" else 0
            order = [
                combinations[(n + shift) % len(combinations)] for n in range(len(combinations))
            ]
            for build, config, workload in order:
                trials.append(
                    Trial(
                        id=f"{target.name}.{build}.{config}.{workload.label}.r{repeat}",
                        target=target.name,
                        build=build,
                        config=config,
                        workload=workload.label,
                        repeat=repeat,
                        steps=workload.steps(len(target.load)),
                    )
                )
    return trials


def _contracts(
    experiment: Experiment, fleet: Fleet, tuning: dict[str, HostTuning]
) -> dict[str, Contract]:
    """The contract of each host: what its tuning implies, then that of `all`, of its groups,
    and of its own name."""
    _check_names("contract", list(experiment.contract), fleet)
    contracts = {}
    for host, asked in tuning.items():
        written: dict[str, Any] = {}
        for key in _keys_of(fleet, host):
            if key in experiment.contract:
                written.update(experiment.contract[key].model_dump(exclude_unset=True))
        implied = implied_contract(asked, fleet.hosts[host].data_dir)
        if "governor" in written:
            implied.pop("where_there_is_one", None)
        contracts[host] = Contract.model_validate({**implied, **written})
    return contracts


def _tuning(experiment: Experiment, fleet: Fleet, host: str) -> HostTuning:
    """What is asked of a host: of `all`, then of its groups, then of itself, key by key."""
    _check_names("hosts", list(experiment.hosts), fleet)
    parts = [experiment.hosts[key] for key in _keys_of(fleet, host) if key in experiment.hosts]
    try:
        return merged(parts)
    except ValueError as error:
        raise ConfigError(
            f"hosts: what is asked of {host!r} in all does not fit: {error}"
        ) from None


def _keys_of(fleet: Fleet, host: str) -> list[str]:
    """The names under which a host is spoken of, the nearest one last."""
    groups = [g for g, members in fleet.groups.items() if host in members and g != "all"]
    return ["all", *groups, host]


def _check_names(key: str, names: list[str], fleet: Fleet) -> None:
    unknown = set(names) - {"all"} - set(fleet.groups) - set(fleet.hosts)
    if unknown:
        raise ConfigError(
            f"{key}: {sorted(unknown)[0]!r} is neither a group nor a host of {fleet.source}"
        )


def _check_consent(experiment: Experiment, fleet: Fleet) -> None:
    for consent in experiment.confirm_wipe:
        if consent.host not in fleet.hosts:
            raise ConfigError(
                f"confirm_wipe: {consent.host!r} is no host of {fleet.source}",
                next_step="it names one host and one serial, never a group",
            )


def _disks(tuning: dict[str, HostTuning]) -> list[Disk]:
    """Every disk that is to be prepared, as far as the experiment alone says."""
    disks = []
    for host, asked in tuning.items():
        uses = [(f"{each.filesystem} at {each.mount}", each.disks) for each in asked.storage]
        uses += [
            (f"blocks of {each.lba_bytes} bytes", each.disks)
            for each in asked.nvme
            if each.lba_bytes
        ]
        for use, choices in uses:
            for choice in choices:
                disks.append(Disk(host, choice.serial or choice.words, NOT_LOOKED_AT, use))
    return disks


def to_json(plan: Plan) -> dict[str, Any]:
    """The plan as stored in plan.json (docs/formats.md)."""
    return {
        "version": PLAN_VERSION,
        "experiment": plan.experiment,
        "description": plan.description,
        "inventory": plan.inventory,
        "hosts": {name: dataclasses.asdict(host) for name, host in plan.hosts.items()},
        "targets": [t.model_dump() for t in plan.targets],
        "builds": [b.model_dump() for b in plan.builds],
        "configs": [dataclasses.asdict(c) for c in plan.configs],
        "contracts": {h: c.model_dump(exclude_unset=True) for h, c in plan.contracts.items()},
        "disks": [dataclasses.asdict(d) for d in plan.disks],
        "tuning": {h: t.model_dump(exclude_unset=True) for h, t in plan.tuning.items()},
        "expected_seconds": round(plan.expected_seconds, 1),
        "trials": [_trial_json(t) for t in plan.trials],
    }


def _trial_json(trial: Trial) -> dict[str, Any]:
    steps = [
        {"directory": name, **dataclasses.asdict(step)}
        for name, step in zip(trial.step_names, trial.steps, strict=True)
    ]
    return {
        "id": trial.id,
        "target": trial.target,
        "build": trial.build,
        "config": trial.config,
        "workload": trial.workload,
        "repeat": trial.repeat,
        "expected_seconds": round(expected_seconds(trial), 1),
        "expected_bytes": expected_bytes(trial),
        "steps": steps,
    }
