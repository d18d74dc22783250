"""What goes wrong with an input file: a row that cannot be read, or a column that is not there."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from klog.errors import KlogError


class RowError(KlogError, ValueError):
    """One row that cannot be read. path: the input as the user named it; line: 1 is the first (of a Parquet file: its
    row)."""

    def __init__(self, message: str, *, path: str, line: int) -> None:
        self.reason, self.path, self.line = message, path, line
        super().__init__(f"{path}, line {line}: {message}")

    def __reduce__(self) -> tuple[object, ...]:
        return _row_error, (self.reason, self.path, self.line)


def _row_error(message: str, path: str, line: int) -> RowError:
    return RowError(message, path=path, line=line)


class UnknownColumn(KlogError, ValueError):
    """A column that was asked for and that the file does not have. path, column, and columns, those it has."""

    def __init__(self, path: str, column: str, columns: Iterable[str], *, line: int = 1) -> None:
        self.path, self.column, self.columns, self.line = path, column, list(columns), line
        near = difflib.get_close_matches(column, self.columns, n=1, cutoff=0.6) or [
            name for name in self.columns if name.lower() == column.lower()
        ]
        hint = f"; did you mean {near[0]!r}?" if near else "."
        shown = ", ".join(self.columns[:40]) + (", ..." if len(self.columns) > 40 else "")
        super().__init__(f"{path}, line {line}: no column {column!r}{hint} The columns are: {shown or '(none)'}")

    def __reduce__(self) -> tuple[object, ...]:
        return _unknown_column, (self.path, self.column, self.columns, self.line)


def _unknown_column(path: str, column: str, columns: list[str], line: int) -> UnknownColumn:
    return UnknownColumn(path, column, columns, line=line)


class UnknownFormat(KlogError, ValueError):
    """An input whose name and first bytes do not say what it is, or that says it in a way klog does not read."""


def named_once(names: list[str], path: str, line: int) -> list[str]:
    """The names of columns themselves. RowError where two are the same: a JSON object would keep one of them."""
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise RowError(f"the header names {twice[0]!r} twice", path=path, line=line)
    return names
