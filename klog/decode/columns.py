"""Python values → Arrow arrays, one column after the other, by a tree of columns that is made from a schema.

  column.array([item, …])     one Arrow value per item; None is null        Leaf, Struct, List, Map

C1  An item that the column's type cannot hold raises; `build` finds exactly these items, by bisection, and makes them
null. So n good items cost one call of pyarrow for each leaf, and each bad one about log₂ n more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import pyarrow as pa


class Column(Protocol):
    type: pa.DataType

    def array(self, items: Sequence[Any]) -> pa.Array:
        """Return the array of the items. Raises one of `UNFIT` if the type cannot hold one of them."""


UNFIT = (ValueError, TypeError, ArithmeticError, LookupError, NotImplementedError)
"""pyarrow's errors about values are ValueError, TypeError and NotImplementedError, too."""


def build(column: Column, items: Sequence[Any]) -> tuple[pa.Array, dict[int, str]]:
    """Return the array of the items, null for those that do not fit, and {index of such an item: why} (C1)."""
    try:
        return column.array(items), {}
    except UNFIT as error:
        import pyarrow as pa

        if len(items) == 1:
            return pa.nulls(1, column.type), {0: str(error) or type(error).__name__}
        half = len(items) // 2
        left, bad = build(column, items[:half])
        right, more = build(column, items[half:])
        return pa.concat_arrays([left, right]), {**bad, **{half + index: why for index, why in more.items()}}


class Leaf:
    """Values of a type without children. convert: makes of a decoded value one that pyarrow takes. source: the type
    that pyarrow makes first, and that is then cast."""

    def __init__(
        self, kind: pa.DataType, convert: Callable[[Any], Any] | None = None, source: pa.DataType | None = None
    ) -> None:
        self.type = kind
        self._convert = convert
        self._source = source

    def array(self, items: Sequence[Any]) -> pa.Array:
        import pyarrow as pa

        if self._convert is not None:
            items = [None if item is None else self._convert(item) for item in items]
        if self._source is None:
            return pa.array(items, self.type)
        return pa.array(items, self._source).cast(self.type)


class Struct:
    """children: for each field a function that returns its value in an item, and its column."""

    def __init__(self, kind: pa.DataType, children: Sequence[tuple[Callable[[Any], Any], Column]]) -> None:
        self.type = kind
        self._children = children

    def array(self, items: Sequence[Any]) -> pa.Array:
        import pyarrow as pa

        missing = [item is None for item in items]
        null = True in missing
        arrays = []
        for field, (get, column) in zip(self.type, self._children, strict=True):
            values = [None if item is None else get(item) for item in items] if null else list(map(get, items))
            try:
                arrays.append(column.array(values))
            except UNFIT as error:
                raise ValueError(f"{field.name}: {error}") from None
        return pa.StructArray.from_arrays(
            arrays, fields=list(self.type), mask=pa.array(missing, pa.bool_()) if null else None
        )


class List:
    def __init__(self, kind: pa.DataType, item: Column) -> None:
        self.type = kind
        self._item = item

    def array(self, items: Sequence[Any]) -> pa.Array:
        import pyarrow as pa

        values = self._item.array([value for item in items if item is not None for value in item])
        return pa.ListArray.from_arrays(_offsets(items), values, type=self.type, mask=_mask(items))


class Map:
    """Items are dictionaries with text as keys."""

    def __init__(self, kind: pa.DataType, value: Column) -> None:
        self.type = kind
        self._value = value

    def array(self, items: Sequence[Any]) -> pa.Array:
        import pyarrow as pa

        keys = pa.array([key for item in items if item is not None for key in item], self.type.key_type)
        values = self._value.array([value for item in items if item is not None for value in item.values()])
        return pa.MapArray.from_arrays(_offsets(items), keys, values, type=self.type, mask=_mask(items))


def _offsets(items: Sequence[Any]) -> pa.Array:
    import pyarrow as pa

    return pa.array(accumulate((0 if item is None else len(item) for item in items), initial=0), pa.int32())


def _mask(items: Sequence[Any]) -> pa.Array | None:
    import pyarrow as pa

    missing = [item is None for item in items]
    return pa.array(missing, pa.bool_()) if True in missing else None
