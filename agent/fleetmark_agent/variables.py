"""Whether a variable is in effect: what was asked, against what the server says.

The two write the same thing in many ways: ON and 1, 1G and 1073741824, a path with and without
a slash, an enumeration by name and by number.
"""

import os
import re
from dataclasses import dataclass
from typing import Dict, List, Mapping, Optional, Tuple

_SUFFIXES = {"k": 10, "m": 20, "g": 30, "t": 40, "p": 50, "e": 60}
_SIZE = re.compile(r"([+-]?\d+)\s*([kmgtpe])b?", re.IGNORECASE)
_TRUE = ("on", "1", "true", "yes", "")
_FALSE = ("off", "0", "false", "no")
_PREFIXES = ("skip_", "disable_", "enable_")


@dataclass(frozen=True)
class Kind:
    """What the server says about a variable: its type and the names it may have."""

    type: str
    names: Tuple[str, ...] = ()


@dataclass(frozen=True)
class Comparison:
    """What became of the variables that were asked for."""

    mismatches: List[Dict[str, Optional[str]]]
    unchecked: List[str]
    """Options that the server took but does not show, or shows in words that it does not list."""


def variable_name(option: str) -> str:
    """An option's name as SHOW VARIABLES has it."""
    name = option.strip().lower().replace("-", "_")
    return name[len("loose_") :] if name.startswith("loose_") else name


def as_number(text: str) -> Optional[float]:
    """A number, also with a size suffix; None when it is none."""
    match = _SIZE.fullmatch(text.strip())
    if match:
        return int(match.group(1)) << _SUFFIXES[match.group(2).lower()]
    try:
        return float(text)
    except ValueError:
        return None


def same(asked: str, effective: str, kind: Kind) -> bool:
    """Whether the effective value is what was asked for."""
    asked, effective = asked.strip().strip("\"'"), effective.strip()
    if asked.lower() == effective.lower():
        return True
    return (
        _same_boolean(asked, effective)
        or _same_number(asked, effective)
        or _same_name(asked, effective, kind)
        or _same_set(asked, effective)
        or _same_path(asked, effective)
    )


def _same_boolean(asked: str, effective: str) -> bool:
    # The server's value must be a word: a number that happens to be 1 is no boolean.
    if effective.lower() in ("on", "yes", "true"):
        return asked.lower() in _TRUE
    return effective.lower() in ("off", "no", "false") and asked.lower() in _FALSE


def _same_number(asked: str, effective: str) -> bool:
    number = as_number(asked)
    if number is None and asked.lower() in ("on", "true", "off", "false"):
        number = 1.0 if asked.lower() in _TRUE else 0.0
    other = as_number(effective)
    return number is not None and other is not None and number == other


def _same_name(asked: str, effective: str, kind: Kind) -> bool:
    names = [name.lower() for name in kind.names]
    if not asked.isdigit() or effective.lower() not in names or kind.type not in ("ENUM", ""):
        return False
    return int(asked) == names.index(effective.lower())


def _same_set(asked: str, effective: str) -> bool:
    """Flags in any order; of `name=on` flags only those that were asked for."""
    wanted = {item.strip().lower() for item in asked.split(",") if item.strip()}
    have = {item.strip().lower() for item in effective.split(",") if item.strip()}
    if wanted and all("=" in item for item in wanted):
        return wanted <= have
    return "," in asked + effective and wanted == have


def _same_path(asked: str, effective: str) -> bool:
    if "/" not in asked and "/" not in effective:
        return False
    if not asked or not effective:
        return False
    return os.path.normpath(asked) == os.path.normpath(effective) or (
        not asked.startswith("/") and os.path.normpath(effective).endswith(os.path.normpath(asked))
    )


def compare(
    asked: Mapping[str, Optional[str]], effective: Mapping[str, str], kinds: Mapping[str, Kind]
) -> Comparison:
    """Check each asked option against all of SHOW GLOBAL VARIABLES."""
    mismatches: List[Dict[str, Optional[str]]] = []
    unchecked: List[str] = []
    for option, value in asked.items():
        name, wanted = _resolve(variable_name(option), value, effective)
        if name is None:
            unchecked.append(option)
            continue
        kind = kinds.get(name, Kind(""))
        if same(wanted, effective[name], kind):
            continue
        if _may_be_enumeration(wanted, effective[name], kind):
            unchecked.append(option)
        else:
            mismatches.append({"name": option, "asked": value, "effective": effective[name]})
    return Comparison(mismatches, unchecked)


def _may_be_enumeration(wanted: str, effective: str, kind: Kind) -> bool:
    """A number that was answered with a word, by a server that does not tell its words."""
    is_word = re.fullmatch(r"[A-Za-z_]\w*", effective) is not None
    boolean = effective.lower() in _TRUE + _FALSE
    return wanted.isdigit() and is_word and not boolean and not kind.names


def _resolve(
    name: str, value: Optional[str], effective: Mapping[str, str]
) -> Tuple[Optional[str], str]:
    """The variable behind an option, and the value it should have."""
    wanted = "" if value is None else str(value)
    if name in effective:
        return name, wanted
    for prefix in _PREFIXES:
        rest = name[len(prefix) :]
        if name.startswith(prefix) and rest in effective:
            on = (prefix == "enable_") == (wanted.lower() in _TRUE)
            return rest, "ON" if on else "OFF"
    return None, wanted
