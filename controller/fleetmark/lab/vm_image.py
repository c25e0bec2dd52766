"""The root image of vm guests: made once from the machine's own release, and kept.

    <cache>/<key>/root.ext4    a sparse ext4 file system; guests boot overlays of it
                  vmlinuz      its kernel, and initrd.img beside it
                  image.json   what it was made from, and the packages that came of it
    <cache>/<key>.lock         held while one is made; others wait for it

`<key>` is a hash of the recipe. `<cache>` is /var/cache/fleetmark/images for root.
"""

import fcntl
import os
import secrets
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fleetmark import processes
from fleetmark.errors import InfrastructureError
from fleetmark.lab.vm_apt import Release, release
from fleetmark.lab.vm_recipe import Recipe, recipe
from fleetmark.store import write_json

_MARK = "FLEETMARK_IMAGE_BUILD"
_ROOT_BYTES = 8 << 30
_NEEDED_BYTES = 4 << 30
_LAST_LINES = 15


@dataclass(frozen=True)
class Image:
    """A root image that is ready: its directory in the cache."""

    directory: Path

    @property
    def root(self) -> Path:
        """The file system, raw."""
        return self.directory / "root.ext4"

    @property
    def kernel(self) -> Path:
        """The guests' kernel."""
        return self.directory / "vmlinuz"

    @property
    def initrd(self) -> Path:
        """The initial RAM disk that belongs to the kernel."""
        return self.directory / "initrd.img"


def cache() -> Path:
    """Where images are kept."""
    if os.geteuid() == 0:
        return Path("/var/cache/fleetmark/images")
    own = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(own) / "fleetmark" / "images"


def ready(packages: tuple[str, ...], progress: Callable[[str], None]) -> Image:
    """The image with these additional packages; made first where it is missing (minutes).

    Raises InfrastructureError when it cannot be made, with the last words of what failed.
    """
    machine = release()
    wanted = recipe(machine, packages)
    directory = cache() / wanted.key
    image = Image(directory)
    if directory.is_dir():
        return image
    cache().mkdir(parents=True, exist_ok=True)
    with _lock(cache() / f"{wanted.key}.lock", progress):
        if not directory.is_dir():
            _build(machine, wanted, directory, progress)
    return image


@contextmanager
def _lock(path: Path, progress: Callable[[str], None]) -> Iterator[None]:
    with path.open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress("root image: somebody is making it, waiting")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _build(
    machine: Release, wanted: Recipe, directory: Path, progress: Callable[[str], None]
) -> None:
    """Whole or not at all: made beside its place and moved there."""
    for left in directory.parent.glob(f"{wanted.key}.making-*"):
        shutil.rmtree(left)  # of a build that was killed; the lock says that none runs now
    _check_space(directory.parent)
    started = time.monotonic()
    making = directory.parent / f"{wanted.key}.making-{secrets.token_hex(4)}"
    making.mkdir(mode=0o700)
    try:
        tree = making / "tree"
        progress(f"root image: {machine.codename} with {len(wanted.packages)} packages, once")
        _bootstrap(machine, wanted, tree, progress)
        installed = _installed(tree)
        for name, pattern in (("vmlinuz", "vmlinuz-*"), ("initrd.img", "initrd.img-*")):
            found = sorted((tree / "boot").glob(pattern))
            if not found:
                raise InfrastructureError(f"the root image has no /boot/{pattern}")
            shutil.copyfile(found[-1], making / name)
        progress("root image: file system")
        root = making / "root.ext4"
        with root.open("wb") as handle:
            handle.truncate(_ROOT_BYTES)
        _run(["mkfs.ext4", "-q", "-L", "root", "-d", str(tree), str(root)], making)
        shutil.rmtree(tree)
        seconds = round(time.monotonic() - started, 1)
        write_json(
            making / "image.json",
            {"version": 1, "recipe": wanted.as_dict(), "installed": installed, "seconds": seconds},
        )
        making.rename(directory)
        progress(f"root image: ready after {seconds:.0f} s, kept in {directory}")
    except BaseException:
        shutil.rmtree(making, ignore_errors=True)
        raise


def _check_space(path: Path) -> None:
    free = shutil.disk_usage(path).free
    if free < _NEEDED_BYTES:
        raise InfrastructureError(
            f"{path} has {free >> 20} MiB free, a root image needs {_NEEDED_BYTES >> 20}",
            next_step="make room there",
        )


def _bootstrap(
    machine: Release, wanted: Recipe, tree: Path, progress: Callable[[str], None]
) -> None:
    essential, customize = tree.parent / "essential.sh", tree.parent / "customize.sh"
    for path, text in ((essential, wanted.essential), (customize, wanted.customize)):
        path.write_text(text)
        path.chmod(0o755)
    argv = [
        "mmdebstrap",
        "--mode=root",
        "--format=directory",
        "--variant=minbase",
        f"--include={','.join(wanted.packages)}",
        *(f"--aptopt={option}" for option in machine.options),
        f"--essential-hook={essential}",
        f"--customize-hook={customize}",
        machine.codename,
        str(tree),
        "-",
    ]
    _run(argv, tree.parent, machine.sources, progress)
    essential.unlink()
    customize.unlink()


def _installed(tree: Path) -> dict[str, str]:
    argv = ["dpkg-query", f"--admindir={tree}/var/lib/dpkg", "-W", "-f=${Package} ${Version}\n"]
    listed = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    return dict(line.split(" ", 1) for line in listed.splitlines())


def _run(
    argv: list[str],
    mark: Path,
    stdin: str = "",
    progress: Callable[[str], None] = lambda _: None,
) -> None:
    """Run a step of the build; whatever happens, none of its processes stays."""
    lines: list[str] = []
    environment = {**os.environ, _MARK: str(mark), "DEBIAN_FRONTEND": "noninteractive"}
    try:
        with subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env=environment,
            cwd="/",
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(stdin)
            process.stdin.close()
            for line in process.stdout:
                lines.append(line.rstrip())
                if line.startswith("I: "):
                    progress(f"root image: {line[3:].rstrip()}")
    except BaseException:
        processes.end_all(lambda: processes.with_environment(str(mark)), "an image build")
        raise
    if process.returncode != 0:
        raise InfrastructureError(
            f"{argv[0]} could not make the root image",
            evidence="\n".join(lines[-_LAST_LINES:]),
            next_step="it needs the package sources of this machine's release: try apt-get update",
        )
