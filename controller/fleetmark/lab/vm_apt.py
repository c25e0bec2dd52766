"""The machine's own release and package sources, as its apt knows them. Nothing is kept."""

import platform
import subprocess
from dataclasses import dataclass

from fleetmark.errors import InfrastructureError

_FORMAT = "$(SITE) $(RELEASE) $(COMPONENT) $(ORIGIN)"
_DISTRIBUTIONS = ("Debian", "Ubuntu")


@dataclass(frozen=True)
class Release:
    """A release: `sources` in the words of sources.list, `options` of apt about the way there."""

    distribution: str
    codename: str
    sources: str
    options: tuple[str, ...]


def release() -> Release:
    """This machine's. Raises InfrastructureError where there is no Debian or Ubuntu on x86-64."""
    if platform.machine() != "x86_64":
        raise InfrastructureError(
            f"vm labs are made on x86-64 only, this machine is {platform.machine()}",
            next_step="use --kind light or local",
        )
    try:
        codename = platform.freedesktop_os_release().get("VERSION_CODENAME", "")
        targets = _ask(["apt-get", "indextargets", "--format", _FORMAT, "Created-By: Packages"])
        config = _ask(["apt-config", "dump"])
    except OSError as error:
        raise _no_sources(str(error)) from None
    found: dict[tuple[str, str], list[str]] = {}
    distribution = ""
    for line in targets.splitlines():
        site, suite, component, origin = [*line.split(" ", 3), "", ""][:4]
        # What others add to a machine (vendors' repositories) is no part of the release.
        if origin in _DISTRIBUTIONS and suite.startswith(codename) and codename:
            distribution = origin
            components = found.setdefault((site, suite), [])
            if component not in components:
                components.append(component)
    if not found:
        raise _no_sources(targets)
    sources = [f"deb {site} {suite} {' '.join(parts)}" for (site, suite), parts in found.items()]
    options = [line for line in config.splitlines() if line.startswith("Acquire::http")]
    return Release(distribution, codename, "\n".join(sources) + "\n", tuple(options))


def _ask(argv: list[str]) -> str:
    return subprocess.run(argv, capture_output=True, text=True, check=False).stdout


def _no_sources(evidence: str) -> InfrastructureError:
    return InfrastructureError(
        "this machine's apt knows no package source of its own release",
        evidence=evidence[-1000:],
        next_step="vm labs need Debian or Ubuntu with a package index: try apt-get update",
    )
