"""Prometheus metrics of a run over HTTP, during the run and after it."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml

from fleetmark.errors import ConfigError, InfrastructureError
from fleetmark.store import RunDirectory, write_atomic
from fleetmark.watch.watcher import RunWatcher
from fleetmark_exporters import rules_path
from fleetmark_exporters.collector import RunCollector
from fleetmark_exporters.server import AddressError, MetricsServer, split_address


class Serving:
    """What became of serving: `url` when it works, else `warning` says why it does not."""

    def __init__(self, server: MetricsServer | None, warning: str = "") -> None:
        self._server = server
        self.warning = warning

    @property
    def url(self) -> str:
        """Where the metrics are; empty when they are not served."""
        return self._server.url if self._server else ""

    @property
    def scrapes(self) -> int:
        """How many scrapes have been answered."""
        return self._server.scrapes if self._server else 0

    def linger(self, timeout_seconds: float) -> None:
        """Wait for one more scrape, if anybody has scraped at all."""
        if self._server and self.scrapes:
            self._server.wait_for_scrape(timeout_seconds)

    def close(self) -> None:
        """Stop serving."""
        if self._server:
            self._server.close()


def serve(directory: RunDirectory, listen: str) -> MetricsServer:
    """Serve a run until the server is closed; port 0 takes any free port.

    Raises ConfigError for an address that cannot be read, InfrastructureError for one that
    cannot be bound.
    """
    try:
        return MetricsServer(RunCollector(RunWatcher(directory).poll), listen)
    except AddressError as error:
        raise ConfigError(str(error)) from None
    except OSError as error:
        raise InfrastructureError(
            f"cannot serve metrics at {listen}: {error.strerror or error}",
            next_step="choose another address: --listen here, metrics.listen in the experiment",
        ) from None


@contextmanager
def serve_during_run(
    directory: RunDirectory, listen: str = "127.0.0.1:9518", linger_seconds: float = 20.0
) -> Iterator[Serving]:
    """Serve a run while it goes on, and linger until its last numbers have been scraped.

    A port that cannot be had is no reason to lose a run: the run goes on without metrics and
    `Serving.warning` says so. At the end it waits for one more scrape, at most
    `linger_seconds`, and not at all when nobody has scraped or the run was interrupted.
    """
    try:
        serving = Serving(serve(directory, listen))
    except InfrastructureError as error:
        serving = Serving(None, f"{error}; the run goes on without metrics")
    try:
        yield serving
        serving.linger(linger_seconds)
    finally:
        serving.close()


def scrape_config(listen: str, file_sd: Path | None = None) -> str:
    """A piece of prometheus.yml that scrapes `listen`, with our rules.

    With `file_sd` the address is read from that file (`write_file_sd`). Raises ConfigError.
    """
    _check(listen)
    where = (
        {"file_sd_configs": [{"files": [str(file_sd.absolute())]}]}
        if file_sd
        else {"static_configs": [{"targets": [listen]}]}
    )
    job = {"job_name": "fleetmark", "scrape_interval": "5s", "scrape_timeout": "4s", **where}
    config = {"rule_files": [str(rules_path())], "scrape_configs": [job]}
    return yaml.safe_dump(config, sort_keys=False)


def write_file_sd(path: Path, listen: str) -> None:
    """Write a file for Prometheus' file discovery, which it rereads at once when it changes."""
    _check(listen)
    write_atomic(path, (json.dumps([{"targets": [listen], "labels": {}}]) + "\n").encode())


def _check(listen: str) -> None:
    try:
        split_address(listen)
    except AddressError as error:
        raise ConfigError(str(error)) from None
