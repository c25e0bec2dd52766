"""Disks on the command line: the consent to wipe some, and the table of what becomes of each."""

from rich.console import Console
from rich.table import Table

from fleetmark.cli.deploy import Deployment
from fleetmark.cli.prepare import Prepared
from fleetmark.errors import ConfigError
from fleetmark.plan import Disk
from fleetmark.tuning import WipeConsent

_FATES = {
    "keep": "kept: it is as asked for",
    "format": "to be formatted",
    "wipe": "TO BE WIPED, as confirmed",
    "refuse": "refused",
    "unknown": "could not be asked",
}


def consents(prepared: Prepared, given: list[str]) -> list[WipeConsent]:
    """The experiment's consents and those of the command line. Raises ConfigError."""
    found = list(prepared.plan.confirm_wipe)
    for word in given:
        host, _, serial = word.partition(":")
        if not (host and serial):
            raise ConfigError(
                f"--confirm-wipe {word!r}: one host and one serial are named, HOST:SERIAL",
                next_step="see the disks first: fleetmark provision EXPERIMENT --check",
            )
        if host not in prepared.plan.hosts:
            raise ConfigError(
                f"--confirm-wipe: the experiment has no host {host!r}",
                evidence=f"its hosts: {', '.join(prepared.plan.hosts)}",
            )
        found.append(WipeConsent(host=host, serial=serial))
    return found


def concerned(what: Deployment) -> bool:
    """Whether this work may format anything."""
    return not what.tags or bool({"tuning", "filesystem", "nvme"} & set(what.tags))


def line(disk: Disk) -> str:
    """One disk in one line, with the reason of a refusal."""
    words = f"  {disk.host}: disk {disk.serial} for {disk.use}: {disk.contents}"
    return f"{words}; {_FATES[disk.fate]}" + (f" ({disk.why})" if disk.why else "")


def show(console: Console, found: list[Disk]) -> None:
    """Print what becomes of each disk, with the reason of each refusal below the table."""
    table = Table("host", "serial", "now on it", "for", "what becomes of it")
    for disk in found:
        table.add_row(disk.host, disk.serial, disk.contents, disk.use, _FATES[disk.fate])
    console.print(table)
    for host, why in dict.fromkeys((disk.host, disk.why) for disk in found if disk.why):
        console.print(f"{host}: {why}", markup=False)
