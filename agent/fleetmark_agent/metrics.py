"""Prometheus text of the running job, from its own journal records: no extra measuring.

All names begin with `fleetmark_agent_`; run, trial and step stand in one info metric alone, so
that series do not multiply with runs.
"""

import threading
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Tuple

from fleetmark_agent import histogram, journal
from fleetmark_agent.job import Job

_BUCKET_OCTAVES = range(6, 25)
"""Bucket bounds of the latency histogram: 64 us to 16 s, doubling."""

_COUNTERS = {
    "operations": "Operations done.",
    "rows": "Rows inserted, deleted, or fetched.",
    "statements": "Statements sent.",
    "retries": "Transactions tried again.",
    "reconnects": "Connections made again.",
}


class _StreamState:
    def __init__(self) -> None:
        self.counters: Dict[str, int] = dict.fromkeys(_COUNTERS, 0)
        self.errors: Dict[str, int] = {}
        self.service: histogram.Sparse = {}
        self.threads = 0
        self.lag_seconds = 0.0

    def add(self, record: Mapping[str, Any]) -> None:
        for name in self.counters:
            self.counters[name] += record[name]
        for kind, count in record["errors"].items():
            self.errors[kind] = self.errors.get(kind, 0) + count
        self.service = histogram.merge([self.service, histogram.from_pairs(record["service"])])
        self.threads = record["threads"]
        self.lag_seconds = record["lag_seconds"]


def prometheus_buckets(counts: Mapping[int, int]) -> List[Tuple[str, float]]:
    """Cumulative classic buckets in seconds; exact, since each bound is a bucket's bound."""
    buckets = []
    for octave in _BUCKET_OCTAVES:
        limit = octave * histogram.SUB_BUCKETS
        below = sum(count for bucket, count in counts.items() if bucket < limit)
        buckets.append((repr(2**octave / 1e6), float(below)))
    buckets.append(("+Inf", float(histogram.count_of(counts))))
    return buckets


class MetricsServer:
    """Serves what `observe` was told, on `address` (`host:port`; empty switches it off)."""

    def __init__(self, job: Job, address: str) -> None:
        self._job = job
        self._address = address
        self._lock = threading.Lock()
        self._streams: Dict[str, _StreamState] = {}
        self._state = "new"
        self._cost_seconds = 0.0
        self._server: Any = None

    def start(self, note: Callable[[str, str], None]) -> None:
        """Begin to serve; a port that is taken is noted and no error."""
        if self._address:
            # In a thread: importing the library takes longer than connecting a load.
            threading.Thread(target=self._serve, args=(note,), name="metrics", daemon=True).start()

    def _serve(self, note: Callable[[str, str], None]) -> None:
        from prometheus_client import CollectorRegistry, start_http_server

        registry = CollectorRegistry()
        registry.register(self)
        host, _, port = self._address.rpartition(":")
        try:
            self._server, _ = start_http_server(int(port), host, registry)
        except (OSError, OverflowError, ValueError) as error:
            note("info", "no metrics at %s: %s" % (self._address, error))

    def observe(self, kind: str, record: Mapping[str, Any]) -> None:
        """Take in a journal record."""
        with self._lock:
            if kind == journal.LOAD:
                self._streams.setdefault(record["stream"], _StreamState()).add(record)
            elif kind == journal.HOST:
                self._cost_seconds += record["cost_seconds"]
            elif kind in (journal.ARMED, journal.READY, journal.RELEASED, journal.ENDED):
                self._state = kind

    def describe(self) -> List[Any]:
        """Nothing: the registry then does not collect at registration."""
        return []

    def collect(self) -> Iterator[Any]:
        """New metric objects for each scrape, since scrapes may overlap."""

        with self._lock:
            metrics = [*self._job_metrics(), *self._counters(), *self._gauges(), self._latency()]
        yield from metrics

    def _job_metrics(self) -> Iterator[Any]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily

        names = {"run": self._job.run, "trial": self._job.trial, "step": self._job.step}
        yield InfoMetricFamily("fleetmark_agent_job", "The job.", {**names, "host": self._job.host})
        state = GaugeMetricFamily(
            "fleetmark_agent_job_state", "1 for the job's state.", labels=["state"]
        )
        state.add_metric([self._state], 1.0)
        yield state
        yield CounterMetricFamily(
            "fleetmark_agent_cpu_seconds", "CPU of the agent itself.", self._cost_seconds
        )

    def _counters(self) -> Iterator[Any]:
        from prometheus_client.core import CounterMetricFamily

        for name, text in _COUNTERS.items():
            counter = CounterMetricFamily("fleetmark_agent_" + name, text, labels=["stream"])
            for stream, state in self._streams.items():
                counter.add_metric([stream], float(state.counters[name]))
            yield counter
        errors = CounterMetricFamily(
            "fleetmark_agent_errors", "Errors by kind.", labels=["stream", "kind"]
        )
        for stream, state in self._streams.items():
            for kind, count in state.errors.items():
                errors.add_metric([stream, kind], float(count))
        yield errors

    def _gauges(self) -> Iterator[Any]:
        from prometheus_client.core import GaugeMetricFamily

        threads = GaugeMetricFamily(
            "fleetmark_agent_threads", "Threads that run.", labels=["stream"]
        )
        lag = GaugeMetricFamily(
            "fleetmark_agent_lag_seconds", "How far behind its schedule.", labels=["stream"]
        )
        for stream, state in self._streams.items():
            threads.add_metric([stream], float(state.threads))
            lag.add_metric([stream], state.lag_seconds)
        yield threads
        yield lag

    def _latency(self) -> Any:
        from prometheus_client.core import HistogramMetricFamily

        family = HistogramMetricFamily(
            "fleetmark_agent_service_seconds",
            "Latency of operations from the moment they were sent.",
            labels=["stream"],
        )
        for stream, state in self._streams.items():
            family.add_metric([stream], prometheus_buckets(state.service), sum_value=None)
        return family

    def close(self) -> None:
        """Stop serving."""
        server: Optional[Any] = self._server
        if server is not None:
            server.shutdown()
            server.server_close()
