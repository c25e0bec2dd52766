"""An HTTP server thread for one collector, which knows how often it was scraped."""

import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from socketserver import TCPServer, ThreadingMixIn
from types import TracebackType
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

METRICS_PATH = "/metrics"


class AddressError(ValueError):
    """Not an address to listen on."""


def split_address(listen: str) -> tuple[str, int]:
    """`127.0.0.1:9518` or `[::1]:9518` -> host and port. Raises AddressError."""
    host, colon, port = listen.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise AddressError(f"{listen!r} is not an address and a port, as in 127.0.0.1:9518")
    return host.strip("[]"), int(port)


class MetricsServer:
    """Serves a collector at /metrics, in a thread, until it is closed.

    Port 0 takes any free port; `address` tells which. Raises AddressError for an address that
    cannot be read, OSError for one that cannot be bound.
    """

    def __init__(self, collector: Collector, listen: str) -> None:
        host, port = split_address(listen)
        registry = CollectorRegistry()
        registry.register(collector)
        self._metrics = make_wsgi_app(registry)
        self._scraped = threading.Condition()
        self._begun = 0
        self._scrapes = 0
        self._latest_answered = 0
        family, _, _, _, bound = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        server_class: type[_Server] = _Server6 if family == socket.AF_INET6 else _Server
        self._server = make_server(
            str(bound[0]), port, self._application, server_class, handler_class=_QuietHandler
        )
        shown = f"[{host}]" if ":" in host else host
        self.address = f"{shown}:{self._server.server_port}"
        self._thread = threading.Thread(
            target=self._server.serve_forever,
            kwargs={"poll_interval": 0.1},
            name="fleetmark-metrics",
            daemon=True,
        )
        self._thread.start()

    @property
    def url(self) -> str:
        """Where the metrics are."""
        return f"http://{self.address}{METRICS_PATH}"

    @property
    def scrapes(self) -> int:
        """How many scrapes have been answered in full."""
        with self._scraped:
            return self._scrapes

    def wait_for_scrape(self, timeout_seconds: float) -> bool:
        """Wait until a scrape that begins from now on has been answered; False on timeout.

        One that is under way does not count: it may have read the state of before.
        """
        with self._scraped:
            begun = self._begun
            return self._scraped.wait_for(lambda: self._latest_answered > begun, timeout_seconds)

    def close(self) -> None:
        """Stop serving and free the port."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def __enter__(self) -> "MetricsServer":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _application(
        self, environ: "WSGIEnvironment", start_response: "StartResponse"
    ) -> Iterable[bytes]:
        if environ.get("PATH_INFO") != METRICS_PATH:
            start_response("404 Not Found", [("Content-Type", "text/plain")])
            return [f"The metrics are at {METRICS_PATH}\n".encode()]
        with self._scraped:
            self._begun += 1
            number = self._begun
        parts = self._metrics(environ, start_response)
        return _Answer(parts, lambda: self._answered(number))

    def _answered(self, number: int) -> None:
        with self._scraped:
            self._scrapes += 1
            self._latest_answered = max(self._latest_answered, number)
            self._scraped.notify_all()


class _Answer:
    """A WSGI answer that is counted when it has been sent, not when it was made.

    Whoever waits for a last scrape ends the process next; the bytes must be out by then.
    """

    def __init__(self, parts: Iterable[bytes], answered: Callable[[], None]) -> None:
        self._parts = parts
        self._answered = answered

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._parts)

    def close(self) -> None:
        self._answered()


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True

    def server_bind(self) -> None:
        # The inherited one asks the resolver for our own name, which can take seconds.
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]
        self.setup_environ()


class _Server6(_Server):
    address_family = socket.AF_INET6


class _QuietHandler(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass
