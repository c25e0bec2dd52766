"""Numbers as text: sensible significant digits, thousands separated, units in the headings."""

import math
from datetime import UTC, datetime

MISSING = "–"


def number(value: float | None, digits: int = 3) -> str:
    """A number with about `digits` significant digits; whole above that many places."""
    if value is None or math.isnan(value):
        return MISSING
    if value == 0:
        return "0"
    places = digits - 1 - math.floor(math.log10(abs(value)))
    if places > 6:
        return f"{value:.{digits - 1}e}"
    return f"{value:,.{max(0, places)}f}"


def whole(value: float | None) -> str:
    """A count."""
    return MISSING if value is None else f"{value:,.0f}"


def ratio(value: float | None) -> str:
    """A ratio to two decimals."""
    return MISSING if value is None else f"{value:.2f}"


def percent(share: float | None, digits: int = 1) -> str:
    """A share as a percentage, without the sign."""
    return MISSING if share is None else f"{share * 100:.{digits}f}"


def milliseconds(microseconds: float | None) -> str:
    """Microseconds as milliseconds, without the unit."""
    return MISSING if microseconds is None else number(microseconds / 1000.0)


def size(value: float | None) -> str:
    """Bytes with a binary unit."""
    if value is None:
        return MISSING
    units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]
    power = min(len(units) - 1, int(math.log(value, 1024)) if value >= 1 else 0)
    return f"{number(value / 1024**power)} {units[power]}"


def duration(seconds: float | None) -> str:
    """Seconds as h, min and s."""
    if seconds is None:
        return MISSING
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def moment(iso: str | None) -> str:
    """An ISO 8601 time as date and time in UTC; as it is where it cannot be read."""
    found = parse_moment(iso)
    return f"{found:%Y-%m-%d %H:%M:%S} UTC" if found else (iso or MISSING)


def parse_moment(iso: str | None) -> datetime | None:
    """An ISO 8601 time; null where there is none or it cannot be read."""
    try:
        return datetime.fromisoformat(iso).astimezone(UTC) if iso else None
    except ValueError:
        return None
