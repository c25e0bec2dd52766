"""Free hosts from a run that this controller does not hold: its directory is elsewhere or gone."""

from collections.abc import Mapping
from typing import Any

from fleetmark.channel import Channel
from fleetmark.conduct.links import Gathered, HostLink, make_links, on_all
from fleetmark.conduct.release import CLEAN_TIMEOUT_SECONDS
from fleetmark.inventory import Host


def discard_run(
    run_id: str, hosts: Mapping[str, Host], channels: Mapping[str, Channel]
) -> Gathered[dict[str, Any]]:
    """End what runs of it, delete its files, free the claim: the agent's answer by host.

    What was not gathered is lost. A host that holds nothing of the run answers with nothing.
    """
    reachable = {name: host for name, host in hosts.items() if name in channels}
    links = make_links(reachable, channels)

    def clean(link: HostLink) -> dict[str, Any]:
        return link.agent("clean", "--run", run_id, timeout_seconds=CLEAN_TIMEOUT_SECONDS)

    try:
        return on_all(links.values(), clean)
    finally:
        for link in links.values():
            link.close()
