"""The DBMS instance of a trial: start it from a rendered config, stop it, keep its evidence."""

import json
from dataclasses import dataclass
from typing import Any

from fleetmark import builds, gather, plan, store
from fleetmark.conduct.context import (
    DATABASE,
    DBMS_USER,
    RunContext,
    TrialContext,
    database_address,
)
from fleetmark.conduct.links import HostLink
from fleetmark.conduct.render import RenderedConfig
from fleetmark.errors import HostError
from fleetmark.experiment import Build
from fleetmark_agent import job as jobs

_MARGIN_SECONDS = 60.0
CHECK_PREFIX = "check."
"""Begins the name of what is no trial: a config that the server was only asked about."""


@dataclass(frozen=True)
class Wanted:
    """A build, and the storage engines that the load uses on it."""

    build: Build
    engines: set[str]


def describe(
    run: RunContext, link: HostLink, wanted: Wanted, rendered: RenderedConfig, trial: str
) -> jobs.Dbms:
    """The instance to start on a host. Raises HostError when its build is not there."""
    build = wanted.build
    return jobs.Dbms(
        run=run.run.run_id,
        trial=trial,
        flavour=build.flavour,
        data_dir=link.host.data_dir,
        port=link.host.db_port,
        bind_address=_bind_address(run, link),
        config_text=rendered.text,
        expected_variables=rendered.expected,
        basedir=_basedir(link, build),
        engines=sorted(wanted.engines | set(build.engines)),
        user=DBMS_USER,
        database=DATABASE,
    )


def _basedir(link: HostLink, build: Build) -> str:
    """Where a build lies on a host, as the host wrote down when it was made there."""
    if not builds.has_record(build):
        return build.basedir
    path = builds.record_path(build, link.host.base_dir)
    try:
        return str(json.loads(link.channel.read(path))["prefix"])
    except FileNotFoundError:
        raise HostError(
            f"the build {build.name!r} is not on this host",
            host=link.name,
            evidence=f"there is no {path}",
            next_step="make it: fleetmark provision",
        ) from None
    except (ValueError, KeyError, TypeError) as error:
        raise HostError(
            f"what this host wrote down of the build {build.name!r} cannot be read: {error}",
            host=link.name,
            evidence=path,
            next_step="delete that file, then: fleetmark provision",
        ) from None


def _bind_address(run: RunContext, link: HostLink) -> str:
    """The one address that load hosts use; every address when the host does not own that one
    (address translation, or a name)."""
    wanted = database_address(run, link.name)
    own = {"127.0.0.1"}
    for interface in (run.facts.get(link.name) or {}).get("network") or []:
        own |= {str(address).partition("/")[0] for address in interface.get("addresses") or []}
    return wanted if wanted in own else "0.0.0.0"  # noqa: S104


def start(trial: TrialContext) -> dict[str, Any]:
    """Start the instance; its variables go to variables.json. Returns the Instance."""
    run = trial.run
    wanted = Wanted(run.plan.build(trial.trial.build), plan.engines(trial.trial))
    dbms = describe(run, trial.db, wanted, trial.rendered, trial.directory)
    directory = trial.remote(trial.db, "dbms")
    secret = json.dumps({"password": trial.password}).encode()
    trial.db.channel.write(f"{directory}/secret.json", secret)
    trial.db.channel.write(f"{directory}/dbms.json", jobs.encode(dbms).encode())
    instance = trial.db.agent(
        "dbms-start",
        f"{directory}/dbms.json",
        timeout_seconds=dbms.start_timeout_seconds + _MARGIN_SECONDS,
    )
    store.write_json(run.run.trial(trial.directory) / "variables.json", instance["variables"])
    run.ledger.append("dbms_started", trial=trial.directory)
    return instance


def stop(trial: TrialContext) -> dict[str, Any]:
    """Stop the instance cleanly; its data is deleted on the host."""
    timeout = jobs.Dbms.stop_timeout_seconds + _MARGIN_SECONDS
    place = ("--run", trial.run.run.run_id, "--trial", trial.directory)
    return trial.db.agent("dbms-stop", *place, timeout_seconds=timeout)


def collect(trial: TrialContext) -> None:
    """Copy the instance's files: configuration, state, error log."""
    local = trial.run.run.trial(trial.directory) / "dbms"
    gather.fetch_all(trial.db.channel, gather.Source(trial.remote(trial.db, "dbms"), local))
