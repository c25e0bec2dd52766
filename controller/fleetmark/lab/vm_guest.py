"""One guest: its files, its QEMU command line, and its process.

hosts/<host>/root.qcow2    what it changed of the root image
             identity.tar  its name, keys and addresses; a disk that it reads at its first boot
             <label>.raw   an NVMe disk each, sparse
             console.log   all that it said on its serial console
             qemu.json     the command line, with which it is powered on again
             qemu.log      what QEMU said
"""

import contextlib
import hashlib
import io
import json
import random
import shutil
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path

from fleetmark import processes
from fleetmark.errors import HostError
from fleetmark.lab import machine, state, vm_accel
from fleetmark.lab.machine import call, new_key, prefix
from fleetmark.lab.state import LabHost, LabState
from fleetmark.lab.vm_image import Image
from fleetmark.lab.vm_spec import VmDisk
from fleetmark.store import write_json

_DATA_BYTES = 8 << 20
_SERIAL_LENGTH = 20
"""So much of a serial fits into NVMe's identity."""

_NETWORK = """\
[Match]
MACAddress={mac}

[Network]
Address={address}/24
LinkLocalAddressing=no
IPv6AcceptRA=no
"""


@dataclass(frozen=True)
class Boot:
    """What all guests of a lab boot: image and accelerator."""

    image: Image
    accel: str


def namespace(lab: str) -> str:
    """The network namespace of a vm lab's bridge, taps and guests."""
    return f"{prefix(lab)}-vm"


def serial(lab: str, host: str, label: str) -> str:
    """The serial of a disk: the lab's mark, the host, the label; at most 20 characters."""
    text = f"{prefix(lab)[2:]}-{host}-{label}"
    assert len(text) <= _SERIAL_LENGTH
    return text


def create(lab: LabState, host: LabHost, boot: Boot) -> None:
    """Make a guest's files; it is started by `start`."""
    name = lab.spec.name
    directory = state.host_directory(name, host.name)
    directory.mkdir(parents=True, mode=0o700)
    overlay = ["-b", str(boot.image.root), "-F", "raw", str(directory / "root.qcow2")]
    call(["qemu-img", "create", "-q", "-f", "qcow2", *overlay])
    new_key(directory / "ssh_host_ed25519_key", host.name)
    _write_identity(lab, host, directory)
    for disk in lab.spec.vm.disks:
        _create_disk(directory, disk, serial(name, host.name, disk.label))
    argv = _command(lab, host, boot)
    write_json(directory / "qemu.json", {"version": 1, "accel": boot.accel, "command": argv})


def start(lab: str, host: str) -> None:
    """Power a guest on. Raises HostError with QEMU's words when it does not start."""
    directory = state.host_directory(lab, host)
    argv = json.loads((directory / "qemu.json").read_text())["command"]
    enter = ["nsenter", f"--net={machine.NETNS_DIR / namespace(lab)}", "--"]
    with (directory / "qemu.log").open("ab") as log:
        done = subprocess.run(
            [*enter, *argv], stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=False, cwd="/"
        )
    if done.returncode != 0:
        raise HostError("QEMU did not start", host=host, evidence=tail(directory / "qemu.log"))


def kill(lab: str, host: str) -> int:
    """Pull the plug; how many processes ended. What the disks have taken stays on them."""
    return processes.end_all(lambda: pids(lab, host), f"guest {host}")


def pids(lab: str, host: str) -> set[int]:
    """The guest's QEMU, if it runs."""
    mark = f"{state.host_directory(lab, host)}/root.qcow2".encode()
    found = set()
    for pid in machine.pids(namespace(lab)):
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes()
            # Until QEMU runs, nsenter carries its arguments.
            if mark in words:
                found.add(pid)
    return found


def accel(lab: str, host: str) -> str:
    """The accelerator under which a guest runs; empty for one that is half made."""
    try:
        stored = json.loads((state.host_directory(lab, host) / "qemu.json").read_text())
    except OSError:
        return ""
    return str(stored["accel"])


def console(lab: str, host: str) -> Path:
    """Where a guest's serial console is written."""
    return state.host_directory(lab, host) / "console.log"


def tail(path: Path, lines: int = 15) -> str:
    """The last lines of a log."""
    text = path.read_text(errors="replace") if path.is_file() else ""
    kept = [line.strip() for line in text.splitlines() if line.strip()][-lines:]
    return "\n".join(kept) or f"{path} is empty"


