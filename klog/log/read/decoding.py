"""Decoding the keys and values of a reader, as Arrow columns or as Python objects.

  D1  Records are decoded in slices of bounded size, in order. Records before a bad value are returned before it raises.
  D2  A bad value raises BadValue with its place, or is null, or its record goes to a dead letter log as it is stored
      and is left out. A null key or value is null: there is nothing to decode.
  D3  Dead letters are appended before the next slice is read. Reading the range again appends them again.

Headers of dead letters have Kafka Connect's names. Kafka Connect: DeadLetterQueueReporter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, get_args

from klog.arguments import chosen, having, text
from klog.decode import COLUMNS, Decode, Decoder, Format, decoders_of, formats_of, slices
from klog.errors import BadValue
from klog.log.read.tables import pyarrow_for
from klog.record import FIELDS, ArrowStream, Columns, Record
from klog.values import NamedTuple, dataclass

if TYPE_CHECKING:
    import pyarrow

OnBad = Literal["raise", "null"]
_PREFIX = "__connect.errors."
_STAGES = {"key": b"KEY_CONVERTER", "value": b"VALUE_CONVERTER"}
_RECORDS, _BYTES = 1024, 4 << 20  # of a slice of records


class HasAppend(Protocol):
    """A log."""

    def append(self, records: Any, /) -> Any: ...


class HasTopics(Protocol):
    """A manager of logs."""

    def append(self, topic: str, records: Any, /) -> Any: ...


DeadLetter: TypeAlias = "HasAppend | tuple[HasTopics, str]"


class Decoded(NamedTuple):
    """A record, and its key and value decoded; as in the record where they have no format."""

    record: Record
    key: Any
    value: Any

    @property
    def offset(self) -> int:
        """The record's offset."""
        return self.record.offset


class Bad(NamedTuple):
    """Why a key or value is bad."""

    column: str
    reason: str


@dataclass(frozen=True)
class Decoding:
    """How to decode the records of a topic. append: where records with a bad value go, or None."""

    formats: Mapping[str, Format]
    topic: str
    on_bad: OnBad
    append: Callable[[list[Record]], object] | None

    def decoders(self) -> dict[str, Decoder]:
        """New decoders: each iteration has its own."""
        return decoders_of(self.formats, self.topic)

    def decoded(
        self, decoders: Mapping[str, Decoder], stored: Mapping[str, pyarrow.Array]
    ) -> tuple[dict[str, pyarrow.Array], dict[int, Bad]]:
        """Return the decoded columns, and {index of a record with a bad value: why}, in order."""
        found: dict[str, pyarrow.Array] = {}
        bad: dict[int, Bad] = {}
        for column, decoder in decoders.items():
            found[column], reasons = decoder.decode(stored[column])
            for index, reason in reasons.items():
                bad.setdefault(index, Bad(column, reason))
        return found, dict(sorted(bad.items()))

    def error(self, partition: int, offset: int, bad: Bad) -> BadValue:
        """The error for a bad value."""
        return BadValue(
            f"{self.topic}-{partition}",
            offset,
            bad.column,
            bad.reason,
            'Correct decode or the producer; or pass on_bad="null", which reads null there, or dead_letter=, a log to '
            "which such records go",
        )

    def letter(self, partition: int, offset: int, record: Record, bad: Bad) -> Record:
        """The record that is appended for one with a bad value, stored at this offset."""
        headers = {
            "topic": self.topic.encode(),
            "partition": str(partition).encode(),
            "offset": str(offset).encode(),
            "stage": _STAGES[bad.column],
            "exception.class.name": b"klog.errors.BadValue",
            "exception.message": bad.reason.encode(errors="backslashreplace"),
        }
        added = [(_PREFIX + name, value) for name, value in headers.items()]
        return Record(record.key, record.value, record.timestamp, [*record.headers, *added])


def decoding_of(
    topic: str, decode: Decode | None, on_bad: OnBad, dead_letter: DeadLetter | None, include_control: bool
) -> Decoding | None:
    """Check the arguments of read(). Returns None without `decode`."""
    chosen("on_bad", on_bad, get_args(OnBad))
    append = None if dead_letter is None else _appender(dead_letter)
    if decode is None:
        if append is not None or on_bad != "raise":
            name = "dead_letter" if append is not None else "on_bad"
            raise ValueError(f"{name} has no meaning for bytes, which are never bad; add decode=")
        return None
    formats = formats_of(decode)
    if include_control:
        raise ValueError("include_control=True, decode=...: control records have Kafka's own format; leave out one")
    if append is not None and on_bad == "null":
        raise ValueError('on_bad="null", dead_letter=...: a record is either kept or set aside; leave out one')
    pyarrow_for("decode=")
    decoding = Decoding(formats, topic, on_bad, append)
    decoding.decoders()
    return decoding


def _appender(dead_letter: DeadLetter) -> Callable[[list[Record]], object]:
    expected = "a log, or a tuple of a LogManager and a topic,"
    if isinstance(dead_letter, tuple):
        if len(dead_letter) != 2:
            raise ValueError(f"dead_letter={dead_letter!r}: {expected} expected")
        logs, topic = having("dead_letter[0]", dead_letter[0], ("append", "topics"), "a LogManager"), dead_letter[1]
        name = text("dead_letter[1]", topic)
        return lambda records: logs.append(name, records)
    return having("dead_letter", dead_letter, ("append", "append_batches"), expected).append


