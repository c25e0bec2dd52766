"""Light hosts: a network namespace each, with a real sshd and private mounts.

    bridge fm<id>          10.213.N.1/24, on this machine; nothing is forwarded
    namespace fm<id>-db1   eth0 10.213.N.2/24, its other end fm<id>v0 on the bridge
       sshd                its own host key; root by the lab's key only
       /var/lib/fleetmark  hosts/db1/fleetmark of the lab, on this machine's disk
       /tmp, /run          the host's own; without /run/systemd no unit can be started outside

`<id>` comes from the lab's name alone, so all of a lab is found again without its state file.
"""

import ipaddress
import socket
import time
from pathlib import Path

from fleetmark.errors import HostError
from fleetmark.lab import machine, state
from fleetmark.lab.machine import call, ip, new_key, prefix
from fleetmark.lab.spec import LabSpec, program, python
from fleetmark.lab.state import LabHost, LabState

BASE_DIR = Path("/var/lib/fleetmark")
_READY_SECONDS = 15.0
_POLL_SECONDS = 0.02

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


def choose(spec: LabSpec) -> LabState:
    """Choose a subnet that nothing on this machine uses, and the hosts' addresses."""
    subnet = machine.free_subnet()
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
    ip("netns", "add", namespace)
    ip("link", "add", outer, "type", "veth", "peer", "name", "eth0", "netns", namespace)
    ip("link", "set", outer, "addrgenmode", "none", "master", prefix(name), "up")
    ip("-n", namespace, "link", "set", "eth0", "addrgenmode", "none")
    ip("-n", namespace, "address", "add", f"{host.address}/24", "dev", "eth0")
    ip("-n", namespace, "link", "set", "lo", "up")
    ip("-n", namespace, "link", "set", "eth0", "up")
    directory = _host_files(name, host)
    sshd = str(program("sshd"))
    inside = ["unshare", "--mount", "--uts", "--", "/bin/sh", "-euc", _BOOT, "boot"]
    call(["ip", "netns", "exec", namespace, *inside, host.name, str(directory), sshd])


def create_bridge(lab: LabState) -> None:
    """Make the lab's bridge, its client key, and the mount point that all hosts share."""
    machine.prepare(BASE_DIR)
    name = lab.spec.name
    gateway = f"{ipaddress.ip_network(lab.subnet)[1]}/24"
    ip("link", "add", prefix(name), "type", "bridge")
    ip("address", "add", gateway, "dev", prefix(name))
    ip("link", "set", prefix(name), "addrgenmode", "none", "up")
    keys = state.directory(name) / "keys"
    keys.mkdir(mode=0o700)
    new_key(keys / "id_ed25519", f"fleetmark lab {name}")


def finish(lab: LabState) -> Path:
    """Wait until every sshd answers, then write known_hosts and the inventory.

    Raises HostError when a host does not answer, or not to the other hosts.
    """
    directory = state.directory(lab.spec.name)
    known_hosts = directory / "keys" / "known_hosts"
    lines = []
    for host in lab.hosts:
        _wait_for_sshd(lab.spec.name, host)
        key = state.host_directory(lab.spec.name, host.name) / "ssh_host_ed25519_key.pub"
        lines.append(f"{host.address} {' '.join(key.read_text().split()[:2])}\n")
    known_hosts.write_text("".join(lines))
    _check_between(lab)
    common = {
        "ansible_user": "root",
        "ansible_ssh_private_key_file": str(directory / "keys" / "id_ed25519"),
        "ansible_ssh_common_args": f"-o UserKnownHostsFile={known_hosts}"
        " -o GlobalKnownHostsFile=/dev/null -o StrictHostKeyChecking=yes -o IdentitiesOnly=yes",
        "ansible_python_interpreter": python(),
    }
    hosts = {host.name: {"ansible_host": host.address} for host in lab.hosts}
    return state.write_inventory(lab, common, hosts)


def _check_between(lab: LabState) -> None:
    """Hosts must reach one another too: a machine's firewall may sort out bridged traffic."""
    first, last = lab.hosts[0], lab.hosts[-1]
    namespace = f"{prefix(lab.spec.name)}-{last.name}"
    reach = "import socket, sys; socket.create_connection((sys.argv[1], 22), 5)"
    done = call(
        ["ip", "netns", "exec", namespace, python(), "-c", reach, first.address], check=False
    )
    if done.returncode != 0:
        raise HostError(
            f"it does not reach {first.name} at {first.address}, though this machine reaches both",
            host=last.name,
            evidence=done.stderr.strip().splitlines()[-1],
            next_step="a firewall of this machine drops what its bridges carry (Docker sets one);"
            " sysctl net.bridge.bridge-nf-call-iptables=0 lets it pass",
        )


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
    new_key(directory / "ssh_host_ed25519_key", host.name)
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