def _write_identity(lab: LabState, host: LabHost, directory: Path) -> None:
    names = "".join(f"{each.address} {each.name}\n" for each in lab.hosts)
    private = directory / "ssh_host_ed25519_key"
    client = state.directory(lab.spec.name) / "keys" / "id_ed25519.pub"
    network = _NETWORK.format(mac=_mac(host), address=host.address)
    files: list[tuple[str, bytes, int]] = [
        ("etc/hostname", f"{host.name}\n".encode(), 0o644),
        ("etc/hosts", f"127.0.0.1 localhost\n{names}".encode(), 0o644),
        ("etc/systemd/network/10-lab.network", network.encode(), 0o644),
        ("etc/ssh/ssh_host_ed25519_key", private.read_bytes(), 0o600),
        ("etc/ssh/ssh_host_ed25519_key.pub", private.with_suffix(".pub").read_bytes(), 0o644),
        ("root/.ssh", b"", 0o700),
        ("root/.ssh/authorized_keys", client.read_bytes(), 0o600),
    ]
    path = directory / "identity.tar"
    path.touch(mode=0o600)
    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as archive:
        for name, content, mode in files:
            member = tarfile.TarInfo(name)
            member.mode, member.size = mode, len(content)
            member.type = tarfile.REGTYPE if content else tarfile.DIRTYPE
            archive.addfile(member, io.BytesIO(content))


def _create_disk(directory: Path, disk: VmDisk, number: str) -> None:
    path = directory / f"{disk.label}.raw"
    with path.open("wb") as handle:
        handle.truncate(disk.size_bytes)
    if disk.holds_data:
        tree = directory / "data"
        tree.mkdir()
        # The same bytes for the same serial, so a test knows them without keeping them.
        content = random.Random(number).randbytes(_DATA_BYTES)  # noqa: S311
        (tree / "ledger.bin").write_bytes(content)
        checksum = hashlib.sha256(content).hexdigest()
        (tree / "SHA256SUMS").write_text(f"{checksum}  ledger.bin\n")
        shutil.copyfile(tree / "SHA256SUMS", directory / f"{disk.label}.sha256")
        call(["mkfs.ext4", "-q", "-L", disk.label.lower(), "-d", str(tree), str(path)])
        shutil.rmtree(tree)


def _mac(host: LabHost) -> str:
    """From the address, with the bit of local administration set."""
    return "52:54:" + ":".join(f"{int(part):02x}" for part in host.address.split("."))


def _command(lab: LabState, host: LabHost, boot: Boot) -> list[str]:
    spec, directory = lab.spec, state.host_directory(lab.spec.name, host.name)
    append = f"root=/dev/vda rw console=ttyS0 TERM=dumb quiet panic=10 systemd.hostname={host.name}"
    if boot.accel == "tcg":
        # Page table isolation empties TCG's caches at every system call. Nobody is protected here.
        append += " mitigations=off"
    argv = ["qemu-system-x86_64", "-name", f"{spec.name}-{host.name}"]
    argv += ["-nodefaults", "-no-user-config", "-display", "none", "-machine", "pc"]
    argv += [*vm_accel.cpu(boot.accel), *vm_accel.smp(spec)]
    argv += ["-m", str(spec.vm.memory_bytes >> 20), "-device", "virtio-rng-pci"]
    argv += ["-kernel", str(boot.image.kernel), "-initrd", str(boot.image.initrd)]
    argv += ["-append", append]
    argv += ["-drive", f"id=root,if=none,format=qcow2,file={directory}/root.qcow2"]
    argv += ["-device", "virtio-blk-pci,drive=root,serial=root"]
    argv += ["-drive", f"id=own,if=none,format=raw,readonly=on,file={directory}/identity.tar"]
    argv += ["-device", "virtio-blk-pci,drive=own,serial=identity"]
    for disk in spec.vm.disks:
        argv += _disk(directory, disk, serial(spec.name, host.name, disk.label))
    argv += ["-netdev", f"tap,id=lab,ifname={tap(lab, host)},script=no,downscript=no"]
    argv += ["-device", f"virtio-net-pci,netdev=lab,mac={_mac(host)}"]
    argv += ["-chardev", f"file,id=console,append=on,path={directory}/console.log"]
    argv += ["-serial", "chardev:console", "-daemonize"]
    return argv


def _disk(directory: Path, disk: VmDisk, number: str) -> list[str]:
    drive = f"id={disk.label},if=none,format=raw,file={directory}/{disk.label}.raw"
    drive += f",discard=unmap,detect-zeroes=off,cache={disk.cache}"
    if disk.iops:
        drive += f",throttling.iops-total={disk.iops}"
    if disk.bytes_per_second:
        drive += f",throttling.bps-total={disk.bytes_per_second}"
    return ["-drive", drive, "-device", f"nvme,drive={disk.label},serial={number}"]


def tap(lab: LabState, host: LabHost) -> str:
    """The guest's interface on the bridge."""
    return f"tap{lab.hosts.index(host)}"
