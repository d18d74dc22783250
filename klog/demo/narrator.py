"""Writes plain text: headings, wrapped paragraphs, aligned facts and small tables. Bold only on a terminal."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TextIO

WIDTH = 96
_INDENT = "   "


class Narrator:
    """Writes the text to one stream, flushed line by line, so that a pipe gets it at once."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._styled = out.isatty() and not os.environ.get("NO_COLOR")

    def title(self, text: str) -> None:
        self._line(self._bold(text))

    def chapter(self, number: int, text: str) -> None:
        self._line("")
        self._line(self._bold(f"{number}. {text}"))

    def say(self, text: str) -> None:
        """Write one paragraph, wrapped."""
        for line in _wrapped(text, WIDTH - len(_INDENT)):
            self._line(_INDENT + line)

    def facts(self, facts: Sequence[tuple[str, str]]) -> None:
        """Write names and texts, the names in one column."""
        width = max(len(name) for name, _ in facts) + 2
        self._line("")
        for name, text in facts:
            lines = _wrapped(text, WIDTH - width - 5) or [""]
            self._line(f"{_INDENT}  {name:<{width}}{lines[0]}")
            for line in lines[1:]:
                self._line(f"{_INDENT}  {'':<{width}}{line}")

    def table(self, head: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1) -> None:
        """Write a table with columns as wide as needed; the first `left` aligned left, the others (numbers) right."""
        widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]

        def line(row: Sequence[str]) -> str:
            cells = [
                f"{cell:<{width}}" if column < left else f"{cell:>{width}}"
                for column, (cell, width) in enumerate(zip(row, widths, strict=True))
            ]
            return f"{_INDENT}  {'  '.join(cells)}".rstrip()

        self._line("")
        self._line(self._bold(line(head)))
        for row in rows:
            self._line(line(row))

    def code(self, text: str) -> None:
        """Write lines to be copied; never wrapped."""
        self._line("")
        for line in textwrap.dedent(text).strip().splitlines():
            self._line(f"{_INDENT}  {line}".rstrip())

    def gap(self) -> None:
        self._line("")

    def _bold(self, text: str) -> str:
        return f"\x1b[1m{text}\x1b[0m" if self._styled else text

    def _line(self, text: str) -> None:
        self._out.write(text + "\n")
        self._out.flush()


def _wrapped(text: str, width: int) -> list[str]:
    """Wrap a text. A path is never broken, because users copy it."""
    return textwrap.wrap(text, width, break_on_hyphens=False, break_long_words=False)


def when(milliseconds: int) -> str:
    """Return a timestamp as ISO text: 2013-02-08T05:00Z."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%dT%H:%MZ")


def size(count: int) -> str:
    """Return a number of bytes in powers of ten: 325.9 MB."""
    value = float(count)
    for unit in ("bytes", "kB", "MB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "bytes" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.2f} GB"


def duration(seconds: float) -> str:
    """Return seconds with three digits in a suitable unit: 840 µs, 12.3 ms, 4.56 s."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} µs"
    if seconds < 1:
        return f"{seconds * 1e3:.3g} ms" if seconds < 0.9995 else "1 s"
    return f"{seconds:.3g} s" if seconds < 100 else f"{seconds:.0f} s"
