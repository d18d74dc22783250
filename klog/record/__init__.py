"""record: encodes and decodes record batches of magic 2, and converts them to Arrow columns. Messages of magic 0 and 1
are read, never written.

Takes plain payloads and checksums from `codec`; gives `segment` and `log` batches to write and records to read.

    note_latest                         the latest offset of each key
    decode, iter_records, pairs         from bytes; validate: check every field
    encode, Encoder, BatchGroup         to bytes, many records at once
    BatchBuilder                        to bytes, record by record
    validate_append, ValidatedBatch     a leader's validation of a producer's bytes; RecordError: a refused record
    renumber                            staged batches: gives them their offsets
    EncodedBatches                      encoded batches, checked and numbered already; BatchTable: their common base
    BATCH_HEADER                        bytes of a batch's header; BATCH_PREFIX: those that its length does not count
    DELETE_HORIZON                      a bit of its attributes
    unchecked_header                    fields of a header that a broker needs before the batch is validated
    Lists, Rows, RowSource              records as parallel lists, as Arrow columns
    columns, Columns, ArrowStream       to Arrow, without pyarrow; FIELDS and ORIGIN_FIELDS name the columns
    Record, RecordBatch, TimestampType  types of input and output; Records: the types accepted as input
"""

from klog import lazy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from klog.record._batch import RecordBatch, decode, iter_records, pairs, validate
    from klog.record._builder import BatchBuilder, BatchGroup, Encoder, encode, join_groups
    from klog.record._columns import FIELDS, ORIGIN_FIELDS, ArrowStream, Columns, column_names, columns
    from klog.record._encoded import EncodedBatches
    from klog.record._latest import note_latest
    from klog.record._leader import ValidatedBatch, validate_append
    from klog.record._record import Record
    from klog.record._renumber import renumber
    from klog.record._rows import Rows, RowSource, is_arrow
    from klog.record._table import (
        BATCH_HEADER,
        BATCH_PREFIX,
        DELETE_HORIZON,
        BatchTable,
        UncheckedHeader,
        unchecked_header,
    )
    from klog.record.inputs import Records
    from klog.record.lists import Lists
    from klog.record.refusals import RecordError
    from klog.record.timestamps import TimestampType

__all__ = [
    "BATCH_HEADER",
    "BATCH_PREFIX",
    "DELETE_HORIZON",
    "FIELDS",
    "ORIGIN_FIELDS",
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
    "UncheckedHeader",
    "ValidatedBatch",
    "column_names",
    "columns",
    "decode",
    "encode",
    "is_arrow",
    "iter_records",
    "join_groups",
    "note_latest",
    "pairs",
    "renumber",
    "unchecked_header",
    "validate",
    "validate_append",
]
_PLACES = {
    "ArrowStream": "_columns",
    "BATCH_HEADER": "_table",
    "BATCH_PREFIX": "_table",
    "BatchBuilder": "_builder",
    "BatchGroup": "_builder",
    "BatchTable": "_table",
    "Columns": "_columns",
    "DELETE_HORIZON": "_table",
    "EncodedBatches": "_encoded",
    "Encoder": "_builder",
    "FIELDS": "_columns",
    "Lists": "lists",
    "ORIGIN_FIELDS": "_columns",
    "Record": "_record",
    "RecordBatch": "_batch",
    "RecordError": "refusals",
    "Records": "inputs",
    "RowSource": "_rows",
    "Rows": "_rows",
    "TimestampType": "timestamps",
    "UncheckedHeader": "_table",
    "ValidatedBatch": "_leader",
    "column_names": "_columns",
    "columns": "_columns",
    "decode": "_batch",
    "encode": "_builder",
    "is_arrow": "_rows",
    "iter_records": "_batch",
    "join_groups": "_builder",
    "note_latest": "_latest",
    "pairs": "_batch",
    "renumber": "_renumber",
    "unchecked_header": "_table",
    "validate": "_batch",
    "validate_append": "_leader",
}

__getattr__ = lazy.attributes(globals(), _PLACES)


def __dir__() -> list[str]:
    return sorted(__all__)
