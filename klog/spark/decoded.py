"""Rows with keys and values as bytes → rows with them decoded, in a task.

E1  Rows are decoded in slices (klog.decode.slices), and each slice becomes a batch of its own.
E2  Control records, which a query has if it asks for isControl, have null keys and values: theirs are Kafka's own.
E3  A bad value raises BadValue with its place, or is null and has its reason in the column badValue.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from klog.errors import BadValue
from klog.spark.rows import BAD_VALUE

if TYPE_CHECKING:
    import pyarrow as pa

    from klog.decode import Decoder

HINT = (
    "Correct {0}Format, {0}Schema or the producer; or set onBadValue=null, which reads null there, and ask for the "
    "column badValue, which has why"
)


class RowDecoder:
    """Makes batches of `schema` from batches of `stored`. For one topic-partition of one task."""

    def __init__(
        self, schema: pa.Schema, decoders: Mapping[str, Decoder], null_bad_values: bool, topic: str, partition: int
    ) -> None:
        import pyarrow as pa

        self._schema = schema
        self._decoders = decoders
        self._null_bad_values = null_bad_values
        self._pair = f"{topic}-{partition}"
        if not decoders and BAD_VALUE not in schema.names:
            self.stored = schema
            return
        fields = [
            pa.field(field.name, pa.binary()) if field.name in decoders else field
            for field in schema
            if field.name != BAD_VALUE
        ]
        if decoders and "offset" not in schema.names:
            fields.append(pa.field("offset", pa.int64()))  # for the place of a bad value
        self.stored = pa.schema(fields)

    def batches(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The same rows, decoded."""
        if self.stored is self._schema:
            yield batch
            return
        from klog.decode import slices  # most tasks decode nothing

        yield from map(self._decoded, slices(batch, list(self._decoders)))

    def _decoded(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        import pyarrow as pa

        reasons: list[str | None] = [None] * batch.num_rows
        found = dict(zip(batch.schema.names, batch.columns, strict=True))
        for name, decoder in self._decoders.items():
            array, bad = decoder.decode(_of_producers(found, name))
            if bad and not self._null_bad_values:
                first = min(bad)
                raise BadValue(self._pair, found["offset"][first].as_py(), name, bad[first], HINT.format(name))
            for index, why in bad.items():
                reasons[index] = "; ".join(filter(None, (reasons[index], f"{name}: {why}")))
            kind = self._schema.field(name).type
            found[name] = array if array.type.equals(kind) else array.cast(kind)
        if BAD_VALUE in self._schema.names:
            found[BAD_VALUE] = pa.array(reasons, pa.string())
        return pa.RecordBatch.from_arrays([found[name] for name in self._schema.names], schema=self._schema)


def _of_producers(columns: Mapping[str, pa.Array], name: str) -> pa.Array:
    """Return a column without what control records have there (E2)."""
    import pyarrow as pa
    import pyarrow.compute as pc

    control = columns.get("isControl")
    if control is None or not pc.any(control).as_py():
        return columns[name]
    # A corrupt batch, of which nothing is known, has null.
    return pc.if_else(pc.fill_null(control, False), pa.scalar(None, columns[name].type), columns[name])
