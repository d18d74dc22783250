"""Records to append that are not bytes yet, and frames whose columns have names of their own.

Takes what Log.append takes with a serializer or with names of columns. Gives what an encoder takes: a list stays one,
and one Arrow array, too, so that they are appended atomically.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Required, TypeAlias, TypedDict

from klog.arguments import flag, text, texts
from klog.log.read.reader import LogReader
from klog.log.read.tables import pyarrow_for
from klog.log.write.inputs import check_records, is_whole
from klog.log.write.serializers import Serialize, Serializer, serialize_of
from klog.record import Lists, Record, Records, Rows, is_arrow
from klog.record.inputs import ArrowArray, ArrowStream

if TYPE_CHECKING:
    import pyarrow

Unserialized: TypeAlias = "Iterable[Any] | Lists | ArrowArray | ArrowStream"
TARGETS = ("value", "key", "timestamp", "headers")
_PASSED_OVER = frozenset(("offset", "timestamp_type", "leader_epoch", "topic", "partition"))  # csrc/rows.c


class ColumnNames(TypedDict, total=False):
    """The arguments of append that name columns."""

    value: str | Sequence[str] | None
    key: str | None
    timestamp: str | None
    headers: str | None
    ignore_other_columns: bool


class Shape(ColumnNames, total=False):
    """Those that make bytes of objects. None: they are bytes."""

    serializer: Required[Serializer | None]
    key_serializer: Serializer | None


@contextmanager
def shaped(records: Unserialized, **shape: Any) -> Iterator[Records]:
    """The records with keys and values as bytes, in columns with klog's names. shape: see Log.append.

    A context: an Arrow stream reports only the text of an error; here the error itself is raised.
    """
    unknown = next(iter(shape.keys() - Shape.__annotations__.keys()), None)
    if unknown is not None:
        raise TypeError(
            f"append() got an unexpected argument {unknown!r}; it takes compression, {', '.join(Shape.__annotations__)}"
        )
    serialize = serialize_of("serializer", shape.get("serializer"))
    serialize_key = serialize_of("key_serializer", shape.get("key_serializer"))
    value = shape.get("value")
    names: dict[str, list[str]] = {}
    if value is not None:
        names["value"] = [text("value", value)] if isinstance(value, str) else texts("value", value)
    for target in TARGETS[1:]:
        if shape.get(target) is not None:
            names[target] = [text(target, shape[target])]
    ignore = flag("ignore_other_columns", shape.get("ignore_other_columns", False))
    check_records(records)
    if is_arrow(records) and not isinstance(records, LogReader):
        if isinstance(records, Rows):
            raise TypeError("records=klog.record.Rows: its columns have klog's names and bytes; append it as it is")
        if names.get("value") == [] or (len(names.get("value", ())) > 1 and serialize is None):
            raise ValueError(f"value={value!r}: several columns become one value by serializer='json' or a function")
        is_object = value is not None and not isinstance(value, str)  # a list of columns, also of one
        frame = _Frame(records, names, ignore, serialize, serialize_key, is_object)
        try:
            yield frame.records()
        except Exception:
            if frame.error is not None:
                raise frame.error from None
            raise
        return
    if names or ignore:
        given = next(iter(names), "ignore_other_columns")
        raise ValueError(
            f"{given}=... is about columns, which {type(records).__name__} does not have; pass a frame, or leave it out"
        )
    yield _rows(records, serialize, serialize_key)


# ---- tuples, records, lists ------------------------------------------------------------------------------------------


def _rows(records: Any, serialize: Serialize | None, serialize_key: Serialize | None) -> Records:
    if isinstance(records, Lists):
        keys, values = ([*found] if found is not None else None for found in (records.keys, records.values))
        if serialize_key is not None and keys is not None:
            keys = [serialize_key(number, each) for number, each in enumerate(keys)]
        if serialize is not None and values is not None:
            values = [serialize(number, each) for number, each in enumerate(values)]
        return Lists(keys, values or [], records.timestamps, records.headers)
    found = (_row(number, each, serialize, serialize_key) for number, each in enumerate(records))
    return list(found) if is_whole(records) else found


def _row(number: int, row: Any, serialize: Serialize | None, serialize_key: Serialize | None) -> Any:
    if isinstance(row, Record):
        row = (row.key, row.value, row.timestamp, row.headers)
    elif not isinstance(row, tuple) or len(row) < 2:
        return row  # the encoder's error
    key, value, *rest = row
    if serialize_key is not None:
        key = serialize_key(number, key)
    if serialize is not None:
        value = serialize(number, value)
    return (key, value, *rest)


# ---- columns ---------------------------------------------------------------------------------------------------------


class _Frame:
    """A frame whose columns are chosen and serialized. error: why its stream failed."""

    def __init__(
        self,
        records: Any,
        names: dict[str, list[str]],
        ignore: bool,
        serialize: Serialize | None,
        serialize_key: Serialize | None,
        is_object: bool,
    ) -> None:
        pyarrow = pyarrow_for("a serializer or the name of a column of a frame")
        self.error: BaseException | None = None
        self._batch: Any = None
        self._reader: Any = None
        if hasattr(records, "__arrow_c_array__"):
            self._batch = pyarrow.record_batch(records)
        else:
            self._reader = pyarrow.RecordBatchReader.from_stream(records)
        schema = (self._batch if self._batch is not None else self._reader).schema
        self._sources = _sources(schema.names, names, ignore)
        self._serializers = {"value": serialize, "key": serialize_key}
        self._is_object = is_object
        self._schema = pyarrow.schema(
            [
                (target, pyarrow.binary() if self._serializers.get(target) else schema.field(sources[0]).type)
                for target, sources in self._sources.items()
            ]
        )

    def records(self) -> Any:
        """What an encoder takes."""
        import pyarrow

        if self._batch is not None:
            return self._shaped(self._batch, 0)
        return pyarrow.RecordBatchReader.from_batches(self._schema, self._noted())

    def _noted(self) -> Iterator[pyarrow.RecordBatch]:
        before = 0
        try:
            for batch in self._reader:
                yield self._shaped(batch, before)
                before += batch.num_rows
        except BaseException as error:
            self.error = error
            raise

    def _shaped(self, batch: pyarrow.RecordBatch, before: int) -> pyarrow.RecordBatch:
        import pyarrow

        arrays = []
        for target, sources in self._sources.items():
            serialize = self._serializers.get(target)
            columns = [batch.column(name) for name in sources]
            if serialize is None:
                arrays.append(columns[0])
                continue
            is_object = target == "value" and self._is_object
            objects = _rows_of(sources, columns) if is_object else _objects(columns[0])
            found = [serialize(before + index, each) for index, each in enumerate(objects)]
            arrays.append(pyarrow.array(found, pyarrow.binary()))
        return pyarrow.RecordBatch.from_arrays(arrays, schema=self._schema)


def _sources(columns: list[str], names: dict[str, list[str]], ignore: bool) -> dict[str, list[str]]:
    """{klog's name: columns of the frame}. Raises ValueError for columns that are not there, twice, or left over."""
    sources: dict[str, list[str]] = {}
    for target in TARGETS:
        found = names.get(target, [target] if target in columns or target == "value" else [])
        for name in found:
            if columns.count(name) != 1:
                problem = "occurs twice" if name in columns else "is missing"
                raise ValueError(
                    f"{target}: column {name!r} {problem}; records has {', '.join(map(repr, columns[:40])) or 'none'}"
                )
        if found:
            sources[target] = found
    used = {name for each in sources.values() for name in each} | _PASSED_OVER
    others = [name for name in columns if name not in used]
    if others and not ignore:
        raise ValueError(
            f"records also has {'columns' if len(others) > 1 else 'column'} {', '.join(map(repr, others[:40]))}; name "
            f"what to append, such as value=[...] with serializer='json', or leave them out by "
            f"ignore_other_columns=True"
        )
    return sources


def _objects(column: pyarrow.Array) -> list[Any]:
    """The Python objects of a column, times cut to microseconds: nanoseconds would need pandas."""
    import pyarrow

    kind = column.type
    if pyarrow.types.is_timestamp(kind) and kind.unit == "ns":
        column = column.cast(pyarrow.timestamp("us", kind.tz), safe=False)
    found: list[Any] = column.to_pylist()
    return found


def _rows_of(names: list[str], columns: list[pyarrow.Array]) -> Iterator[dict[str, Any]]:
    for cells in zip(*map(_objects, columns), strict=True):
        yield dict(zip(names, cells, strict=True))
