"""Storage engines of a build: is there what the load uses, and does the server load it?"""

import dataclasses
import os
import re
import subprocess
from typing import Any, List

from fleetmark_agent.errors import HostError, WorkloadError
from fleetmark_agent.job import Dbms

_BUILT_IN = ("innodb", "myisam", "memory", "csv", "mrg_myisam", "aria")
_HELP_SECONDS = 60.0


def with_engines(dbms: Dbms, binary: str) -> Dbms:
    """The instance with the plugins of its engines in its config.

    Raises WorkloadError when the build has no such engine.
    """
    asked = [name for name in dbms.engines if name not in _BUILT_IN]
    if not asked:
        return dbms
    said = _help(dbms, binary)
    lines = []
    for name in asked:
        library = os.path.join(_plugin_directory(said), "ha_%s.so" % name)
        if os.path.exists(library):
            if os.path.basename(library) not in dbms.config_text:
                lines.append("plugin_load_add = ha_%s.so" % name)
        elif not re.search(r"^\s+--%s[-=\[_ ]" % re.escape(name), said, re.MULTILINE):
            raise _missing(name, library)
    return dataclasses.replace(dbms, config_text="\n".join([*lines, dbms.config_text]))


def check(dbms: Dbms, cursor: Any) -> None:
    """Raise WorkloadError when the running server does not support an engine of the load."""
    cursor.execute("SHOW ENGINES")
    rows = cursor.fetchall()
    supported = {str(row[0]).lower() for row in rows if str(row[1]).upper() in ("YES", "DEFAULT")}
    for name in dbms.engines:
        if name not in supported:
            raise _missing(name, "SHOW ENGINES: %s" % ", ".join(sorted(supported)))


def _missing(name: str, evidence: str) -> WorkloadError:
    return WorkloadError(
        "this build has no storage engine %s" % name,
        evidence=evidence,
        next_step="add to the build: engines: [%s], and provision again" % name,
    )


def _help(dbms: Dbms, binary: str) -> str:
    """What the server says of its options and their values, of plugins built in as well."""
    argv: List[str] = [binary, "--no-defaults"]
    if dbms.basedir:
        argv.append("--basedir=" + dbms.basedir)
    if os.geteuid() == 0:
        argv.append("--user=root")
    try:
        said = subprocess.run(
            [*argv, "--verbose", "--help"],
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=_HELP_SECONDS,
            cwd="/",
        )
    except subprocess.TimeoutExpired:
        raise HostError("%s did not print its options in time" % binary) from None
    return said.stdout


def _plugin_directory(said: str) -> str:
    found = re.search(r"^plugin-dir\s+(\S+)", said, re.MULTILINE)
    return found.group(1) if found else ""
