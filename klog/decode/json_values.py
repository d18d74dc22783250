"""Values that are JSON objects → structs of a given type.

msgspec compiles the type to a decoder that checks while it parses: it builds no object for a field that the type
does not have, and its errors name the field. A value is bad if it is not JSON in UTF-8, if it is not an object, or if a
field of the type has

    a wrong kind (1.0, true and "1" are not a BIGINT), a number out of range, NaN; text that is not base64 (BINARY), an
    ISO date (DATE), or an ISO time (TIMESTAMP; without a zone it is UTC. TIMESTAMP_NTZ: with one it is bad)

A missing field is null, null is null everywhere, fields that the type does not have are left out, and if a name
occurs twice, its last value is used. DECIMAL takes numbers and numbers in quotes, exactly, and rounds half up to its
scale.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable
from functools import cached_property
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any

from klog import extras
from klog.decode.columns import Column, Leaf, List, Map, Struct, build
from klog.decode.decoder import Decoder
from klog.decode.text import TextDecoder

if TYPE_CHECKING:
    import pyarrow as pa

_FLOAT_MAX = 3.4028234663852886e38


class JsonDecoder(Decoder):
    """binary → struct. type: what klog.decode.ddl.parse returns. Raises ImportError without msgspec, and ValueError for
    a field that it cannot name."""

    def __init__(self, kind: pa.DataType) -> None:
        self._type = kind
        self._compiled  # noqa: B018  raises its errors here

    def __reduce__(self) -> tuple[Any, ...]:
        return JsonDecoder, (self.type,)

    @property
    def type(self) -> pa.DataType:
        return self._type

    def decode(self, values: pa.Array) -> tuple[pa.Array, dict[int, str]]:
        """Return the structs, null where a value is bad, and {index of a bad value: why}."""
        from msgspec import MsgspecError

        parse, column = self._compiled
        # msgspec does not check whether text that it skips is UTF-8.
        _, bad = TextDecoder().decode(values)
        items: list[Any] = []
        for index, value in enumerate(values.to_pylist()):
            item = None
            if value is not None and index not in bad:
                try:
                    item = parse(value)
                except (MsgspecError, RecursionError, ValueError, OverflowError) as error:
                    bad[index] = str(error)
            items.append(item)
        array, unfit = build(column, items)
        return array, {**bad, **unfit}

    @cached_property
    def _compiled(self) -> tuple[Callable[[bytes], Any], Column]:
        try:
            import msgspec
        except ImportError as error:
            raise extras.missing("decoding JSON", "msgspec", "json", error) from error
        kind, column = _compile(self.type)
        return msgspec.json.Decoder(kind | None).decode, column


def _compile(kind: pa.DataType) -> tuple[Any, Column]:
    """Return the Python type that msgspec decodes, and the column that takes it."""
    import pyarrow as pa
    from msgspec import Meta

    types = pa.types
    if types.is_struct(kind):
        return _struct(kind)
    if types.is_list(kind):
        item, column = _compile(kind.value_type)
        return list[item | None], List(kind, column)  # type: ignore[valid-type]
    if types.is_map(kind):
        item, column = _compile(kind.item_type)
        return dict[str, item | None], Map(kind, column)  # type: ignore[valid-type]
    if types.is_signed_integer(kind):
        high = (1 << kind.bit_width - 1) - 1
        return Annotated[int, Meta(ge=-high - 1, le=high)], Leaf(kind)
    if types.is_float32(kind):
        return Annotated[float, Meta(ge=-_FLOAT_MAX, le=_FLOAT_MAX)], Leaf(kind)
    if types.is_decimal(kind):
        return decimal.Decimal, Leaf(kind, _rounded(kind.precision, kind.scale))
    if types.is_timestamp(kind) and kind.tz is None:
        return Annotated[datetime.datetime, Meta(tz=False)], Leaf(kind)
    simple = {
        pa.bool_(): bool,
        pa.float64(): float,
        pa.string(): str,
        pa.binary(): bytes,
        pa.date32(): datetime.date,
        pa.timestamp("us", "UTC"): datetime.datetime,
    }
    return simple[kind], Leaf(kind)


def _struct(kind: pa.DataType) -> tuple[Any, Column]:
    import msgspec

    fields, children, names = [], [], {}
    for number, field in enumerate(kind):
        item, column = _compile(field.type)
        attribute = f"f{number}"
        names[attribute] = field.name
        fields.append((attribute, item | None, None))
        children.append((attrgetter(attribute), column))
    # Without gc: the objects live for the length of a call and hold no cycles.
    return msgspec.defstruct("value", fields, rename=names, gc=False), Struct(kind, children)


def _rounded(precision: int, scale: int) -> Callable[[decimal.Decimal], decimal.Decimal]:
    unit = decimal.Decimal(1).scaleb(-scale)
    context = decimal.Context(prec=precision, rounding=decimal.ROUND_HALF_UP)

    def rounded(value: decimal.Decimal) -> decimal.Decimal:
        if not value.is_finite():
            raise ValueError(f"{str(value)[:9]} is not a number")
        try:
            return value.quantize(unit, context=context)
        except decimal.InvalidOperation:
            raise ValueError(f"a number has more digits than DECIMAL({precision},{scale})") from None

    return rounded
