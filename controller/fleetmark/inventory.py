"""The inventory: an ordinary Ansible inventory -> hosts and groups.

Ansible's own loader reads it, so anything Ansible reads works here. Passwords in it are left
to Ansible: they are never read into a Host, so they cannot be printed or stored.
"""

import contextlib
import difflib
import io
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from fleetmark.errors import ConfigError

_PREFIX = "fleetmark_"
_OUR_VARIABLES = (
    "fleetmark_base_dir",
    "fleetmark_data_dir",
    "fleetmark_db_port",
    "fleetmark_db_address",
)
_SSH_ARGUMENTS = ("ansible_ssh_args", "ansible_ssh_common_args", "ansible_ssh_extra_args")
_HOST_KEY_SWITCHES = ("ansible_host_key_checking", "ansible_ssh_host_key_checking")


@dataclass(frozen=True)
class Host:
    """One machine, and how to reach it.

    Read from the usual Ansible variables, and from these of our own: `fleetmark_base_dir`
    (the agent's home, default /var/lib/fleetmark), `fleetmark_data_dir` (where instances
    keep their data, default <base>/data), `fleetmark_db_port` (default 3306) and
    `fleetmark_db_address` (where load hosts reach the DBMS, default the host's address).
    `proxy_command` is a shell command that carries the bytes of the SSH connection, complete.
    """

    name: str
    address: str
    connection: Literal["ssh", "local"] = "ssh"
    port: int = 22
    user: str = ""
    key_file: str = ""
    known_hosts_file: str = ""
    proxy_command: str = ""
    python: str = "python3"
    become: bool = False
    base_dir: str = "/var/lib/fleetmark"
    data_dir: str = "/var/lib/fleetmark/data"
    db_port: int = 3306
    db_address: str = ""

    @property
    def agent(self) -> str:
        """Where the agent's zipapp lies on the host."""
        return f"{self.base_dir}/agent/fleetmark-agent.pyz"


@dataclass(frozen=True)
class Fleet:
    """All hosts of an inventory by name, and the members of its groups, both in file order."""

    source: str
    hosts: dict[str, Host]
    groups: dict[str, list[str]] = field(default_factory=dict)


def load(path: Path) -> Fleet:
    """Read an inventory: a file or directory in any form that Ansible reads.

    Raises ConfigError for a missing or unreadable inventory, one without hosts, an unknown
    `fleetmark_*` variable, a value that does not fit, and host keys that would go unchecked.
    """
    if not path.exists():
        raise ConfigError(
            f"there is no inventory {path}",
            next_step="name one with --inventory, or write one with fleetmark init",
        )
    inventory, variables_of = _read(path)
    if not inventory.hosts:
        raise ConfigError(f"the inventory {path} has no hosts")
    hosts = {
        name: _host(_Reader(path, name, *variables_of(host)))
        for name, host in inventory.hosts.items()
    }
    groups = {
        name: [host.name for host in group.get_hosts()]
        for name, group in inventory.groups.items()
        if name != "ungrouped" or group.get_hosts()
    }
    return Fleet(source=str(path), hosts=hosts, groups=groups)