class DecodedStream:
    """An Arrow stream of columns with the keys and values decoded.

    parts: called with names of columns, (partition, its columns) in order. fields: the columns of the stream. Keys or
    values that are not among them are not decoded."""

    def __init__(
        self, parts: Callable[[Sequence[str]], Iterable[tuple[int, Columns]]], decoding: Decoding, fields: Sequence[str]
    ) -> None:
        self._parts = parts
        self._decoding = decoding
        self._fields = list(fields)
        self.error: BaseException | None = None

    def __arrow_c_schema__(self) -> object:
        return self._schema(self._decoders()).__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        import pyarrow

        decoders = self._decoders()
        schema = self._schema(decoders)
        reader = pyarrow.RecordBatchReader.from_batches(schema, self._noted(schema, decoders))
        return reader.__arrow_c_stream__()

    def _decoders(self) -> dict[str, Decoder]:
        return {name: decoder for name, decoder in self._decoding.decoders().items() if name in self._fields}

    def _schema(self, decoders: Mapping[str, Decoder]) -> pyarrow.Schema:
        import pyarrow

        stored = pyarrow.schema(ArrowStream((), self._fields))
        return pyarrow.schema(
            [field.with_type(decoders[field.name].type) if field.name in decoders else field for field in stored]
        )

    def _noted(self, schema: pyarrow.Schema, decoders: Mapping[str, Decoder]) -> Iterator[pyarrow.RecordBatch]:
        try:
            yield from self._batches(schema, decoders)
        except BaseException as error:
            self.error = error
            raise

    def _batches(self, schema: pyarrow.Schema, decoders: Mapping[str, Decoder]) -> Iterator[pyarrow.RecordBatch]:
        import pyarrow

        letters = () if self._decoding.append is None else FIELDS
        needed = list(dict.fromkeys([*self._fields, "offset", *letters]))
        for partition, columns in self._parts(needed):
            for batch in slices(pyarrow.record_batch(columns), list(decoders)):
                yield from self._decoded(schema, decoders, partition, batch)

    def _decoded(
        self, schema: pyarrow.Schema, decoders: Mapping[str, Decoder], partition: int, batch: pyarrow.RecordBatch
    ) -> Iterator[pyarrow.RecordBatch]:
        import pyarrow

        decoding = self._decoding
        stored = dict(zip(batch.schema.names, batch.columns, strict=True))
        found, bad = decoding.decoded(decoders, stored)
        shown = {**stored, **found}
        whole = pyarrow.RecordBatch.from_arrays([shown[name] for name in self._fields], schema=schema)
        if not bad or decoding.on_bad == "null":
            yield whole
        elif decoding.append is None:
            first = next(iter(bad))
            if first:
                yield whole.slice(0, first)
            raise decoding.error(partition, stored["offset"][first].as_py(), bad[first])
        else:
            decoding.append([decoding.letter(partition, *_record(stored, index), why) for index, why in bad.items()])
            yield whole.filter(pyarrow.array([index not in bad for index in range(len(whole))], pyarrow.bool_()))


def _record(stored: Mapping[str, pyarrow.Array], index: int) -> tuple[int, Record]:
    """The offset and the record of a row, as far as a dead letter needs them."""
    import pyarrow

    row = {name: stored[name][index].as_py() for name in FIELDS if name != "timestamp"}
    timestamp = stored["timestamp"][index].cast(pyarrow.int64()).as_py()
    headers = [(header["key"], header["value"]) for header in row["headers"]]
    return row["offset"], Record(row["key"], row["value"], -1 if timestamp is None else timestamp, headers)


def decoded_records(parts: Iterable[tuple[int, Iterable[Record]]], decoding: Decoding) -> Iterator[Decoded]:
    """Iterate the records of parts (partition, its records) with their keys and values decoded."""
    import pyarrow

    decoders = decoding.decoders()
    for partition, records in parts:
        for some in _gathered(records):
            stored = {
                column: pyarrow.array([getattr(record, column) for record in some], pyarrow.binary())
                for column in decoders
            }
            found, bad = decoding.decoded(decoders, stored)
            objects = {column: [getattr(record, column) for record in some] for column in COLUMNS}
            for column, decoder in decoders.items():
                objects[column], beyond = _objects(decoder, found[column])
                bad = dict(sorted({**{index: Bad(column, why) for index, why in beyond.items()}, **bad}.items()))
            if decoding.append is not None and bad:
                decoding.append([decoding.letter(partition, some[at].offset, some[at], why) for at, why in bad.items()])
            for index, each in enumerate(map(Decoded, some, objects["key"], objects["value"])):
                if index not in bad or decoding.on_bad == "null":
                    yield each
                elif decoding.append is None:
                    raise decoding.error(partition, each.record.offset, bad[index])


def _objects(decoder: Decoder, decoded: pyarrow.Array) -> tuple[list[Any], dict[int, str]]:
    """The Python objects of decoded values, and {index of one that Python does not have: why}."""
    try:
        return decoder.objects(decoded), {}
    except (ValueError, OverflowError):
        found: list[Any] = []
        bad: dict[int, str] = {}
        for index in range(len(decoded)):
            try:
                found += decoder.objects(decoded.slice(index, 1))
            except (ValueError, OverflowError) as error:
                found.append(None)
                bad[index] = f"Python has no object for it: {error}"
        return found, bad


def _gathered(records: Iterable[Record]) -> Iterator[list[Record]]:
    """The records in slices of bounded size. After an error, first those that came before it."""
    some: list[Record] = []
    size = 0
    try:
        for record in records:
            some.append(record)
            size += len(record.key or b"") + len(record.value or b"")
            if len(some) >= _RECORDS or size >= _BYTES:
                yield some
                some, size = [], 0
    except Exception:
        if some:
            yield some
        raise
    if some:
        yield some
