"""One build on one host, detached from whoever asked for it.

    build_job.py start DIRECTORY            begin, or do nothing while it is going on
    build_job.py wait DIRECTORY SECONDS     how far it is; returns early when it has ended
    build_job.py run DIRECTORY              the work itself

DIRECTORY holds spec.json. `wait` prints one line for people and ends with 0 when it is built,
10 while it is going on, 1 when it failed. What is built is known by the stamp in its prefix,
which is written last.
"""

import os
import re
import resource
import shutil
import subprocess
import sys
import time
import traceback
from typing import Any, Dict, List, Optional

import build_status
from build_log import Failure
from build_steps import (
    BuildFailed,
    Work,
    compile_all,
    configure,
    install,
    jobs,
    unpack,
    without_network,
)

STAMP = "fleetmark-build.json"
_BUILT, _FAILED, _GOING_ON = 0, 1, 10
_START_SECONDS = 20.0
_POLL_SECONDS = 0.1
_WAIT_POLL_SECONDS = 0.25
_KEPT_ENVIRONMENT = (
    "PATH", "HOME", "USER", "LOGNAME", "TMPDIR",
    "http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY",
)  # fmt: skip
_CCACHE_COUNTS = {
    "direct_cache_hit": "hits",
    "preprocessed_cache_hit": "hits",
    "cache_miss": "misses",
}


