"""Take hosts for a run and give them back; end what is left of a run on its hosts."""

import getpass
import socket
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleetmark import gather, store
from fleetmark.conduct.instance import CHECK_PREFIX
from fleetmark.conduct.links import Gathered, HostLink, on_all
from fleetmark.conduct.step import collect, fetch_rest
from fleetmark.errors import FleetmarkError, HostError, ResultError

CLEAN_TIMEOUT_SECONDS = 660.0
"""Above the time that a large instance may take to stop."""


@dataclass(frozen=True)
class HostEnd:
    """What became of one host at the end of a run: an error, or nothing to say."""

    host: str
    error: FleetmarkError | None
    gathered: list[str]


def claim(links: Iterable[HostLink], run_id: str) -> Gathered[str]:
    """Take every host for this run; those that were taken, and an error for each that was not."""
    by = f"{getpass.getuser()}@{socket.gethostname()}"

    def take(link: HostLink) -> str:
        link.agent("claim", run_id, "--by", by)
        return link.name

    return on_all(links, take)


def take_up(links: Iterable[HostLink], run: store.RunDirectory) -> Gathered[None]:
    """End and gather what an earlier conductor of the same run has left on its hosts."""

    def one(link: HostLink) -> None:
        link.agent(
            "clean", "--run", run.run_id, "--keep-files", timeout_seconds=CLEAN_TIMEOUT_SECONDS
        )
        # What cannot be gathered now is tried again when the host is let go.
        gather_host(link, run)

    return on_all(links, one)


def let_go(links: Iterable[HostLink], run: store.RunDirectory) -> list[HostEnd]:
    """End what still runs, gather what is not here yet, and free every host.

    The files of a run stay on a host until all of them were gathered from it.
    """
    chosen = list(links)
    done = on_all(chosen, lambda link: _let_go_one(link, run))
    return [
        done.values.get(link.name) or HostEnd(link.name, done.errors[link.name], [])
        for link in chosen
    ]


def _let_go_one(link: HostLink, run: store.RunDirectory) -> HostEnd:
    link.agent("clean", "--run", run.run_id, "--keep-files", timeout_seconds=CLEAN_TIMEOUT_SECONDS)
    gathered, problem = gather_host(link, run)
    if problem is None:
        link.agent("clean", "--run", run.run_id)
    return HostEnd(link.name, problem, gathered)


def gather_host(link: HostLink, run: store.RunDirectory) -> tuple[list[str], FleetmarkError | None]:
    """Copy what a host still holds of a run and is not whole here.

    Returns the directories that were copied, as `<trial>/<step>`, and the first problem.
    """
    status = link.agent("status", "--run", run.run_id)
    gathered: list[str] = []
    problem: FleetmarkError | None = None
    top = f"{link.host.base_dir}/runs/{run.run_id}"
    for name, local, dead in _places(link, run, status):
        if gather.is_whole(local):
            continue
        source = gather.Source(f"{top}/{name}", local)
        try:
            if dead and not gather.has_manifest(link.channel, source):
                fetch_rest(link, source)
            else:
                collect(link, source)
            gathered.append(name)
        except (HostError, ResultError) as error:
            problem = problem or error
    return gathered, problem


def _places(
    link: HostLink, run: store.RunDirectory, status: dict[str, Any]
) -> Iterator[tuple[str, Path, bool]]:
    """Every directory of a run on a host, its place here, and whether its writer is dead: then
    it will never have a manifest, and what is there is all."""
    for job in status["jobs"]:
        local = run.step(job["trial"], job["step"], link.name)
        yield f"{job['trial']}/{job['step']}", local, job["state"] in ("lost", "new")
    for one in status["dbms"]:
        if not one["trial"].startswith(CHECK_PREFIX):
            yield f"{one['trial']}/dbms", run.trial(one["trial"]) / "dbms", not one["running"]


def stop_hosts(links: Iterable[HostLink], run: store.RunDirectory) -> Gathered[list[str]]:
    """End everything of a run on its hosts and free them; files stay there to be gathered.

    The names of the steps that were stopped, by host.
    """

    def end(link: HostLink) -> list[str]:
        answer = link.agent(
            "clean", "--run", run.run_id, "--keep-files", timeout_seconds=CLEAN_TIMEOUT_SECONDS
        )
        return [str(step) for step in answer["stopped"]]

    return on_all(links, end)