def _read(path: Path) -> tuple[Any, Callable[[Any], tuple[Mapping[str, Any], Any]]]:
    """Ansible's inventory, and a function from its hosts to their variables and templar."""
    # Imported here because it takes a quarter of a second, which most verbs need not wait for.
    from ansible import constants  # noqa: PLC0415
    from ansible.errors import AnsibleError  # noqa: PLC0415
    from ansible.inventory.manager import InventoryManager  # noqa: PLC0415
    from ansible.parsing.dataloader import DataLoader  # noqa: PLC0415
    from ansible.plugins.loader import init_plugin_loader  # noqa: PLC0415
    from ansible.template import Templar  # noqa: PLC0415
    from ansible.utils.collection_loader import AnsibleCollectionConfig  # noqa: PLC0415
    from ansible.vars.manager import VariableManager  # noqa: PLC0415

    # Otherwise Ansible warns, goes on, and the fleet would silently be smaller than written.
    constants.INVENTORY_ANY_UNPARSED_IS_FAILED = True
    if AnsibleCollectionConfig.collection_finder is None:
        # Inventory plugins of collections (clouds) are found only after this.
        init_plugin_loader()
    loader = DataLoader()
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
            inventory = InventoryManager(loader=loader, sources=[str(path)])
            manager = VariableManager(loader=loader, inventory=inventory)
    except AnsibleError as error:
        raise ConfigError(
            f"Ansible cannot read the inventory {path}",
            evidence=_reason(said.getvalue()) or str(error),
            next_step=f"try it alone: ansible-inventory -i {path} --list",
        ) from None

    def variables_of(host: Any) -> tuple[Mapping[str, Any], Any]:
        variables = manager.get_vars(host=host, include_hostvars=False)
        return variables, Templar(loader=loader, variables=variables)

    return inventory, variables_of


def _reason(said: str) -> str:
    """The heart of Ansible's words: those of the plugin that tried first, and the place.

    Every inventory plugin adds its own complaint and repeats it with its cause.
    """
    first = " ".join(said.split()).split("[WARNING]: ")[1:2]
    if not first:
        return ""
    found = re.match(r"Failed to parse .*? plugin: (.*?) Failed to parse .*Origin: (\S+)", first[0])
    return f"{found[2]}: {found[1]}" if found else first[0]


@dataclass(frozen=True)
class _Reader:
    """One host's variables; templates are resolved when a value is asked for."""

    path: Path
    host: str
    variables: Mapping[str, Any]
    templar: Any

    def error(self, text: str, next_step: str = "") -> ConfigError:
        return ConfigError(f"{self.path}: host {self.host!r}: {text}", next_step=next_step)

    def value(self, *names: str) -> Any:
        """The first of these variables that is set; None when none is."""
        from ansible.errors import AnsibleError  # noqa: PLC0415

        for name in names:
            if name in self.variables:
                try:
                    return self.templar.template(self.variables[name])
                except AnsibleError as error:
                    raise self.error(f"{name}: {' '.join(str(error).split())}") from None
        return None

    def text(self, *names: str, default: str = "") -> str:
        value = self.value(*names)
        return default if value is None else str(value)

    def port(self, *names: str, default: int) -> int:
        value = self.value(*names)
        if value is None:
            return default
        if not str(value).isdecimal() or not 0 < int(value) < 65536:
            raise self.error(f"{names[0]} is {value!r}, which is no port number")
        return int(value)

    def switch(self, *names: str) -> bool | None:
        value = self.value(*names)
        return None if value is None else str(value).lower() in {"true", "yes", "on", "1", "y", "t"}

    def directory(self, name: str, default: str) -> str:
        value = self.text(name, default=default).rstrip("/")
        if not value.startswith("/"):
            raise self.error(f"{name} is {value!r}; it must be an absolute path below /")
        return value


def _host(read: _Reader) -> Host:
    _refuse_unknown(read)
    ssh_options = _ssh_options(read)
    _refuse_unchecked_keys(read, ssh_options)
    connection = _connection(read)
    address = read.text("ansible_host", "ansible_ssh_host", default=read.host)
    if connection == "local":
        address = "127.0.0.1"
    port = read.port("ansible_port", "ansible_ssh_port", default=Host.port)
    user = read.text("ansible_user", "ansible_ssh_user")
    python = read.text("ansible_python_interpreter", default="auto")
    base_dir = read.directory("fleetmark_base_dir", Host.base_dir)
    return Host(
        name=read.host,
        address=address,
        connection=connection,
        port=port,
        user=user,
        key_file=_file(read.text("ansible_ssh_private_key_file", "ansible_private_key_file")),
        known_hosts_file=_file(ssh_options.get("userknownhostsfile", "").split(" ")[0]),
        proxy_command=_proxy_command(ssh_options, address, port, user),
        python=Host.python if python.startswith("auto") else python,
        become=bool(read.switch("ansible_become")),
        base_dir=base_dir,
        data_dir=read.directory("fleetmark_data_dir", f"{base_dir}/data"),
        db_port=read.port("fleetmark_db_port", default=Host.db_port),
        db_address=read.text("fleetmark_db_address", default=address),
    )


