"""Light hosts: a network namespace each, with a real sshd and private mounts.

    bridge fm<id>          10.213.N.1/24, on this machine; nothing is forwarded
    namespace fm<id>-db1   eth0 10.213.N.2/24, its other end fm<id>v0 on the bridge
       sshd                its own host key; root by the lab's key only
       /var/lib/fleetmark  hosts/db1/fleetmark of the lab, on this machine's disk
       /tmp, /run          the host's own; without /run/systemd no unit can be started outside

`<id>` comes from the lab's name alone, so all of a lab is found again without its state file.
"""

import hashlib
import ipaddress
import json
import os
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

from fleetmark import processes
from fleetmark.errors import HostError, InfrastructureError
from fleetmark.lab import state
from fleetmark.lab.spec import LabSpec, program, python
from fleetmark.lab.state import LabHost, LabState
from fleetmark.store import write_json

BASE_DIR = Path("/var/lib/fleetmark")
_NETNS_DIR = Path("/run/netns")
_SUBNETS = ipaddress.ip_network("10.213.0.0/16")
_READY_SECONDS = 15.0
_POLL_SECONDS = 0.02
_ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}

_SSHD_CONFIG = """\
Port 22
ListenAddress {address}
HostKey {directory}/ssh_host_ed25519_key
PidFile {directory}/sshd.pid
AuthorizedKeysFile {directory}/authorized_keys
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
UseDNS no
PrintMotd no
X11Forwarding no
AllowTcpForwarding no
AcceptEnv LANG LC_*
MaxStartups 100
MaxSessions 100
Subsystem sftp internal-sftp
"""

_BOOT = """\
hostname "$1"
mount --bind "$2/fleetmark" /var/lib/fleetmark
mount --bind "$2/tmp" /tmp
mount --bind "$2/shadow" /etc/shadow
mount -t tmpfs -o mode=755,size=64m tmpfs /run
mkdir -m 755 /run/sshd /run/lock
exec "$3" -f "$2/sshd_config" -E "$2/sshd.log"
"""
_SHADOW = "root:*:19000:0:99999:7:::\n"
"""No password, yet not locked: sshd refuses a locked account even with the right key."""


def prefix(lab: str) -> str:
    """What the names of the lab's namespaces and interfaces begin with (8 characters)."""
    return f"fm{hashlib.sha256(lab.encode()).hexdigest()[:6]}"


def choose(spec: LabSpec) -> LabState:
    """Choose a subnet that nothing on this machine uses, and the hosts' addresses."""
    used = _used_networks()
    for subnet in _SUBNETS.subnets(new_prefix=24):
        if not any(subnet.overlaps(network) for network in used):
            break
    else:
        raise InfrastructureError(f"no /24 of {_SUBNETS} is free on this machine")
    members = [(group, name) for group, names in spec.groups.items() for name in names]
    hosts = [
        LabHost(name, group, str(subnet[number])) for number, (group, name) in enumerate(members, 2)
    ]
    return LabState(spec, str(subnet), hosts)


def create(lab: LabState, host: LabHost) -> None:
    """Make one host: namespace, link, directories, keys, and start its sshd."""
    name = lab.spec.name
    namespace = f"{prefix(name)}-{host.name}"
    outer = f"{prefix(name)}v{lab.hosts.index(host)}"
    _ip("netns", "add", namespace)
    _ip("link", "add", outer, "type", "veth", "peer", "name", "eth0", "netns", namespace)
    _ip("link", "set", outer, "addrgenmode", "none", "master", prefix(name), "up")
    _ip("-n", namespace, "link", "set", "eth0", "addrgenmode", "none")
    _ip("-n", namespace, "address", "add", f"{host.address}/24", "dev", "eth0")
    _ip("-n", namespace, "link", "set", "lo", "up")
    _ip("-n", namespace, "link", "set", "eth0", "up")
    directory = _host_files(name, host)
    sshd = str(program("sshd"))
    inside = ["unshare", "--mount", "--uts", "--", "/bin/sh", "-euc", _BOOT, "boot"]
    _call(["ip", "netns", "exec", namespace, *inside, host.name, str(directory), sshd])


def create_bridge(lab: LabState) -> None:
    """Make the lab's bridge, its client key, and the mount point that all hosts share."""
    _make_on_machine()
    name = lab.spec.name
    gateway = f"{ipaddress.ip_network(lab.subnet)[1]}/24"
    _ip("link", "add", prefix(name), "type", "bridge")
    _ip("address", "add", gateway, "dev", prefix(name))
    _ip("link", "set", prefix(name), "addrgenmode", "none", "up")
    keys = state.directory(name) / "keys"
    keys.mkdir(mode=0o700)
    _new_key(keys / "id_ed25519", f"fleetmark lab {name}")


def finish(lab: LabState) -> Path:
    """Wait until every sshd answers, then write known_hosts and the inventory."""
    directory = state.directory(lab.spec.name)
    known_hosts = directory / "keys" / "known_hosts"
    lines = []
    for host in lab.hosts:
        _wait_for_sshd(lab.spec.name, host)
        key = state.host_directory(lab.spec.name, host.name) / "ssh_host_ed25519_key.pub"
        lines.append(f"{host.address} {' '.join(key.read_text().split()[:2])}\n")
    known_hosts.write_text("".join(lines))
    common = {
        "ansible_user": "root",
        "ansible_ssh_private_key_file": str(directory / "keys" / "id_ed25519"),
        "ansible_ssh_common_args": f"-o UserKnownHostsFile={known_hosts}"
        " -o GlobalKnownHostsFile=/dev/null -o StrictHostKeyChecking=yes -o IdentitiesOnly=yes",
        "ansible_python_interpreter": python(),
    }
    hosts = {host.name: {"ansible_host": host.address} for host in lab.hosts}
    return state.write_inventory(lab, common, hosts)


