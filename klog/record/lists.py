"""Records as parallel lists: for callers that do not have them as tuples."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, cast

if TYPE_CHECKING:
    from typing_extensions import Buffer  # in collections.abc from Python 3.12 on

    _Headers: TypeAlias = Iterable[tuple[str, Buffer | None]]

_INT64 = {"q", "l"}  # format codes of an int64 buffer, without a byte order prefix


class Lists:
    """Record n is (keys[n], values[n], timestamps[n], headers[n]), in the order and with the rules of the tuple.

    keys, values, headers: a list or tuple; None for keys or headers: no record has any. timestamps: a list or tuple of
    int or None, or a buffer of int64 (array.array("q"), a numpy array), or None. Raises ValueError for different
    lengths. Nothing is copied here: do not change them until the records are written.
    """

    __slots__ = ("headers", "keys", "timestamps", "values")

    def __init__(
        self,
        keys: Sequence[Buffer | None] | None,
        values: Sequence[Buffer | None],
        timestamps: Sequence[int | None] | Buffer | None = None,
        headers: Sequence[_Headers | None] | None = None,
    ) -> None:
        for name, given in (("keys", keys), ("values", values), ("headers", headers)):
            if given is None and name != "values":
                continue
            if not isinstance(given, list | tuple):
                raise TypeError(f"{name} must be a list or a tuple, not {type(given).__name__}")
            if len(given) != len(values):
                raise ValueError(f"{len(values)} values, but {len(given)} {name}")
        if timestamps is not None:
            count = len(timestamps) if isinstance(timestamps, list | tuple) else _int64s(timestamps)
            if count != len(values):
                raise ValueError(f"{len(values)} values, but {count} timestamps")
        self.keys = keys
        self.values = values
        self.timestamps = timestamps
        self.headers = headers

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        """Iterate the equivalent tuples."""
        stamps = self.timestamps
        if stamps is not None and not isinstance(stamps, list | tuple):
            stamps = memoryview(cast("Buffer", stamps)).tolist()
        nothing = itertools.repeat(None, len(self))
        return zip(self.keys or nothing, self.values, stamps or nothing, self.headers or nothing, strict=True)

    def __repr__(self) -> str:
        return f"<Lists of {len(self)} records>"


def _int64s(timestamps: object) -> int:
    """Return the number of int64 in a buffer."""
    try:
        with memoryview(timestamps) as view:  # type: ignore[arg-type]
            kind = view.format.lstrip("@=<")
            if kind not in _INT64 or view.itemsize != 8 or view.ndim != 1 or not view.c_contiguous:
                raise TypeError(f"timestamps must be a contiguous buffer of int64, not of format {view.format!r}")
            return len(view)
    except (TypeError, ValueError, BufferError) as error:
        if "int64" in str(error):
            raise
        raise TypeError(
            f"timestamps must be a list of int, or a buffer of int64 (of a numpy datetime64 array, "
            f"`.astype('datetime64[ms]').view('int64')`), not {type(timestamps).__name__}"
        ) from None
