"""Values as text: of bounded length for reprs, as HTML for notebooks, as lines of JSON.

The HTML is a heading and tables, without scripts. Every text is escaped, because keys, values and paths may hold HTML.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import islice
from typing import Any

from klog.errors import KlogError

LENGTH_MAX = 60  # of a key or value
ITEMS_MAX = 5


def short(value: object) -> str:
    """Return the repr of a value; for long bytes or text the repr of the beginning, and the full length."""
    if isinstance(value, bytes | str) and len(value) > LENGTH_MAX:
        return f"{value[:LENGTH_MAX]!r}... ({len(value):,} {'bytes' if isinstance(value, bytes) else 'characters'})"
    return repr(value)


def first_few(items: Collection[object], show: Callable[..., str] = repr) -> str:
    """Return the first items, separated by commas, and the number of items if there are more."""
    shown = [show(item) for item in islice(items, ITEMS_MAX)]
    return ", ".join(shown if len(shown) == len(items) else [*shown, f"... ({len(items):,} in all)"])


def short_headers(headers: tuple[tuple[str, bytes | None], ...]) -> str:
    """Return the repr of the first few of a record's headers, with long names and values cut."""
    pairs = first_few(headers, lambda header: f"({short(header[0])}, {short(header[1])})")
    return f"({pairs},)" if len(headers) == 1 else f"({pairs})"


def plain(value: bytes | None) -> str:
    """Return a key or value as text if it is printable UTF-8, else its repr; cut as in short()."""
    if value is None:
        return "null"
    start = value[: 4 * LENGTH_MAX]
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(start, final=len(start) == len(value))
    except UnicodeDecodeError:
        return short(value)
    if not text.isprintable():
        return short(value)
    whole = len(start) == len(value) and len(text) <= LENGTH_MAX
    return text if whole else f"{text[:LENGTH_MAX]}... ({len(value):,} bytes)"


def iso(ms: int) -> str:
    """Return milliseconds since 1970 as ISO text in UTC; a time outside the calendar as "NUMBER ms"."""
    from datetime import UTC, datetime, timedelta  # takes a millisecond

    try:
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)
    except OverflowError:
        return f"{ms} ms"
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{ms % 1000:03d}Z"


def moment(ms: int | None) -> str | None:
    """Return a timestamp as ISO text; None for None and for -1, which stands for no timestamp."""
    return None if ms is None or ms < 0 else iso(ms)


def size(count: int) -> str:
    """Return a number of bytes as text for people."""
    if count < 1024:
        return f"{count} B"
    number = float(count)
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        number /= 1024
        if number < 1024 or unit == "TiB":
            break
    return f"{number:.1f} {unit}"


def to_json(value: Any) -> str:
    """Return one line of JSON, without escaping non-ASCII characters."""
    import json

    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def heading(text: str) -> str:
    """Return a heading as HTML."""
    return f"<p><b>{_escaped(text)}</b></p>"


def note(text: str) -> str:
    """Return a paragraph as HTML."""
    return f"<p>{_escaped(text)}</p>"


def table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table as HTML. Numbers are aligned to the right and have separators; None is "-"."""
    head = "".join(f"<th>{_escaped(name)}</th>" for name in heads)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def display(title: str, heads: Sequence[str], rows: Callable[[], Iterable[Sequence[object]]]) -> str:
    """Return what a notebook shows of an object: a heading and a table. An error of rows() becomes a line of text: a
    display must not fail."""
    try:
        return heading(title) + table(heads, list(rows()))
    except (KlogError, OSError, RuntimeError) as error:
        return heading(title) + note(f"{type(error).__name__}: {error}")


def _cell(value: object) -> str:
    if isinstance(value, int):
        return f'<td style="text-align:right">{value:,}</td>'
    return f'<td style="text-align:left">{"-" if value is None else _escaped(str(value))}</td>'


def _escaped(text: str) -> str:
    import html  # its tables of entities take a millisecond

    safe = text.encode(errors="backslashreplace").decode()  # a lone surrogate is not HTML
    return html.escape(safe)
