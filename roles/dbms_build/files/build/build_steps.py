"""The stages of a build: unpack, configure, compile, install. Each can be done again."""

import errno
import os
import re
import shutil
import subprocess
from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional, Sequence

from build_log import Failure, explain, progress, unused_flags
from build_status import Place, Reporter

_OFF = ("no", "off", "0", "false", "")
# Where nothing listens: a client that obeys these fails at once, as it should.
_NO_NETWORK = dict.fromkeys(
    ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:9"
)
_VERSION_FILES = ("VERSION", "MYSQL_VERSION")
_VERSION_FIELD = re.compile(r"^MYSQL_VERSION_(MAJOR|MINOR|PATCH)\s*=\s*\"?(\d+)", re.MULTILINE)


class BuildFailed(Exception):
    """A stage did not go well."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


@dataclass(frozen=True)
class Work:
    """One build: what is asked for (spec.json) and where it is done."""

    place: Place
    spec: Dict[str, Any]
    reporter: Reporter
    offline: List[str] = field(default_factory=list)

    @property
    def source(self) -> str:
        """The unpacked source."""
        return self.place.path("source")

    @property
    def build(self) -> str:
        """The build directory."""
        return self.place.path("build")

    @property
    def prefix(self) -> str:
        """Where it is installed."""
        return str(self.spec["prefix"])

    def environment(self) -> Dict[str, str]:
        """Surroundings of cmake and the compiler: plain words, shared ccache, no network.

        The base directory lets equal files of two build directories share results; without
        NOHASHDIR the directory would count, since debug information names it.
        """
        return {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": os.environ.get("HOME", "/"),
            "LANG": "C.UTF-8",
            "LC_ALL": "C.UTF-8",
            "TERM": "dumb",
            "NINJA_STATUS": "[%f/%t] ",
            "CCACHE_DIR": str(self.spec["ccache_dir"]),
            "CCACHE_BASEDIR": os.path.dirname(os.path.abspath(self.place.directory)),
            "CCACHE_NOHASHDIR": "1",
            "CCACHE_MAXSIZE": str(self.spec["ccache_max_size"]),
            **_NO_NETWORK,
        }


def without_network() -> List[str]:
    """A command prefix that takes the network away, where we may do so; else nothing."""
    prefix = ["unshare", "--net", "--"]
    if os.geteuid() == 0 and shutil.which("unshare"):
        tried = subprocess.run([*prefix, "true"], capture_output=True, check=False)
        if tried.returncode == 0:
            return prefix
    return []


def unpack(work: Work) -> None:
    """Put the source into `source`; what is there already, whole, is kept."""
    if os.path.exists(work.place.path("unpacked")):
        return
    work.reporter.stage("unpack")
    shutil.rmtree(work.source, ignore_errors=True)
    os.makedirs(work.source)
    if work.spec["repository"]:
        _checkout(work)
    else:
        argv = ["tar", "--extract", "--file", work.spec["archive"], "--strip-components=1"]
        _plain(work, [*argv, "--no-same-owner", "--directory", work.source], "unpack")
    if not os.path.exists(os.path.join(work.source, "CMakeLists.txt")):
        raise BuildFailed(
            Failure(
                "the source has no CMakeLists.txt at its top",
                ", ".join(sorted(os.listdir(work.source))[:20]),
                "name the source archive of the server; binary archives have source: tarball",
            )
        )
    _check_version(work)
    _touch(work.place.path("unpacked"))


def _checkout(work: Work) -> None:
    """One commit with its submodules; all of the history only where the server insists."""
    commit = str(work.spec["commit"])
    repository = str(work.spec["repository"])
    git = ["git", "-c", "advice.detachedHead=false", "-C", work.source]
    _plain(work, [*git, "init", "--quiet"], "unpack")
    shallow = [*git, "fetch", "--quiet", "--depth", "1", repository, commit]
    if subprocess.run(shallow, capture_output=True, check=False).returncode != 0:
        _plain(work, [*git, "fetch", "--quiet", repository, "+refs/*:refs/remotes/all/*"], "unpack")
    _plain(work, [*git, "checkout", "--quiet", "--detach", commit], "unpack")
    modules = [*git, "submodule", "update", "--init", "--recursive", "--depth", "1", "--quiet"]
    _plain(work, modules, "unpack")


def _check_version(work: Work) -> None:
    wanted = str(work.spec["dbms_version"])
    for name in _VERSION_FILES:
        path = os.path.join(work.source, name)
        if not os.path.exists(path):
            continue
        with open(path, encoding="utf-8", errors="replace") as handle:
            parts = dict(_VERSION_FIELD.findall(handle.read()))
        found = ".".join(parts[key] for key in ("MAJOR", "MINOR", "PATCH") if key in parts)
        if found and not re.match(re.escape(found) + r"(\D|$)", wanted):
            raise BuildFailed(
                Failure(
                    "the source is version %s, the build says %s" % (found, wanted),
                    path,
                    "correct version or archive of the build",
                )
            )


def configure(work: Work) -> List[str]:
    """Run cmake; returns the options that the source does not know."""
    log_path = work.place.path("configure.log")
    if os.path.exists(work.place.path("configured")):
        with open(log_path, encoding="utf-8", errors="replace") as handle:
            return unused_flags(handle.read())
    work.reporter.stage("configure")
    shutil.rmtree(work.build, ignore_errors=True)
    os.makedirs(work.build)
    flags = dict(work.spec["flags"])
    flags["CMAKE_INSTALL_PREFIX"] = work.prefix
    if shutil.which("ccache"):
        flags.setdefault("CMAKE_C_COMPILER_LAUNCHER", "ccache")
        flags.setdefault("CMAKE_CXX_COMPILER_LAUNCHER", "ccache")
    argv = ["cmake", "-S", work.source, "-B", work.build]
    argv += ["-G", "Ninja" if shutil.which("ninja") else "Unix Makefiles"]
    argv += [
        "-D%s=%s" % (name, str(value).replace("@SOURCE@", work.source))
        for name, value in sorted(flags.items())
    ]
    log = _logged(work, argv, "configure", log_path)
    unused = unused_flags(log)
    wrong = [
        name
        for name in unused
        if name in work.spec["user_flags"] and str(flags[name]).lower() not in _OFF
    ]
    if wrong:
        raise BuildFailed(
            Failure(
                "the source does not know the flag %s" % " and ".join(wrong),
                "cmake: manually-specified variables were not used",
                "correct the flags of the build",
            )
        )
    _touch(work.place.path("configured"))
    return unused


def compile_all(work: Work) -> None:
    """Compile; a second try goes on where the first one stopped."""
    work.reporter.stage("compile")
    argv = ["cmake", "--build", work.build, "--parallel"]
    log_path = work.place.path("compile.log")
    try:
        _logged(work, [*argv, str(jobs(work.spec))], "compile", log_path)
    except BuildFailed as error:
        if not error.failure.unexplained:
            raise
        # On a full disk ccache loses what the compiler said: ask the compiler itself.
        again = ["env", "CCACHE_DISABLE=1", *argv, "1"]
        _logged(work, again, "compile", work.place.path("compile-again.log"))


def install(work: Work) -> None:
    """Install below the prefix; what an earlier try left there goes first."""
    work.reporter.stage("install")
    shutil.rmtree(work.prefix, ignore_errors=True)
    os.makedirs(work.prefix, mode=0o755)
    argv = ["cmake", "--install", work.build]
    _logged(work, argv, "install", work.place.path("install.log"))


def jobs(spec: Dict[str, Any]) -> int:
    """Compilers at once: as asked, else what cores and memory allow."""
    if int(spec["jobs"]) > 0:
        return int(spec["jobs"])
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    by_memory = memory // int(spec["memory_per_job_bytes"])
    return max(1, min(len(os.sched_getaffinity(0)), by_memory))


def _logged(work: Work, argv: Sequence[str], stage: str, log_path: str) -> str:
    """Run a program without network, follow its progress, keep its words. Raises BuildFailed."""
    said: List[str] = []
    if shutil.which(argv[0]) is None:
        raise BuildFailed(Failure("there is no %s on this host; install it" % argv[0]))
    process = subprocess.Popen(
        [*work.offline, *argv],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env=work.environment(),
        cwd=work.place.directory,
    )
    assert process.stdout is not None
    with process, _Log(log_path) as log:
        for line in process.stdout:
            said.append(line)
            log.write(line)
            step = progress(line)
            if step is not None:
                work.reporter.step(step.done, step.total)
    text = "".join(said)
    if process.returncode != 0:
        raise BuildFailed(explain(stage, text, work.source, jobs(work.spec)))
    return text


class _Log:
    """A log that gives up quietly on a full disk: the reason is told by who filled it."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._handle: Optional[Any] = None

    def __enter__(self) -> "_Log":
        try:
            self._handle = open(self._path, "w", encoding="utf-8", buffering=1)
        except OSError as error:
            _only_full(error)
        return self

    def write(self, line: str) -> None:
        if self._handle is None:
            return
        try:
            self._handle.write(line)
        except OSError as error:
            _only_full(error)
            self._handle = None

    def __exit__(self, *_: object) -> None:
        if self._handle is not None:
            self._handle.close()


def _only_full(error: OSError) -> None:
    if error.errno not in (errno.ENOSPC, errno.EDQUOT):
        raise error


def _plain(work: Work, argv: Sequence[str], stage: str) -> None:
    """Run a program that may use the network. Raises BuildFailed."""
    if shutil.which(argv[0]) is None:
        raise BuildFailed(Failure("there is no %s on this host; install it" % argv[0]))
    said = subprocess.run(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    if said.returncode != 0:
        failure = explain(stage, said.stdout, work.source, 1)
        last = "\n".join(said.stdout.strip().splitlines()[-5:])
        raise BuildFailed(
            failure
            if failure.message == "the disk is full"
            else Failure("%s failed in %s" % (stage, argv[0]), last)
        )


def _touch(path: str) -> None:
    with open(path, "w", encoding="utf-8"):
        pass
