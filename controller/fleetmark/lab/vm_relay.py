"""Pass bytes between standard input and output and a TCP port; SSH's ProxyCommand of vm labs.

Run by path inside the lab's network namespace, by any Python 3 and without the package:

    nsenter --net=/run/netns/NAME python3 -I -S vm_relay.py ADDRESS PORT
"""

import os
import selectors
import socket
import sys

_CONNECT_SECONDS = 10.0
_SILENT_MILLISECONDS = 20_000
_CHUNK_BYTES = 1 << 16


def main() -> int:
    """Relay until the server closes, or both sides have. Exit code 1: no connection."""
    address, port = sys.argv[1], int(sys.argv[2])
    try:
        server = socket.create_connection((address, port), timeout=_CONNECT_SECONDS)
    except OSError as error:
        sys.stderr.write(f"{address}:{port}: {error.strerror or error}\n")
        return 1
    server.settimeout(None)
    server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # A host that was powered off says nothing: it is given up like any that SSH reaches itself.
    server.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _SILENT_MILLISECONDS)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    server.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 5)
    server.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5)
    try:
        _relay(server)
    except OSError as error:
        sys.stderr.write(f"{address}:{port}: {error.strerror or error}\n")
    return 0


def _relay(server: socket.socket) -> None:
    events = selectors.DefaultSelector()
    events.register(0, selectors.EVENT_READ)
    events.register(server, selectors.EVENT_READ)
    while True:
        for key, _ in events.select():
            if key.fd == 0:
                data = os.read(0, _CHUNK_BYTES)
                if data:
                    server.sendall(data)
                else:
                    events.unregister(0)
                    server.shutdown(socket.SHUT_WR)
            else:
                data = server.recv(_CHUNK_BYTES)
                if not data:
                    return
                while data:
                    data = data[os.write(1, data) :]


if __name__ == "__main__":
    sys.exit(main())
