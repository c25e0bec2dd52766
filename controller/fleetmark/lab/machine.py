"""What labs hold on this machine: network namespaces, links, and the programs that make them."""

import hashlib
import ipaddress
import json
import os
import subprocess
from pathlib import Path
from typing import Any

from fleetmark import processes
from fleetmark.errors import InfrastructureError
from fleetmark.lab import state
from fleetmark.store import write_json

NETNS_DIR = Path("/run/netns")
_SUBNETS = ipaddress.ip_network("10.213.0.0/16")
_ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}


def prefix(lab: str) -> str:
    """What the names of the lab's namespaces and interfaces begin with (8 characters)."""
    return f"fm{hashlib.sha256(lab.encode()).hexdigest()[:6]}"


def free_subnet() -> ipaddress.IPv4Network:
    """A /24 that neither this machine nor another lab uses."""
    used = _used_networks()
    for subnet in _SUBNETS.subnets(new_prefix=24):
        if not any(subnet.overlaps(network) for network in used):
            return ipaddress.IPv4Network(subnet)
    raise InfrastructureError(f"no /24 of {_SUBNETS} is free on this machine")


def prepare(*shared: Path) -> None:
    """Make the directories that labs share, after writing down that it was we who made them."""
    record = state.root() / "made.json"
    made = set(json.loads(record.read_text())) if record.is_file() else set()
    made |= {str(p) for p in (*shared, NETNS_DIR) if not p.exists()}
    write_json(record, sorted(made))
    for path in shared:
        path.mkdir(mode=0o700, exist_ok=True)


def destroy(name: str) -> list[str]:
    """Remove all of a lab that this machine holds outside its directory; what was removed."""
    removed = []
    for namespace in namespaces(name):
        count = processes.end_all(lambda n=namespace: pids(n), f"namespace {namespace}")  # type: ignore[misc]
        if count:
            removed.append(f"{count} processes of {namespace}")
        # Deleting a namespace frees its links a moment later; a link goes at once, with its peer.
        ip("netns", "delete", namespace)
        removed.append(f"namespace {namespace}")
    for link in _links(name):
        if ip("link", "delete", link, check=False).returncode == 0:
            removed.append(f"link {link}")
    return removed


def clear() -> None:
    """After the last lab: remove what labs share on this machine, if labs made it."""
    made = state.root() / "made.json"
    if not made.is_file():
        return
    paths = [Path(path) for path in json.loads(made.read_text())]
    if NETNS_DIR in paths and not any(NETNS_DIR.iterdir()):
        call(["umount", str(NETNS_DIR)], check=False)
    for path in paths:
        # Not empty means that somebody else has begun to use it.
        if path.is_dir() and not any(path.iterdir()) and not path.is_mount():
            path.rmdir()
    made.unlink()


def namespaces(name: str) -> list[str]:
    """The lab's namespaces, in the order of their names."""
    if not NETNS_DIR.is_dir():
        return []
    return sorted(p.name for p in NETNS_DIR.iterdir() if p.name.startswith(f"{prefix(name)}-"))


def pids(namespace: str) -> set[int]:
    """The processes inside a namespace."""
    listed = ip("netns", "pids", namespace, check=False).stdout
    return {int(pid) for pid in listed.split()}


def _used_networks() -> list[ipaddress.IPv4Network]:
    """Networks of this machine's addresses and routes, the default route aside, and of labs.

    Those of vm labs show nowhere on the machine, but SSH knows hosts by their addresses.
    """
    used = [ipaddress.IPv4Network(subnet) for subnet in state.subnets()]
    for interface in json.loads(ip("-j", "-4", "address").stdout or "[]"):
        for address in interface.get("addr_info", []):
            text = f"{address['local']}/{address['prefixlen']}"
            used.append(ipaddress.IPv4Interface(text).network)
    for route in json.loads(ip("-j", "-4", "route", "show", "table", "all").stdout or "[]"):
        if route["dst"] != "default":
            used.append(ipaddress.IPv4Network(route["dst"], strict=False))
    return used


def _links(name: str) -> list[str]:
    links: list[dict[str, Any]] = json.loads(ip("-j", "link").stdout or "[]")
    names = [link["ifname"] for link in links]
    # The bridge is the one that is named by the prefix alone; it goes last.
    return sorted((n for n in names if n.startswith(prefix(name))), key=len, reverse=True)


def new_key(path: Path, comment: str) -> None:
    """Make an SSH key without a passphrase, and `.pub` beside it."""
    call(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(path)])


def ip(*words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run ip(8); see `call`."""
    return call(["ip", *words], check=check)


def call(argv: list[str], *, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run a program to its end. With `check` a failure is an InfrastructureError."""
    done = subprocess.run(
        argv,
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
        env={**_ENVIRONMENT, "HOME": os.environ.get("HOME", "/root")},
        cwd="/",
    )
    if check and done.returncode != 0:
        raise InfrastructureError(
            f"{' '.join(argv[:4])} failed on this machine",
            evidence=(done.stderr or done.stdout).strip(),
            next_step="a lab of kind local needs no root: --kind local",
        )
    return done
