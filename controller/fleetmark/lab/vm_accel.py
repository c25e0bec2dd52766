"""Whether KVM works here. The device file does not tell: some machines have it and hang.

So a guest's kernel is booted with it, once for each QEMU, host kernel and image, and the verdict
is kept in the image's cache.
"""

import hashlib
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from fleetmark.errors import InfrastructureError
from fleetmark.lab.spec import LabSpec
from fleetmark.lab.vm_image import Image, cache
from fleetmark.store import write_json

_BOUND_SECONDS = 20.0
"""A kernel under a KVM that works is in its first program after two seconds."""
_POLL_SECONDS = 0.1
_FIRST_PROGRAM = "Run /init as init process"


def choose(spec: LabSpec, image: Image, progress: Callable[[str], None]) -> str:
    """`kvm` or `tcg`. Raises InfrastructureError when KVM is asked for and does not work."""
    if spec.vm.accel == "tcg":
        return "tcg"
    why = _why_no_kvm(spec, image, progress)
    if not why:
        return "kvm"
    if spec.vm.accel == "kvm":
        raise InfrastructureError(
            "KVM does not work on this machine", evidence=why, next_step="use --accel tcg (slower)"
        )
    progress(f"guests run under TCG, about ten times slower than the machine: {why}")
    return "tcg"


def cpu(accel: str) -> list[str]:
    """QEMU's words for an accelerator. TCG's default CPU model would have no threads."""
    if accel == "kvm":
        return ["-accel", "kvm", "-cpu", "host"]
    # Without `check=off` QEMU says for each thread which features of the model it leaves out.
    return ["-accel", "tcg,thread=multi", "-cpu", "Skylake-Server-v4,check=off"]


def smp(spec: LabSpec) -> list[str]:
    """QEMU's words for the CPUs of a guest."""
    cores, threads = spec.vm.cores, spec.vm.threads_per_core
    return ["-smp", f"{cores * threads},sockets=1,cores={cores},threads={threads}"]


def _why_no_kvm(spec: LabSpec, image: Image, progress: Callable[[str], None]) -> str:
    device = Path("/dev/kvm")
    if not os.access(device, os.R_OK | os.W_OK):
        return f"there is no {device} that may be used"
    version = subprocess.run(
        ["qemu-system-x86_64", "--version"], capture_output=True, text=True, check=True
    ).stdout
    kept = cache() / "kvm.json"
    parts = [version, os.uname().release, os.uname().version, image.directory.name, *smp(spec)]
    key = hashlib.sha256(json.dumps(parts).encode()).hexdigest()
    verdicts = _read(kept)
    if key not in verdicts:
        progress(f"trying KVM (at most {_BOUND_SECONDS:.0f} s, once)")
        verdicts = {**_read(kept), key: _boot(spec, image)}
        write_json(kept, verdicts)
    return verdicts[key]


def _read(path: Path) -> dict[str, str]:
    try:
        stored: dict[str, str] = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return stored


def _boot(spec: LabSpec, image: Image) -> str:
    """Why it does not boot; empty when it does."""
    with tempfile.TemporaryDirectory(prefix="fm-kvm-") as directory:
        console = Path(directory) / "console"
        console.touch()
        argv = ["qemu-system-x86_64", "-nodefaults", "-no-user-config", "-display", "none"]
        argv += [*cpu("kvm"), *smp(spec), "-m", str(spec.vm.memory_bytes >> 20), "-no-reboot"]
        argv += ["-kernel", str(image.kernel), "-initrd", str(image.initrd)]
        argv += ["-append", "console=ttyS0 panic=-1", "-serial", f"file:{console}"]
        said = Path(directory) / "said"
        with (
            said.open("wb") as handle,
            subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=handle, stderr=handle) as qemu,
        ):
            ended = False
            try:
                deadline = time.monotonic() + _BOUND_SECONDS
                while time.monotonic() < deadline and qemu.poll() is None:
                    if _FIRST_PROGRAM in console.read_text(errors="replace"):
                        return ""
                    time.sleep(_POLL_SECONDS)
                ended = qemu.poll() is not None
            finally:
                qemu.kill()
        words = said.read_text(errors="replace").strip().splitlines()
        lines = console.read_text(errors="replace").strip().splitlines()
    if ended:
        return words[-1] if words else "QEMU ends at once"
    last = f"; its last line: {lines[-1]}" if lines else " and says nothing"
    return f"a kernel under KVM hangs for {_BOUND_SECONDS:.0f} s{last}"
