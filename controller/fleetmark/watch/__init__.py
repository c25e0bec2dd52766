"""The live view and the metrics of a run, read from its directory while it is being filled."""

from fleetmark.watch.serve import Serving, scrape_config, serve, serve_during_run, write_file_sd
from fleetmark.watch.watcher import ENDED_STATES, RunWatcher

__all__ = [
    "ENDED_STATES",
    "RunWatcher",
    "Serving",
    "scrape_config",
    "serve",
    "serve_during_run",
    "write_file_sd",
]