def start(place: build_status.Place) -> int:
    """Begin in a session of its own; returns when the work has begun."""
    if place.worked_on():
        print("it is going on already")
        return 0
    place.forget()
    log = os.open(place.path("job.log"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    argv = [sys.executable, os.path.abspath(__file__), "run", place.directory]
    if os.path.isdir("/run/systemd/system") and os.geteuid() == 0:
        # Not a child of the SSH session, which systemd would end with its last process.
        unit = "fleetmark-build-%s-%d" % (os.path.basename(place.directory), time.time())
        argv = ["systemd-run", "--quiet", "--collect", "--unit=" + unit, *argv]
    subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        start_new_session=True,
        cwd="/",
        # Nothing of the play's own: on a local connection its processes are found by it and ended.
        env={name: os.environ[name] for name in _KEPT_ENVIRONMENT if name in os.environ},
    )
    limit = time.monotonic() + _START_SECONDS
    while not place.status():
        if time.monotonic() > limit:
            with open(place.path("job.log"), encoding="utf-8", errors="replace") as handle:
                print("the build did not begin: %s" % handle.read()[-2000:])
            return 1
        time.sleep(_POLL_SECONDS)
    print("begun")
    return 0


def wait(place: build_status.Place, seconds: float) -> int:
    """Wait until the build has ended, at most so long; say how far it is."""
    limit = time.monotonic() + seconds
    while True:
        going_on = place.worked_on()
        status = place.status()
        if not going_on or time.monotonic() > limit:
            break
        time.sleep(_WAIT_POLL_SECONDS)
    if going_on:
        print(status.get("text", "begun"))
        return _GOING_ON
    if status.get("state") == build_status.DONE:
        print(status["text"])
        return _BUILT
    error = status.get("error") or {
        "message": "the build died in its stage `%s`" % status.get("stage", "start"),
        "evidence": _tail(place.path("job.log")),
        "next_step": "run it again: it goes on from there",
    }
    print(error["message"])
    for label, text in (("", error["evidence"]), ("next: ", error["next_step"])):
        if text:
            print(label + text)
    return _FAILED


def run(place: build_status.Place) -> int:
    """Do all stages, then write the stamp and clear up."""
    lock = place.lock()
    if lock is None:
        return 0
    reporter = build_status.Reporter(place)
    reporter.stage("start")
    try:
        spec = build_status.read_json(place.path("spec.json"))
        if spec is None:
            raise BuildFailed(Failure("spec.json cannot be read", place.directory))
        os.nice(int(spec["nice"]))
        _work(Work(place, spec, reporter, without_network()))
    except BuildFailed as error:
        reporter.failed(error.failure)
        return 1
    except Exception as error:
        # It runs detached: what nobody foresaw must reach the status too.
        traceback.print_exc()
        reporter.failed(Failure("%s: %s" % (type(error).__name__, error)))
        return 1
    reporter.done()
    os.close(lock)
    return 0


def _work(work: Work) -> None:
    begun = time.time()
    before = _ccache(work)
    unpack(work)
    unused = configure(work)
    compile_all(work)
    install(work)
    work.reporter.stage("check")
    server = _server(work)
    engines = _engines(work)
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    after = _ccache(work)
    stamp = {
        **_asked(work.spec),
        **server,
        "engines": engines,
        "unused_flags": unused,
        "seconds": round(time.time() - begun, 1),
        "cpu_seconds": round(usage.ru_utime + usage.ru_stime, 1),
        "largest_process_bytes": usage.ru_maxrss * 1024,
        "jobs": jobs(work.spec),
        "compiler": _first_line(["c++", "--version"]),
        "cmake": _first_line(["cmake", "--version"]),
        "ccache": ({key: after[key] - before[key] for key in after} if before and after else None),
        "without_network": bool(work.offline),
        "work_bytes": _disk_bytes(work.place.directory),
        "installed_bytes": _disk_bytes(work.prefix),
        "runtime_packages": _runtime_packages(work.prefix),
        "built_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    logs = os.path.join(work.prefix, "fleetmark-build")
    os.makedirs(logs, exist_ok=True)
    for name in ("configure.log", "compile.log"):
        shutil.copy(work.place.path(name), logs)
    # Last: only what has a stamp counts as built.
    build_status.write_json(os.path.join(work.prefix, STAMP), stamp)
    for name in ("source", "build"):
        shutil.rmtree(work.place.path(name), ignore_errors=True)
    for name in ("unpacked", "configured"):
        os.remove(work.place.path(name))


def _asked(spec: Dict[str, Any]) -> Dict[str, Any]:
    """What of the spec describes the build."""
    names = ("version", "flavour", "dbms_version", "source", "sha256", "repository", "commit",
             "archive_name", "package", "flags", "user_flags", "digest", "prefix")  # fmt: skip
    return {name: spec[name] for name in names}


def _server(work: Work) -> Dict[str, Any]:
    """The server's program, tried. Raises BuildFailed."""
    for name in work.spec["server"]:
        path = os.path.join(work.prefix, name)
        if os.path.exists(path):
            argv = [path, "--no-defaults", "--version"]
            said = subprocess.run(argv, capture_output=True, text=True, check=False)
            if said.returncode != 0:
                raise BuildFailed(Failure("the new server does not run", said.stderr.strip()))
            return {"server": name, "server_says": said.stdout.strip().replace(path, name)}
    raise BuildFailed(
        Failure("nothing was installed as %s" % " or ".join(work.spec["server"]), work.prefix)
    )


def _engines(work: Work) -> List[str]:
    """The storage engines that were asked for, all of them there. Raises BuildFailed."""
    asked = [str(engine) for engine in work.spec["engines"]]
    plugins = {
        os.path.splitext(name)[0]
        for _, _, names in os.walk(work.prefix)
        for name in names
        if name.startswith("ha_") and name.endswith(".so")
    }
    missing = [name for name in asked if "ha_" + name not in plugins and not _inside(work, name)]
    if missing:
        raise BuildFailed(
            Failure(
                "the build has no engine %s" % " and ".join(missing),
                "plugins that were built: %s" % (", ".join(sorted(plugins)) or "none"),
                "see configure.log in %s for why it was left out" % work.place.directory,
            )
        )
    return asked


def _inside(work: Work, engine: str) -> bool:
    """Whether cmake was told to compile an engine into the server, and did."""
    with open(work.place.path("build/CMakeCache.txt"), encoding="utf-8") as handle:
        cache = handle.read()
    name = re.escape(engine.upper())
    pattern = r"^(?:PLUGIN_%s:\w+=(?:STATIC|YES)|WITH_%s(?:_STORAGE_ENGINE)?:\w+=(?:1|ON))$"
    return re.search(pattern % (name, name), cache, re.MULTILINE) is not None


def _ccache(work: Work) -> Optional[Dict[str, int]]:
    """Hits and misses so far of the cache that builds share; None without ccache."""
    if not shutil.which("ccache"):
        return None
    os.makedirs(str(work.spec["ccache_dir"]), exist_ok=True)
    argv = ["ccache", "--print-stats"]
    said = subprocess.run(argv, capture_output=True, text=True, check=False, env=work.environment())
    counts = {"hits": 0, "misses": 0}
    for line in said.stdout.splitlines():
        name, _, value = line.partition("\t")
        if name in _CCACHE_COUNTS:
            counts[_CCACHE_COUNTS[name]] += int(value)
    return counts


def _runtime_packages(prefix: str) -> List[str]:
    """The distribution's packages whose libraries the build needs; empty where dpkg is not."""
    if not shutil.which("dpkg-query"):
        return []
    libraries = set()
    for directory, _, names in os.walk(prefix):
        for name in names:
            path = os.path.join(directory, name)
            if (name.endswith(".so") or os.access(path, os.X_OK)) and _is_elf(path):
                said = subprocess.run(["ldd", path], capture_output=True, text=True, check=False)
                libraries |= set(re.findall(r"=> (/\S+)", said.stdout))
    real = {os.path.realpath(path) for path in libraries if not path.startswith(prefix)}
    if not real:
        return []
    argv = ["dpkg-query", "--search", *sorted(real)]
    said = subprocess.run(argv, capture_output=True, text=True, check=False)
    return sorted({line.partition(":")[0] for line in said.stdout.splitlines()})


def _is_elf(path: str) -> bool:
    if os.path.islink(path) or not os.path.isfile(path):
        return False
    with open(path, "rb") as handle:
        return handle.read(4) == b"\x7fELF"


def _disk_bytes(path: str) -> int:
    blocks = {}
    for directory, _, names in os.walk(path):
        for name in names:
            stat = os.lstat(os.path.join(directory, name))
            blocks[(stat.st_dev, stat.st_ino)] = stat.st_blocks * 512
    return sum(blocks.values())


def _first_line(argv: List[str]) -> str:
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.splitlines()[0]


def _tail(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as handle:
            return handle.read()[-2000:].strip()
    except OSError:
        return ""


def main(argv: List[str]) -> int:
    """Run one verb."""
    os.umask(0o022)
    place = build_status.Place(os.path.abspath(argv[2]))
    if argv[1] == "start":
        return start(place)
    if argv[1] == "wait":
        return wait(place, float(argv[3]))
    return run(place)


if __name__ == "__main__":
    sys.exit(main(sys.argv))
