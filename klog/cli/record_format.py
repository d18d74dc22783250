"""The FORMAT of `klog cat -o`, with the letters of kcat.

    format := (field | escape | text)*
    field  := %t topic  %p partition  %o offset  %T timestamp in ms  %h headers  %% percent sign
            | %k key  %s value: the bytes as stored, nothing for null
            | %K, %S their lengths, -1 for null  %R the value's length in 4 bytes, big-endian
    escape := \\n  \\r  \\t  \\0  \\\\  \\xHH

A line feed is added to a FORMAT that does not end with \\n or \\0.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

import click

if TYPE_CHECKING:
    from klog.record import Record

Show = Callable[[bytes | None], bytes]  # a key or value as it is printed
Part: TypeAlias = "bytes | Callable[[Record, Show], bytes]"
_PART = re.compile(r"%(?P<field>.?)|\\(?:x(?P<hex>[0-9a-fA-F]{2})|(?P<escape>.?))|(?P<text>[^%\\]+)", re.DOTALL)
_ESCAPES = {"n": b"\n", "r": b"\r", "t": b"\t", "0": b"\0", "\\": b"\\"}
_FIELDS: dict[str, Callable[[Record, Show], bytes]] = {
    "t": lambda record, show: str(record.topic).encode(),
    "p": lambda record, show: _number(record.partition),
    "o": lambda record, show: _number(record.offset),
    "T": lambda record, show: _number(record.timestamp),
    "h": lambda record, show: b",".join(show(_bytes(name)) + b"=" + show(value) for name, value in record.headers),
    "k": lambda record, show: show(record.key),
    "s": lambda record, show: show(record.value),
    "K": lambda record, show: _number(_length(record.key)),
    "S": lambda record, show: _number(_length(record.value)),
    "R": lambda record, show: show(_length(record.value).to_bytes(4, "big", signed=True)),
    "%": lambda record, show: b"%",
}


class RecordFormat:
    """Formats records. show: how keys, values and headers are printed. Raises click.BadParameter."""

    def __init__(self, text: str, show: Show) -> None:
        if "%" not in text:
            raise click.BadParameter(
                f"{text!r} has no field such as %k; a position is --offset, and klog export writes CSV, Arrow, Parquet"
            )
        self._parts = [_part(match) for match in _PART.finditer(text)]
        last = self._parts[-1]
        if not (isinstance(last, bytes) and last.endswith((b"\n", b"\0"))):
            self._parts.append(b"\n")
        self._show = show

    def __call__(self, record: Record) -> bytes:
        return b"".join(part if isinstance(part, bytes) else part(record, self._show) for part in self._parts)


def _part(match: re.Match[str]) -> Part:
    if match["text"] is not None:
        return _bytes(match["text"])
    if match["hex"] is not None:
        return bytes.fromhex(match["hex"])
    field, escape = match["field"], match["escape"]
    found: Part | None = _ESCAPES.get(escape) if field is None else _FIELDS.get(field)
    if found is None:
        raise click.BadParameter(f"unknown {match[0]} in {match.string!r}; klog cat --help lists fields and escapes")
    return found


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _number(value: int | None) -> bytes:
    return str(value).encode()


def _length(value: bytes | None) -> int:
    return -1 if value is None else len(value)
