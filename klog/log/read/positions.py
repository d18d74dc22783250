"""Positions as users write them: an offset, "earliest", "latest", an aware datetime, ISO text, or "-3h" for 3 h ago."""

from __future__ import annotations

import datetime
import re
from typing import Any

from klog.arguments import LONG_MAX, LONG_MIN, whole, wrong_type

Position = int | str | datetime.datetime
_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_AGO = re.compile(r"-\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|w)")


def timestamp_ms(value: str | datetime.datetime, now_ms: int, name: str = "start") -> int:
    """Milliseconds since 1970 of an aware datetime, ISO text (UTC unless it names a zone) or "-3h".

    Raises ValueError for a naive datetime and for text that is neither.
    """
    if isinstance(value, datetime.datetime):
        if value.tzinfo is None:
            raise ValueError(f"{name}={value!r} names no time zone; give datetime(..., tzinfo=timezone.utc)")
        delta = value - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
        return delta // datetime.timedelta(milliseconds=1)
    match = _AGO.fullmatch(value.strip())
    if match:
        return now_ms - round(float(match[1]) * _UNITS_MS[match[2]])
    try:
        parsed = datetime.datetime.fromisoformat(value.strip())
    except ValueError:
        raise ValueError(
            f"{name}={value!r} is not a position: give an offset, 'earliest', 'latest', ISO time such as "
            f"'2013-02-08T05:00Z', or '-3h' (ms, s, m, h, d, w)"
        ) from None
    return timestamp_ms(parsed if parsed.tzinfo else parsed.replace(tzinfo=datetime.UTC), now_ms, name)


def checked_position(name: str, value: Any, hint: str = "") -> Position:
    """The value if its type is that of a position: an int of 64 bits, text, a datetime. Text is parsed later."""
    if isinstance(value, str | datetime.datetime):
        return value
    if isinstance(value, bool) or not hasattr(type(value), "__index__"):
        raise wrong_type(name, value, "an offset, text or datetime", hint)
    return whole(name, value)


def whole_number(name: str, value: int) -> int:
    """An argument as int; numpy integers are accepted. TypeError, with a hint, for anything else."""
    if type(value) is int and LONG_MIN <= value <= LONG_MAX:
        return value
    hint = "; milliseconds since 1970: round(moment.timestamp() * 1000)" if name == "ms" else ""
    return whole(name, value, hint=hint)
