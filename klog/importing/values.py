"""Converts cells to JSON and to milliseconds. Uses no file and no clock.

A CSV cell has no type, so its text decides:

    empty                       null
    an integer in JSON's form   that number, its digits unchanged (at most 18: they fit 64 bits)
    a decimal in JSON's form    that number, its digits unchanged (at most 17: a double holds them)
    true, false                 the boolean
    anything else               a string: 007, +1, 1., NA, NaN, True, 1e5 and longer numbers, too

A number with an exponent needs a sign there (1e-05, 1.5e+20, as programs write it): 12e4 may be a name.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from json.encoder import encode_basestring

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND = timedelta(milliseconds=1)
TIMESTAMP_MAX = (1 << 63) - 1
Row = tuple[int, bytes | None, bytes, int | None]  # line, key, value, timestamp in ms

_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-][0-9]+)?", re.ASCII)
_INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)
_FIRST_OF_NUMBER = frozenset("-0123456789")


def quote(text: str) -> str:
    """Return text as a JSON string, without escaping characters beyond ASCII."""
    return encode_basestring(text)


class Decimals(float):
    """A number of JSON with its text: a double may not hold all its digits."""

    __slots__ = ("text",)
    text: str

    def __new__(cls, text: str) -> Decimals:
        self = super().__new__(cls, text)
        self.text = text
        return self


def nested_json(value: object, leaf: Callable[[object], str]) -> str:
    """Return the JSON of lists, tuples and dictionaries; leaf returns that of any other value."""
    if isinstance(value, dict):
        pairs = [f"{quote(str(name))}:{nested_json(each, leaf)}" for name, each in value.items()]
        return "{" + ",".join(pairs) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join([nested_json(each, leaf) for each in value]) + "]"
    return leaf(value)


def cell_to_json(text: str) -> str:
    """Return the JSON of one CSV cell, by the table above."""
    if not text:
        return "null"
    if text[0] in _FIRST_OF_NUMBER:
        found = _NUMBER.fullmatch(text)
        if found is not None:
            digits = sum(character.isdigit() for character in text.partition("e")[0].partition("E")[0])
            if digits <= (17 if found[2] or found[3] else 18):
                return text
    elif text in ("true", "false"):
        return text
    return encode_basestring(text)


class CellCache:
    """cell_to_json with a cache: most columns of a table hold few values. Bounded, and cleared when full."""

    def __init__(self, entries_max: int = 1 << 16) -> None:
        self._entries_max = entries_max
        self._known: dict[str, str] = {}

    def __call__(self, text: str) -> str:
        found = self._known.get(text)
        if found is None:
            if len(self._known) >= self._entries_max:
                self._known.clear()
            found = cell_to_json(text)
            if len(text) <= 64:
                self._known[text] = found
        return found


def milliseconds(value: object) -> int:
    """Convert an integer of milliseconds, ISO text, a datetime or a date to milliseconds since 1970.

    A time without a zone is UTC. Raises ValueError that describes the value, without file or line.
    """
    if isinstance(value, bool) or value is None or value == "":
        raise ValueError(f"not a time: {'empty' if value in (None, '') else str(value).lower()}")
    if isinstance(value, str):
        text = value.strip()
        if _INTEGER.fullmatch(text):
            return _checked(int(text) if len(text) < 40 else TIMESTAMP_MAX + 1, value)
        try:
            value = datetime.fromisoformat(text)
        except ValueError:
            raise ValueError(
                f"{_shown(value)} is not a time; expected ISO text (2013-02-08T05:00:00Z) or an integer of milliseconds"
            ) from None
    if isinstance(value, float):
        if not value.is_integer():
            raise ValueError(f"{value} is not a time; expected ISO text or an integer of milliseconds")
        value = int(value)
    if isinstance(value, int):
        return _checked(value, value)
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day, tzinfo=UTC)
    if isinstance(value, datetime):
        aware = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        return _checked((aware - EPOCH) // MILLISECOND, value)
    raise ValueError(f"{_shown(value)} is not a time; expected ISO text or an integer of milliseconds")


def _checked(ms: int, value: object) -> int:
    if ms < 0:
        raise ValueError(f"{_shown(value)} is before 1970, where Kafka's timestamps begin")
    if ms > TIMESTAMP_MAX:
        raise ValueError(f"{_shown(value)} does not fit 64 bits of milliseconds")
    return ms


def _shown(value: object) -> str:
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= 60 else text[:57] + "..."
