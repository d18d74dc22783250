"""Errors of input files: a row that cannot be read, a column that does not exist, an unknown format."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from klog.errors import KlogError


class RowError(KlogError, ValueError):
    """A row that cannot be read. path: the input as the user named it; line: counted from 1 (in a Parquet file: the
    row)."""

    def __init__(self, message: str, *, path: str, line: int) -> None:
        self.reason, self.path, self.line = message, path, line
        super().__init__(f"{path}, line {line}: {message}")

    def __reduce__(self) -> tuple[object, ...]:
        return _row_error, (self.reason, self.path, self.line)


def _row_error(message: str, path: str, line: int) -> RowError:
    return RowError(message, path=path, line=line)


class UnknownColumn(KlogError, ValueError):
    """The file does not have the column. Attributes: path, column, and columns, those that it has."""

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
    """The format of an input does not follow from its name and first bytes, or is not supported."""


def named_once(names: list[str], path: str, line: int) -> list[str]:
    """Return the names of columns. Raises RowError if a name occurs twice: a JSON object would keep only one of
    them."""
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise RowError(f"the header has the name {twice[0]!r} twice", path=path, line=line)
    return names
