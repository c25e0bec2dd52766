"""Why a host cannot be reached: the libraries' exceptions in words, with what to do."""

import socket

import paramiko
from paramiko.ssh_exception import (
    AuthenticationException,
    BadHostKeyException,
    NoValidConnectionsError,
    PasswordRequiredException,
    SSHException,
)

from fleetmark.channel.known_hosts import files, lines_of, lookup_name
from fleetmark.errors import HostError
from fleetmark.inventory import Host

CONNECTION_ERRORS = (SSHException, EOFError, OSError)


def explain(error: BaseException, host: Host, proxy_said: str = "") -> HostError:
    """A HostError for anything that goes wrong on the way to a host.

    `proxy_said` is what the ProxyCommand complained about; it names the cause where there is one.
    """
    place = f"{host.address}:{host.port}"
    message, evidence, next_step = _words(error, host, place)
    if proxy_said:
        evidence = f"the ProxyCommand says: {proxy_said}"
    if host.proxy_command and (isinstance(error, EOFError | OSError) or "banner" in str(error)):
        message = f"no way to {place} by the ProxyCommand"
        next_step = f"try it: {host.proxy_command} < /dev/null"
    return HostError(message, host=host.name, evidence=evidence, next_step=next_step)


def _words(error: BaseException, host: Host, place: str) -> tuple[str, str, str]:
    """Message, evidence, next step; the most particular class first."""
    if isinstance(error, BadHostKeyException):
        return _changed_key(error, host, place)
    if isinstance(error, AuthenticationException):
        return _no_login(error, host, place)
    if isinstance(error, SSHException) and "known_hosts" in str(error):
        return _unknown_key(error, host)
    if isinstance(error, NoValidConnectionsError):
        return _no_connection(next(iter(error.errors.values())), place)
    if isinstance(error, OSError):
        return _no_connection(error, place)
    return (
        f"no SSH session with {place}",
        str(error) or type(error).__name__,
        "is an SSH server on that port, and is the host up?",
    )


def _no_login(error: AuthenticationException, host: Host, place: str) -> tuple[str, str, str]:
    if isinstance(error, PasswordRequiredException):
        return (
            "the private key is locked with a passphrase",
            str(error),
            "add it to an ssh-agent (ssh-add), or name a key without a passphrase",
        )
    return (
        f"{place} does not accept the key of user {host.user or '(default)'}",
        f"{host.key_file or 'keys of the ssh-agent and ~/.ssh'}: {error}",
        f"try it: ssh -p {host.port} {host.user + '@' if host.user else ''}{host.address}",
    )


def _no_connection(error: BaseException, place: str) -> tuple[str, str, str]:
    evidence = str(error) or type(error).__name__
    if isinstance(error, socket.gaierror):
        return f"the name of {place} does not resolve", evidence, "check ansible_host"
    if isinstance(error, ConnectionRefusedError):
        return f"{place} refuses the connection", evidence, "is sshd running on that port?"
    if isinstance(error, TimeoutError):
        return f"{place} does not answer", evidence, "is the host up, is the network open?"
    return f"{place} cannot be reached", evidence, "is the host up, is the network open?"


def _changed_key(error: BadHostKeyException, host: Host, place: str) -> tuple[str, str, str]:
    name = lookup_name(host.address, host.port)
    lines = list(lines_of(files(host.known_hosts_file), name))
    where = ", ".join(f"{line.path}:{line.line}" for line in lines) or "known_hosts"
    return (
        f"the host key of {place} is not the one in {where}; the connection was refused",
        f"expected {_fingerprint(error.expected_key)}, got {_fingerprint(error.key)}",
        "this is an attack, or the host was installed anew: find out which; only then"
        f" remove that line: ssh-keygen -R '{name}'",
    )


def _unknown_key(error: SSHException, host: Host) -> tuple[str, str, str]:
    looked = ", ".join(str(path) for path in files(host.known_hosts_file)) or "no file at all"
    flag = f"-p {host.port} " if host.port != 22 else ""
    target = host.known_hosts_file or "~/.ssh/known_hosts"
    return (
        "the host key is not known; an unverified host is not used",
        f"{error} (looked in {looked})",
        f"compare its fingerprint, then add it: ssh-keyscan {flag}{host.address} >> {target}",
    )


def _fingerprint(key: paramiko.PKey) -> str:
    return f"{key.get_name()} {key.fingerprint}"
