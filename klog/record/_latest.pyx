"""The latest record of each key, found in one pass over batches."""

from klog._c.batch cimport KL_ATTR_LOG_APPEND_TIME, kl_batch_t, kl_record_t
from klog.record._arguments cimport long_of
from klog.record._batch cimport RecordIterator, Selection, Source, next_plain
from klog.record._record cimport Record, bytes_or_none
from libc.stdint cimport INT64_MAX, int64_t, uint64_t

from klog.arguments import function, having


cdef inline int64_t timestamp_of(const kl_batch_t *b, const kl_record_t *r) noexcept nogil:
    if b.attributes & KL_ATTR_LOG_APPEND_TIME:
        return b.max_timestamp
    return <int64_t>(<uint64_t>b.base_timestamp + <uint64_t>r.timestamp_delta)


cdef inline int note(dict offsets, object key, bint has_value, int64_t offset) except -1:
    offsets.pop(key, None)      # so that the order of the dict is that of the offsets
    if has_value:
        offsets[key] = offset
    return 0


def note_latest(
    dict offsets not None, buffer, *, timestamp_max=INT64_MAX, start=0, stop=INT64_MAX, aborted=(), path=None,
    file_position=0, payloads=None, on_damage=None
):
    """Set offsets[key] to the offset of the latest record of each key in a buffer of batches, and remove the keys whose
    latest record is a tombstone; a key that is set moves to the end of offsets. Records without a key are left out, and
    those with a later timestamp than timestamp_max. The other arguments and the errors are those of iter_records();
    after an error, some records are noted.
    """
    cdef Source source = Source(buffer, path, file_position, True)
    cdef RecordIterator records
    cdef Record record
    cdef kl_record_t r
    cdef int64_t newest = long_of("timestamp_max", timestamp_max)
    if payloads is not None:
        having("payloads", payloads, ("find", "keep"), "an object with find() and keep(), or None,")
    function("on_damage", on_damage)
    source.payloads = payloads
    records = RecordIterator(source, 0, source.size, Selection(start, stop, False, aborted), True, on_damage)
    while True:
        if next_plain(records, &r):
            if r.key_size >= 0 and timestamp_of(&records.batch, &r) <= newest:
                note(offsets, bytes_or_none(r.key, r.key_size), r.value_size >= 0, records.passed - 1)
            continue
        try:
            record = records.read_slowly()
        except StopIteration:
            return
        if record.timestamp_ms <= newest and (key := record.key) is not None:
            note(offsets, key, record.value is not None, record.offset)
