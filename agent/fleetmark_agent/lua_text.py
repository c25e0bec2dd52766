"""Values as Lua source text, quoted so that no value can be read as code."""

import math
from typing import Any, Union


def to_lua(value: Any) -> str:
    """A Lua expression for None, booleans, numbers, strings, lists and string-keyed dicts.

    Raises TypeError for anything else and ValueError for a number that Lua cannot write.
    """
    if value is None:
        return "nil"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return _number(value)
    if isinstance(value, str):
        return _quote(value)
    return _table(value)


def _number(value: Union[int, float]) -> str:
    if not math.isfinite(value) or (isinstance(value, int) and abs(value) > 2**53):
        raise ValueError("%r is not a number that Lua can hold" % value)
    return repr(value)


def _table(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return "{" + ",".join(to_lua(item) for item in value) + "}"
    if isinstance(value, dict):
        return "{" + ",".join(_pair(key, item) for key, item in value.items()) + "}"
    raise TypeError("no Lua form of %s" % type(value).__name__)


def _pair(key: Any, value: Any) -> str:
    if not isinstance(key, str):
        raise TypeError("a Lua table from a dict has string keys, not %r" % (key,))
    return "[%s]=%s" % (_quote(key), to_lua(value))


def _quote(text: str) -> str:
    """Every byte but plain letters, digits and a few harmless signs as a decimal escape."""
    parts = []
    for byte in text.encode("utf-8"):
        char = chr(byte)
        plain = char.isascii() and (char.isalnum() or char in " _-./:")
        parts.append(char if plain else "\\%03d" % byte)
    return '"' + "".join(parts) + '"'
