"""Converts one property value from text or Python to the type of its Key, and back to text. Kafka: ConfigDef."""

from __future__ import annotations

from typing import Any

from klog.arguments import is_numpy_bool, shown
from klog.config.table import Key
from klog.errors import InvalidConfig


def parse_value(key: Key, value: Any) -> Any:
    """Return the value of a property, with its type and within its bounds. Raises InvalidConfig naming the key."""
    text = "(hidden)" if key.secret else shown(value)
    try:
        parsed = _convert(key, value)
    except (ValueError, TypeError, OverflowError) as error:
        raise InvalidConfig(f"{key.name}={text}: {key.type} expected ({key.doc})") from error
    if key.choices:
        chosen = parsed if isinstance(parsed, tuple) else (parsed,)
        for item in chosen:
            if item not in key.choices:
                raise InvalidConfig(f"{key.name}={text}: choose from {', '.join(key.choices)}")
    if isinstance(parsed, int | float) and not isinstance(parsed, bool):
        if key.low is not None and not parsed >= key.low:  # written so that it also rejects NaN
            raise InvalidConfig(f"{key.name}={text}: must be at least {key.low} ({key.doc})")
        if key.high is not None and parsed > key.high:
            raise InvalidConfig(f"{key.name}={text}: must be at most {key.high} ({key.doc})")
    if key.check is not None and not key.check(parsed):
        raise InvalidConfig(f"{key.name}={text}: {key.doc}")
    return parsed


def _convert(key: Key, value: Any) -> Any:
    if key.type == "bool":
        if isinstance(value, bool):
            return value
        text = str(value).strip().lower()
        if text not in ("true", "false"):
            raise ValueError
        return text == "true"
    if key.type == "list":
        items = value.split(",") if isinstance(value, str) else list(value)
        if not all(isinstance(item, str) for item in items):
            raise TypeError
        return tuple(item.strip() for item in items if item.strip())
    if key.type in ("int", "long"):
        if isinstance(value, str):
            return int(value.strip())
        if isinstance(value, bool | bytes | bytearray) or is_numpy_bool(value) or int(value) != value:
            raise ValueError
        return int(value)
    if key.type == "double":
        if isinstance(value, bool | bytes | bytearray) or is_numpy_bool(value):
            raise ValueError
        return float(value)
    if not isinstance(value, str):
        raise TypeError
    return value.strip()


def format_value(value: Any) -> str:
    """Return a parsed value as text, as in a properties file."""
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value).lower() if isinstance(value, bool) else str(value)
