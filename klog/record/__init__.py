"""bytes ↔ batches: record batches of magic 2, out of bytes and into them, and on to Arrow columns. Messages of
magic 0 and 1 are read, never written.

Takes what `codec` gives (plain payloads, checksums); gives `segment` and `log` batches to write and records to read.

    decode, iter_records, pairs         out of bytes; validate: check every field
    encode, Encoder, BatchGroup         into bytes, many records at once
    BatchBuilder                        the same record by record
    validate_append, ValidatedBatch     what a leader makes of bytes that a producer sent; RecordError: or why not
    EncodedBatches                      batches as they came, looked at and numbered already; BatchTable: any of these
    Lists, Rows, RowSource              records as parallel lists, as Arrow columns
    columns, Columns, ArrowStream       to Arrow, without pyarrow; FIELDS names the columns
    Record, RecordBatch, TimestampType  what goes in and comes out; Records: the types of all that goes in
"""

from klog.record._batch import Record, RecordBatch, decode, iter_records, pairs, validate
from klog.record._builder import BatchBuilder, BatchGroup, Encoder, encode, join_groups
from klog.record._columns import FIELDS, ArrowStream, Columns, columns
from klog.record._encoded import EncodedBatches
from klog.record._leader import ValidatedBatch, validate_append
from klog.record._rows import Rows, RowSource, is_arrow
from klog.record._table import BatchTable
from klog.record.inputs import Records
from klog.record.lists import Lists
from klog.record.refusals import RecordError
from klog.record.timestamps import TimestampType

__all__ = [
    "FIELDS",
    "ArrowStream",
    "BatchBuilder",
    "BatchGroup",
    "BatchTable",
    "Columns",
    "EncodedBatches",
    "Encoder",
    "Lists",
    "Record",
    "RecordBatch",
    "RecordError",
    "Records",
    "RowSource",
    "Rows",
    "TimestampType",
    "ValidatedBatch",
    "columns",
    "decode",
    "encode",
    "is_arrow",
    "iter_records",
    "join_groups",
    "pairs",
    "validate",
    "validate_append",
]
