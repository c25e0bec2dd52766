"""What a build says: how far it is, and why it failed. Pure: text in, words out."""

import os
import re
from dataclasses import dataclass
from typing import List, Optional, Tuple

_NINJA = re.compile(r"^\[(\d+)/(\d+)\] ?(.*)")
_MAKE = re.compile(r"^\[ *(\d+)%\] ?(.*)")
_DOWNLOAD = re.compile(
    r"could ?n[o']t resolve host|Performing download step|file DOWNLOAD|^-- Downloading|"
    r"[Dd]ownload(?:ing)?\b.*https?://|Failed to connect to 127\.0\.0\.1 port 9\b",
    re.IGNORECASE | re.MULTILINE,
)
_FULL = re.compile(r"No space left on device|Disk quota exceeded")
_KILLED = re.compile(
    r"Killed signal terminated program|signal 9 \[Killed\]|: Killed\b|^Killed\b", re.M
)
_COMPILER_ERROR = re.compile(r"^(\S[^:\n]*):(\d+):(?:\d+:)? (?:fatal )?error: (.*)$")
_OTHER_ERRORS = (
    re.compile(r"^CMake Error\b.*$"),
    re.compile(r"^.*(?:undefined reference to|cannot find -l|multiple definition of).*$"),
    re.compile(
        r"^.*\b(?:collect2|ld|ninja|c\+\+|cc1plus|g\+\+|gcc|clang).*: (?:fatal )?error: .*$"
    ),
    re.compile(r"^.*\berror: .*$", re.IGNORECASE),
    re.compile(r"^FAILED: .*$"),
    re.compile(r"^make(?:\[\d+\])?: \*\*\* .*$"),
)
_ONLY_REPEATS = (re.compile(r"^FAILED: "), re.compile(r"^make(?:\[\d+\])?: \*\*\*"))
_CONTEXT_LINES = 6
_UNUSED = re.compile(
    r"Manually-specified variables were not used by the project:\s*\n((?:\s+\S+\n|\s*\n)+)"
)


@dataclass(frozen=True)
class Progress:
    """How far the compile is: `done` of `total` steps (percent where the tool counts so)."""

    done: int
    total: int
    step: str


@dataclass(frozen=True)
class Failure:
    """Why a build failed, in words for the person who has to mend it.

    `unexplained` when the log only says that something failed, and not why.
    """

    message: str
    evidence: str = ""
    next_step: str = ""
    unexplained: bool = False


def progress(line: str) -> Optional[Progress]:
    """The progress that one line of ninja's or make's output tells, if it tells one."""
    found = _NINJA.match(line)
    if found:
        return Progress(int(found.group(1)), int(found.group(2)), found.group(3))
    found = _MAKE.match(line)
    if found:
        return Progress(int(found.group(1)), 100, found.group(2))
    return None


def first_error(log: str) -> Tuple[str, List[str]]:
    """The first error of a log and the lines after it; ("", last lines) when none is found.

    A compiler's error with file and line goes before what linkers and make tools say, also
    when it comes later: those only repeat that something failed.
    """
    lines = log.splitlines()
    for number, line in enumerate(lines):
        if _COMPILER_ERROR.match(line):
            return line, _context(lines, number)
    for pattern in _OTHER_ERRORS:
        for number, line in enumerate(lines):
            if pattern.match(line):
                return line.strip(), _context(lines, number)
    return "", lines[-_CONTEXT_LINES:]


def _context(lines: List[str], number: int) -> List[str]:
    context: List[str] = []
    for line in lines[number : number + _CONTEXT_LINES]:
        if context and progress(line):
            break
        context.append(line)
    return context


def explain(stage: str, log: str, source: str, jobs: int) -> Failure:
    """Why a stage (configure, compile, install) failed.

    Causes that lie outside the source come first: a full disk or a killed compiler shows as an
    error in whatever file was just being compiled.
    """
    where = "while it did the stage `%s`" % stage
    if _FULL.search(log):
        return Failure(
            "the disk is full",
            _line_of(log, _FULL),
            "free some space below the base directory, then run it again: it goes on from here",
        )
    if _KILLED.search(log):
        return Failure(
            "a compiler was killed, most likely because memory ran out (%d jobs)" % jobs,
            _line_of(log, _KILLED),
            "use fewer jobs (dbms_build_jobs), then run it again: it goes on from here",
        )
    if _DOWNLOAD.search(log):
        return Failure(
            "the source tried to download something %s, and a build must not" % where,
            _line_of(log, _DOWNLOAD),
            "install the library from the distribution, or set the flag that takes the system's or"
            " the bundled copy",
        )
    line, context = first_error(log)
    prefix = os.path.join(source, "")
    shorter = [text.replace(prefix, "").replace("../source/", "") for text in [line, *context]]
    message = shorter[0] or "no error was found in its log"
    unexplained = not line or any(pattern.match(line) for pattern in _ONLY_REPEATS)
    evidence = "\n".join(shorter[1:])
    return Failure("%s failed: %s" % (stage, message), evidence, unexplained=unexplained)


def _line_of(log: str, pattern: "re.Pattern[str]") -> str:
    found = pattern.search(log)
    assert found is not None
    begin = log.rfind("\n", 0, found.start()) + 1
    end = log.find("\n", found.end())
    return log[begin : end if end >= 0 else len(log)].strip()


def unused_flags(log: str) -> List[str]:
    """The options that cmake was given and that the source does not know."""
    found = _UNUSED.search(log)
    return found.group(1).split() if found else []


def duration(seconds: float) -> str:
    """A time for people: 42 s, 3 min 05 s, 1 h 02 min."""
    whole = int(seconds)
    if whole < 60:
        return "%d s" % whole
    if whole < 3600:
        return "%d min %02d s" % divmod(whole, 60)
    return "%d h %02d min" % divmod(whole // 60, 60)
