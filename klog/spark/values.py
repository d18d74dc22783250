"""Parses the text of one option each into a plain value. Pure: no file, no clock.

Each function takes the text and the option's name, and raises ValueError with the name, the text and what to give
instead.

    TIME     := milliseconds since 1970 | ISO-8601 of a date and a time of day with its zone, or of a date | AGO | "now"
    AGO      := "-10m": 10 minutes before the query is planned; units ms, s, m, h, d, w
    SIZE     := bytes | number and unit k, m, g, t, powers of 1024 as in Spark: "64m"
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any

from klog.config.nearest import distance, nearest
from klog.spark.bounds import Bound

INT64_MAX = (1 << 63) - 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NUMBER = re.compile(r"[+-]?[0-9]{1,30}")
_DIGITS = re.compile(r"[0-9]{1,30}")
_PARTITION = re.compile(r"0|[1-9][0-9]{0,9}")
_AGO = re.compile(r"-\s*([0-9]{1,18})\s*(ms|s|m|h|d|w)")
_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_SIZE = re.compile(r"([0-9]{1,18})\s*(?:([kmgt])(?:i?b)?)?")
_SIZE_UNITS = {None: 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def boolean(value: str, option: str) -> bool:
    return word(value, option, ("true", "false")) == "true"


def word(value: str, option: str, words: Sequence[str]) -> str:
    """Return the one of `words` that this is, in any case."""
    for known in words:
        if value.strip().lower() == known.lower():
            return known
    listing = f"{', '.join(repr(known) for known in words[:-1])} or {words[-1]!r}"
    raise ValueError(f"option '{option}' must be {listing}, not {value!r}")


def words(value: str, option: str, known: Sequence[str]) -> tuple[str, ...]:
    """Return the names in a list with commas, each of them known, in any case."""
    by_name = {name.lower(): name for name in known}
    named = [part.strip() for part in value.split(",") if part.strip()]
    for name in named:
        if name.lower() not in by_name:
            raise ValueError(f"option '{option}' names {name!r}, which is unknown; use some of {', '.join(known)}")
    if not named:
        raise ValueError(f"option '{option}' = {value!r} names nothing; use some of {', '.join(known)}, with commas")
    return tuple(dict.fromkeys(by_name[name.lower()] for name in named))


def count(value: str, option: str, most: int = INT64_MAX) -> int:
    """A whole number from 1 to `most`."""
    number = int(value) if _DIGITS.fullmatch(value.strip()) else 0
    if not 1 <= number <= INT64_MAX:
        raise ValueError(f"option '{option}' must be a whole number from 1 on, not {value!r}")
    if number > most:
        raise ValueError(f"option '{option}' must be at most {most}, not {value!r}")
    return number


def size(value: str, option: str, least: int = 1) -> int:
    """SIZE in bytes, from `least` on."""
    match = _SIZE.fullmatch(value.strip().lower())
    number = int(match[1]) * _SIZE_UNITS[match[2]] if match else 0
    if not 1 <= number <= INT64_MAX:
        raise ValueError(f"option '{option}' must be a number of bytes such as 67108864 or 64m, not {value!r}")
    if number < least:
        raise ValueError(
            f"option '{option}' must be at least {least} bytes, not {value!r}; is a unit such as 'm' missing?"
        )
    return number


def hint(name: str, known: Iterable[str], instead: Mapping[str, str]) -> str:
    """Return " Did you mean …?" for an unknown option in lower case; "" if none is near.

    instead: option that is usual elsewhere → known one.
    """
    by_lower = {each.lower(): each for each in known}
    longer = [each for each in by_lower if name in each] if len(name) > 3 else []
    near = instead.get(name) or (longer[0] if len(longer) == 1 else nearest(name, by_lower))
    return "" if near is None else f" Did you mean '{by_lower.get(near, near)}'?"


def is_misspelled(name: str, option: str) -> bool:
    """Is this option of a Kafka client most likely `option`, which klog must not ignore?"""
    return 0 < distance(name, option) <= 2


def partition(text: str) -> int | None:
    """A partition number as Kafka writes it, None for anything else: 00 would be 0 once more."""
    return int(text) if _PARTITION.fullmatch(text) else None


def time(value: object, option: str) -> Bound:
    """TIME as a bound. A finer time than a millisecond is rounded up, so that "at or after" stays true."""
    text = value.strip() if isinstance(value, str) else value
    if isinstance(text, str) and (ago := _AGO.fullmatch(text.lower())):
        return Bound("ago", int(ago[1]) * _UNITS_MS[ago[2]])
    if isinstance(text, str) and text.lower() == "now":
        return Bound("ago", 0)
    if is_int(text) or (isinstance(text, str) and _NUMBER.fullmatch(text)):
        time_ms = int(str(text))
        if not 0 <= time_ms <= INT64_MAX:
            raise ValueError(
                f"option '{option}' = {time_ms} is out of range for milliseconds since 1970-01-01 UTC; a time before "
                f"now has a unit, such as '-10m'"
            )
        return Bound.at_timestamp(time_ms)
    moment = _moment(text) if isinstance(text, str) else None
    if moment is None:
        raise ValueError(
            f"option '{option}' = {value!r} is not a time; give milliseconds, ISO text like '2013-02-08T05:00:00Z', "
            f"'now', or '-10m' for ten minutes ago (ms, s, m, h, d, w)"
        )
    if moment.tzinfo is None:
        raise ValueError(f"option '{option}' = {value!r} has no time zone; add 'Z' or an offset such as '+01:00'")
    microseconds = (moment - _EPOCH) // timedelta(microseconds=1)
    if microseconds < 0:
        raise ValueError(f"option '{option}' = {value!r} is before 1970-01-01 UTC, where Kafka's time begins")
    return Bound.at_timestamp(-(-microseconds // 1000))


def _moment(text: str) -> datetime | None:
    """The time in ISO text, of a date its 0:00 in UTC; None for other text."""
    with contextlib.suppress(ValueError):
        return datetime.combine(date.fromisoformat(text), datetime.min.time(), UTC)
    with contextlib.suppress(ValueError):
        return datetime.fromisoformat(text)
    return None


def offset_from_end(value: object) -> int | None:
    """N of the text "-N", None for anything else."""
    if not isinstance(value, str) or not re.fullmatch(r"-\s*[0-9]{1,19}", value.strip()):
        return None
    number = int(value.strip()[1:])
    return number if 0 < number <= INT64_MAX else None


def json_of(value: str, option: str, example: str) -> Any:
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        raise ValueError(f"option '{option}' must be JSON like {example}, not {value!r}") from None


def is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
