"""The agent's side of the clock exchange: `<t_received> <t_sent>` for each line, at once."""

import os
import time


def answer(reader: int = 0, writer: int = 1) -> None:
    """Answer each line until the end of input; seconds on this host's wall clock.

    Unbuffered: each moment between the two stamps and the wire is an error of the offset.
    """
    pending = 0
    while True:
        data = os.read(reader, 4096)
        received = time.time_ns()
        if not data:
            return
        pending += data.count(b"\n")
        while pending:
            pending -= 1
            os.write(writer, b"%s %s\n" % (_seconds(received), _seconds(time.time_ns())))


def _seconds(nanoseconds: int) -> bytes:
    return b"%d.%09d" % divmod(nanoseconds, 1_000_000_000)
