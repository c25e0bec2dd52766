"""Look at the hosts of a plan and change nothing, for `check`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fleetmark import contract
from fleetmark.channel import Channel
from fleetmark.conduct import preflight
from fleetmark.conduct.links import HostLink, make_links, on_all
from fleetmark.conduct.trial import read_facts
from fleetmark.contract import Deviation
from fleetmark.errors import FleetmarkError, HostError
from fleetmark.plan import Plan


@dataclass(frozen=True)
class HostLook:
    """One host: its facts, how it deviates from its contract, why it is not fit for the run."""

    facts: dict[str, Any] = field(default_factory=dict)
    deviations: list[Deviation] = field(default_factory=list)
    problems: list[FleetmarkError] = field(default_factory=list)


def look(plan: Plan, channels: Mapping[str, Channel]) -> dict[str, HostLook]:
    """Look at every host that has a channel; one bad host does not stop the others."""
    links = make_links({n: h for n, h in plan.hosts.items() if n in channels}, channels)

    def one(link: HostLink) -> HostLook:
        preflight.check_python(link)
        facts = read_facts(link)
        problems = preflight.host_problems(plan, link.name, facts)
        if facts.get("claim"):
            problems.append(
                HostError(
                    f"this host is held by run {facts['claim']}",
                    host=link.name,
                    next_step=f"wait for that run, or end it: fleetmark stop {facts['claim']}",
                )
            )
        return HostLook(facts, contract.check(plan.contracts[link.name], facts), problems)

    done = on_all(links.values(), one)
    looks = dict(done.values)
    looks.update({name: HostLook(problems=[error]) for name, error in done.errors.items()})
    return looks