def _refuse_unknown(read: _Reader) -> None:
    for name in read.variables:
        if str(name).startswith(_PREFIX) and name not in _OUR_VARIABLES:
            near = difflib.get_close_matches(str(name), _OUR_VARIABLES, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise read.error(
                f"unknown variable {str(name)!r}{hint}",
                next_step=f"the known ones are {', '.join(_OUR_VARIABLES)}",
            )


def _connection(read: _Reader) -> Literal["ssh", "local"]:
    name = read.text("ansible_connection", default="ssh").removeprefix("ansible.builtin.")
    if name == "local":
        return "local"
    if name in {"ssh", "smart"}:
        return "ssh"
    raise read.error(f"ansible_connection is {name!r}", next_step="ssh and local are supported")


def _ssh_options(read: _Reader) -> dict[str, str]:
    """The `-o Name=value` options of the SSH arguments, names in small letters.

    ssh takes the first value that it meets, in the order in which Ansible passes them.
    """
    options: dict[str, str] = {}
    for variable in _SSH_ARGUMENTS:
        try:
            words = shlex.split(read.text(variable))
        except ValueError as error:
            raise read.error(f"{variable}: {error}") from None
        for place, word in enumerate(words):
            argument = word[2:] or " ".join(words[place + 1 : place + 2])
            if word.startswith("-o"):
                name, value = re.split(r"\s*=\s*|\s+|$", f"{argument.strip()} ", maxsplit=1)
                options.setdefault(name.lower(), value.strip())
            elif word.startswith("-J"):
                options.setdefault("proxyjump", argument)
    return options


def _proxy_command(options: Mapping[str, str], address: str, port: int, user: str) -> str:
    """ProxyCommand with its tokens replaced, or what ssh itself does for ProxyJump.

    Which of the two comes first does not matter here: an inventory that sets both is odd. ssh
    checks the keys of jump hosts by the user's own files, as it does under Ansible.
    """
    command = options.get("proxycommand", "none")
    jumps = options.get("proxyjump", "none")
    if command.lower() == "none" and jumps.lower() != "none":
        before, _, last = jumps.rpartition(",")
        words = ["ssh", *(["-J", before] if before else []), "-W", "[%h]:%p"]
        words += ["-o", "BatchMode=yes", "-o", "ServerAliveInterval=5", *_destination(last)]
        command = shlex.join(words)
    if command.lower() == "none":
        return ""
    tokens = {"%h": address, "%n": address, "%p": str(port), "%r": user, "%%": "%"}
    return re.sub(r"%[hnpr%]", lambda found: tokens[found[0]], command)


def _destination(jump: str) -> list[str]:
    """A jump host, `[user@]host[:port]`, in the words of ssh's command line."""
    place, colon, port = jump.rpartition(":")
    if colon and port.isdecimal():
        return ["-p", port, place.strip("[]")]
    return [jump]


def _refuse_unchecked_keys(read: _Reader, ssh_options: Mapping[str, str]) -> None:
    off = ssh_options.get("stricthostkeychecking", "yes").lower() in {"no", "off"}
    if off or read.switch(*_HOST_KEY_SWITCHES) is False:
        raise read.error(
            "host key checking is switched off",
            next_step="record the key instead: ssh-keyscan HOST >> known_hosts, compare it with"
            " the machine's own, and name the file by UserKnownHostsFile",
        )


def _file(path: str) -> str:
    return str(Path(path).expanduser().absolute()) if path else ""
