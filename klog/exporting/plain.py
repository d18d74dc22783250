"""Converts decoded values to the types of JSON, and to cells of CSV."""

from __future__ import annotations

import base64
import datetime
import decimal
import math
from typing import Any

from klog.shown import to_json


def plain(value: Any) -> Any:
    """Return a value for JSON: times as ISO text, decimals as text, bytes as text or base64, NaN and infinities as
    null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(name): plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, datetime.datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, decimal.Decimal):
        return str(value)
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return base64.b64encode(value).decode()
    return value


def cell(value: Any) -> str | None:
    """Return the text of a cell of CSV: None for null, text unchanged, everything else as JSON."""
    value = plain(value)
    return value if value is None or isinstance(value, str) else to_json(value)
