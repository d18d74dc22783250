"""Serializers: Python objects → the bytes of keys and values. None stays None, which is a tombstone.

"utf8"      str
"json"      what JSON has, and datetime, date and time as ISO text, Decimal and UUID as text; without NaN
a function  called with each object; returns bytes
"""

from __future__ import annotations

import datetime
import decimal
import json
import uuid
from collections.abc import Callable
from typing import Any, Literal, TypeAlias

from klog.arguments import chosen, wrong_type

WORDS = ("utf8", "json")
Serializer: TypeAlias = "Literal['utf8', 'json'] | Callable[[Any], Any]"
Serialize: TypeAlias = Callable[[int, Any], Any]  # number of the record, object → bytes


def serialize_of(name: str, given: Serializer | None) -> Serialize | None:
    """Return the function of an argument `serializer` or `key_serializer`; None for None. It raises TypeError with the
    number of the record, and what a caller's function raises with a note of it."""
    if given is None:
        return None
    if isinstance(given, str):
        chosen(name, given, WORDS)
        return _utf8 if given == "utf8" else _json
    if not callable(given):
        raise wrong_type(name, given, "'utf8', 'json', a function or None")
    return lambda number, found: _called(given, number, found)


def _utf8(number: int, found: Any) -> bytes | None:
    if found is None:
        return None
    if not isinstance(found, str):
        raise TypeError(
            f"record {number}: {_shown(found)} is not a str, which the serializer 'utf8' takes; leave it out for bytes"
        )
    try:
        return found.encode()
    except UnicodeEncodeError as error:
        raise TypeError(f"record {number}: {_shown(found)} cannot be written as UTF-8: {error.reason}") from None


def _json(number: int, found: Any) -> bytes | None:
    if found is None:
        return None
    try:
        return _encode(found).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise TypeError(f"record {number}: {_shown(found)} cannot be written as JSON: {error}") from None


def _plain(found: Any) -> Any:
    """What JSON has for an object that it does not have."""
    if isinstance(found, datetime.datetime):
        return found.isoformat().replace("+00:00", "Z")
    if isinstance(found, datetime.date | datetime.time):
        return found.isoformat()
    if isinstance(found, decimal.Decimal | uuid.UUID):
        return str(found)
    hint = "; decode them, or leave the serializer out" if isinstance(found, bytes | bytearray | memoryview) else ""
    raise TypeError(f"JSON has no {type(found).__name__}{hint}")


_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=_plain).encode


def _called(function: Callable[[Any], Any], number: int, found: Any) -> Any:
    if found is None:
        return None
    try:
        return function(found)
    except Exception as error:
        error.add_note(f"record {number}: the serializer was called with {_shown(found)}")
        raise


def _shown(found: object) -> str:
    text = repr(found)
    return text if len(text) <= 60 else f"{text[:57]}..."
