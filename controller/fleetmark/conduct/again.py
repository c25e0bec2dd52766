"""Come back to a run: its plan from the run directory, its hosts stopped, its files gathered."""

from collections.abc import Mapping
from typing import Any

from fleetmark import experiment, store
from fleetmark.channel import Channel
from fleetmark.conduct import release, stopping
from fleetmark.conduct.links import Gathered, make_links, on_all
from fleetmark.conduct.run import Conduct
from fleetmark.errors import FleetmarkError, ResultError
from fleetmark.experiment import Build, Contract, Target
from fleetmark.inventory import Host
from fleetmark.plan import PLAN_VERSION, Disk, Plan, PlannedConfig, Trial
from fleetmark.workloads import Sla, Step
from fleetmark.workloads.step import SettleSpec
from fleetmark_agent.job import Connection, Load, Stream


def replan(run: store.RunDirectory) -> Conduct:
    """What a run set out to do, read from its own directory, so that nothing that was edited
    since then changes it. Raises ResultError."""
    document = store.read_json(run.plan_json)
    if document.get("version") != PLAN_VERSION:
        raise ResultError(f"{run.plan_json} has version {document.get('version')!r}")
    try:
        plan = _plan(document)
    except (KeyError, TypeError, ValueError) as error:
        raise ResultError(f"{run.plan_json} cannot be read: {error}") from None
    return Conduct(plan, experiment.load(run.experiment_yaml).experiment.policy, run)


def _plan(document: dict[str, Any]) -> Plan:
    return Plan(
        experiment=document["experiment"],
        description=document["description"],
        inventory=document["inventory"],
        hosts={name: Host(**host) for name, host in document["hosts"].items()},
        targets=[Target.model_validate(t) for t in document["targets"]],
        builds=[Build.model_validate(b) for b in document["builds"]],
        configs=[PlannedConfig(**c) for c in document["configs"]],
        trials=[_trial(t) for t in document["trials"]],
        contracts={h: Contract.model_validate(c) for h, c in document["contracts"].items()},
        disks=[Disk(**d) for d in document["disks"]],
    )


def _trial(document: dict[str, Any]) -> Trial:
    names = ("id", "target", "build", "config", "workload", "repeat")
    return Trial(
        **{name: document[name] for name in names}, steps=[_step(s) for s in document["steps"]]
    )


def _step(document: dict[str, Any]) -> Step:
    values = {k: v for k, v in document.items() if k != "directory"}
    values["loads"] = [_load(load) for load in values["loads"]]
    if values["settle"] is not None:
        values["settle"] = SettleSpec(**values["settle"])
    if values["sla"] is not None:
        values["sla"] = Sla(**values["sla"])
    return Step(**values)


def _load(document: dict[str, Any]) -> Load:
    values = dict(document)
    values["connection"] = Connection(**values["connection"])
    values["streams"] = [Stream(**stream) for stream in values["streams"]]
    return Load(**values)


def stop_run(what: Conduct, channels: Mapping[str, Channel]) -> Gathered[list[str]]:
    """End a run: its conductor, then everything on the hosts that can be reached; free them.

    The steps that were stopped by host, and an error for each host that was not reached. Files
    stay on the hosts for `gather_run`.
    """
    stopping.end_conductor(what.run)
    hosts = {name: host for name, host in what.plan.hosts.items() if name in channels}
    return release.stop_hosts(make_links(hosts, channels).values(), what.run)


def gather_run(
    what: Conduct, channels: Mapping[str, Channel]
) -> tuple[dict[str, list[str]], dict[str, FleetmarkError]]:
    """Copy what a run has left on its hosts; checksums are written anew.

    What was copied and what went wrong, by host. Files on a host are deleted once all of them
    are here, but not while run.json says that the run is going on.
    """
    hosts = {name: host for name, host in what.plan.hosts.items() if name in channels}
    links = make_links(hosts, channels)
    done = on_all(links.values(), lambda link: release.gather_host(link, what.run))
    errors = dict(done.errors)
    copied = {}
    for name, (directories, problem) in done.values.items():
        copied[name] = directories
        if problem is not None:
            errors[name] = problem
    if store.read_json(what.run.run_json)["state"] != "running":
        whole = [link for name, link in links.items() if name not in errors]
        cleaned = on_all(whole, lambda link: link.agent("clean", "--run", what.run.run_id))
        errors.update(cleaned.errors)
    store.write_sums(what.run)
    return copied, errors
