"""Waiting for a condition, with a bound."""

import time
from collections.abc import Callable
from typing import Any


def wait_for(condition: Callable[[], Any], what: str, seconds: float = 20.0) -> Any:
    """Poll until the condition is true; its value. TimeoutError after the bound."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise TimeoutError(f"no {what} within {seconds} s")
        time.sleep(0.01)
