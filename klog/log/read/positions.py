"""Positions as users write them: an offset, "earliest", "latest", or a time.

    time := aware datetime | date: 0:00 in UTC | "now" | "-3h": 3 hours ago; ms, s, m, h, d, w
          | ISO text of a date | ISO text of a date and a time of day with its zone

A time of day without a zone is refused, as text and as a datetime: it would mean one moment here and another in UTC.
"""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING, Any, TypeAlias

from klog.arguments import LONG_MAX, LONG_MIN, whole, wrong_type

if TYPE_CHECKING:
    import datetime  # it is imported with the first time or date: that takes a millisecond

Position: TypeAlias = "int | str | datetime.date"  # a datetime is a date
_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_AGO = r"-\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|w)"


def timestamp_ms(value: str | datetime.date, now_ms: int, name: str = "start") -> int:
    """Milliseconds since 1970 of a time. Raises ValueError for a time of day without a zone, and for other text."""
    import datetime

    if isinstance(value, str):
        text = value.strip()
        if text.lower() == "now":
            return now_ms
        if match := re.fullmatch(_AGO, text):
            return max(now_ms - round(min(float(match[1]) * _UNITS_MS[match[2]], LONG_MAX)), LONG_MIN)
        value = _parsed(text, name)
    elif isinstance(value, datetime.datetime) and value.tzinfo is None:
        raise ValueError(f"{name}={value!r} names no time zone; give datetime(..., tzinfo=timezone.utc)")
    if not isinstance(value, datetime.datetime):
        value = datetime.datetime(value.year, value.month, value.day, tzinfo=datetime.UTC)
    return (value - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)) // datetime.timedelta(milliseconds=1)


def _parsed(text: str, name: str) -> datetime.date:
    """A date, or a datetime with its zone."""
    import datetime

    with contextlib.suppress(ValueError):
        return datetime.date.fromisoformat(text)
    try:
        found = datetime.datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            f"{name}={text!r} is not a position: give an offset, 'earliest', 'latest', 'now', ISO time such as "
            f"'2013-02-08T05:00Z', or '-3h' (ms, s, m, h, d, w)"
        ) from None
    if found.tzinfo is None:
        raise ValueError(f"{name}={text!r} names no time zone; for UTC give {text + 'Z'!r}")
    return found


def checked_position(name: str, value: Any, hint: str = "") -> Position:
    """The value if its type is that of a position: an int of 64 bits, text, a date. Text is parsed later."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or not hasattr(type(value), "__index__"):
        import datetime

        if isinstance(value, datetime.date):
            return value
        raise wrong_type(name, value, "an offset, text, a date or a datetime", hint)
    return whole(name, value)


def whole_number(name: str, value: int) -> int:
    """An argument as int; numpy integers are accepted. TypeError, with a hint, for anything else."""
    if type(value) is int and LONG_MIN <= value <= LONG_MAX:
        return value
    hint = "; milliseconds since 1970: round(moment.timestamp() * 1000)" if name == "ms" else ""
    return whole(name, value, hint=hint)