def destroy(name: str) -> list[str]:
    """Remove all of a lab that this machine holds outside its directory; what was removed."""
    removed = []
    for namespace in namespaces(name):
        count = processes.end_all(lambda n=namespace: pids(n), f"namespace {namespace}")  # type: ignore[misc]
        if count:
            removed.append(f"{count} processes of {namespace}")
        # Deleting a namespace frees its links a moment later; a link goes at once, with its peer.
        _ip("netns", "delete", namespace)
        removed.append(f"namespace {namespace}")
    for link in _links(name):
        if _ip("link", "delete", link, check=False).returncode == 0:
            removed.append(f"link {link}")
    return removed


def clear_machine() -> None:
    """After the last lab: remove what labs share on this machine, if labs made it."""
    made = state.root() / "made.json"
    if not made.is_file():
        return
    paths = [Path(path) for path in json.loads(made.read_text())]
    if _NETNS_DIR in paths and not any(_NETNS_DIR.iterdir()):
        _call(["umount", str(_NETNS_DIR)], check=False)
    for path in paths:
        # Not empty means that somebody else has begun to use it.
        if path.is_dir() and not any(path.iterdir()) and not path.is_mount():
            path.rmdir()
    made.unlink()


def namespaces(name: str) -> list[str]:
    """The lab's namespaces, in the order of their names."""
    if not _NETNS_DIR.is_dir():
        return []
    return sorted(p.name for p in _NETNS_DIR.iterdir() if p.name.startswith(f"{prefix(name)}-"))


def pids(namespace: str) -> set[int]:
    """The processes inside a namespace."""
    listed = _ip("netns", "pids", namespace, check=False).stdout
    return {int(pid) for pid in listed.split()}


def answers(address: str) -> bool:
    """Whether an SSH server greets at an address."""
    try:
        with socket.create_connection((address, 22), timeout=1.0) as connection:
            return connection.recv(4) == b"SSH-"
    except OSError:
        return False


def _host_files(name: str, host: LabHost) -> Path:
    directory = state.host_directory(name, host.name)
    directory.mkdir(parents=True, mode=0o755)
    (directory / "fleetmark").mkdir(mode=0o700)
    (directory / "tmp").mkdir()
    (directory / "tmp").chmod(0o1777)
    (directory / "shadow").write_text(_SHADOW)
    (directory / "shadow").chmod(0o600)
    _new_key(directory / "ssh_host_ed25519_key", host.name)
    client_key = state.directory(name) / "keys" / "id_ed25519.pub"
    (directory / "authorized_keys").write_text(client_key.read_text())
    (directory / "authorized_keys").chmod(0o600)
    config = _SSHD_CONFIG.format(address=host.address, directory=directory)
    (directory / "sshd_config").write_text(config)
    return directory


def _wait_for_sshd(name: str, host: LabHost) -> None:
    deadline = time.monotonic() + _READY_SECONDS
    while not answers(host.address):
        if time.monotonic() > deadline:
            log = state.host_directory(name, host.name) / "sshd.log"
            raise HostError(
                f"its sshd did not answer at {host.address} within {_READY_SECONDS:.0f} s",
                host=host.name,
                evidence=log.read_text()[-2000:] if log.is_file() else "it left no log",
            )
        time.sleep(_POLL_SECONDS)


def _make_on_machine() -> None:
    """Make what all labs share, after writing down that it was we who made it."""
    record = state.root() / "made.json"
    made = set(json.loads(record.read_text())) if record.is_file() else set()
    made |= {str(p) for p in (BASE_DIR, _NETNS_DIR) if not p.exists()}
    write_json(record, sorted(made))
    BASE_DIR.mkdir(mode=0o700, exist_ok=True)


def _used_networks() -> list[ipaddress.IPv4Network]:
    """Networks of this machine's addresses and routes, the default route aside."""
    used = []
    for interface in json.loads(_ip("-j", "-4", "address").stdout or "[]"):
        for address in interface.get("addr_info", []):
            text = f"{address['local']}/{address['prefixlen']}"
            used.append(ipaddress.IPv4Interface(text).network)
    for route in json.loads(_ip("-j", "-4", "route", "show", "table", "all").stdout or "[]"):
        if route["dst"] != "default":
            used.append(ipaddress.IPv4Network(route["dst"], strict=False))
    return used


def _links(name: str) -> list[str]:
    links: list[dict[str, Any]] = json.loads(_ip("-j", "link").stdout or "[]")
    names = [link["ifname"] for link in links]
    # The bridge is the one that is named by the prefix alone; it goes last.
    return sorted((n for n in names if n.startswith(prefix(name))), key=len, reverse=True)


def _new_key(path: Path, comment: str) -> None:
    _call(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(path)])


def _ip(*words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    return _call(["ip", *words], check=check)


def _call(argv: list[str], *, check: bool = True) -> subprocess.CompletedProcess[str]:
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
