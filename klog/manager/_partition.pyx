"""Kafka's default partitioner: murmur2 of the key picks the partition. The caller picks it for records without a key.

Kafka: BuiltInPartitioner, Utils.murmur2.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_CheckBuffer, PyObject_GetBuffer
from klog._c.rows cimport kl_bytes_at, kl_rows_at, kl_valid_at
from klog.record._rows cimport Rows
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport free, malloc

from klog.record import Record


cdef uint32_t murmur(const uint8_t *at, Py_ssize_t size) noexcept nogil:
    cdef uint32_t m = 0x5BD1E995
    cdef uint32_t h = <uint32_t>0x9747B28CU ^ <uint32_t>size
    cdef uint32_t k
    while size >= 4:
        k = at[0] | (<uint32_t>at[1] << 8) | (<uint32_t>at[2] << 16) | (<uint32_t>at[3] << 24)
        k *= m
        k ^= k >> 24
        k *= m
        h *= m
        h ^= k
        at += 4
        size -= 4
    if size == 3:
        h ^= <uint32_t>at[2] << 16
    if size >= 2:
        h ^= <uint32_t>at[1] << 8
    if size >= 1:
        h ^= at[0]
        h *= m
    h ^= h >> 13
    h *= m
    h ^= h >> 15
    return h


def murmur2(data):
    """Return Kafka's hash of a key, as a signed 32-bit number."""
    cdef Py_buffer view
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        return <int32_t>murmur(<const uint8_t *>view.buf, view.len)
    finally:
        PyBuffer_Release(&view)


cdef int check_partitions(Py_ssize_t partitions, Py_ssize_t sticky) except -1:
    """Raise ValueError unless `sticky` is one of the partitions: arrays of this length are indexed by it."""
    if not 0 <= sticky < partitions:
        raise ValueError(f"sticky={sticky}: not one of {partitions} partitions")
    return 0


def split(list records, Py_ssize_t partitions, Py_ssize_t sticky):
    """Sort records into one list per partition. Records without a key go to partition `sticky`."""
    cdef list lists = [[] for _ in range(partitions)]
    cdef Py_buffer view
    cdef Py_ssize_t target
    cdef object key
    check_partitions(partitions, sticky)
    for item in records:
        if isinstance(item, (tuple, list)):
            key = item[0] if len(item) else None
        elif isinstance(item, Record):
            key = item.key
        else:
            key = None
        if key is None or not PyObject_CheckBuffer(key):
            target = sticky     # not a record, or not a key: the encoder raises
        else:
            PyObject_GetBuffer(key, &view, PyBUF_SIMPLE)
            target = (murmur(<const uint8_t *>view.buf, view.len) & 0x7FFFFFFF) % partitions
            PyBuffer_Release(&view)
        (<list>lists[target]).append(item)
    return lists


cdef int32_t target_of(Rows rows, int64_t row, int32_t partitions, int32_t sticky) noexcept:
    """The partition of a row; `sticky` for one without a key."""
    cdef int64_t size
    cdef const uint8_t *key = kl_bytes_at(&rows.rows.key, row, &size)
    if size < 0 or not kl_valid_at(rows.rows.valid, row):
        return sticky
    return <int32_t>((murmur(key, size) & 0x7FFFFFFF) % <uint32_t>partitions)


def targets(Rows rows, int32_t partitions, int32_t sticky):
    """Return the partition of each row as int32, in a bytearray. Rows without a key have `sticky`."""
    cdef int64_t i
    cdef bytearray made = bytearray(4 * max(<int64_t>1, rows.rows.length))
    cdef int32_t *at = <int32_t *><char *>made
    check_partitions(partitions, sticky)
    for i in range(rows.rows.length):
        at[i] = target_of(rows, kl_rows_at(&rows.rows, i), partitions, sticky)
    return made


def split_rows(Rows rows, int64_t start, int64_t limit, int32_t partitions, int32_t sticky):
    """Sort up to `limit` rows from `start` on into one Rows per partition; None for a partition that gets no row.

    Rows without a key go to partition `sticky`.
    """
    cdef int64_t stop = min(<int64_t>len(rows), start + limit)
    cdef int64_t n = max(<int64_t>0, stop - start)
    cdef int32_t *targets = NULL
    cdef int64_t **ends = NULL      # for each partition: the end of its row numbers written so far
    cdef int64_t *counts = NULL
    cdef int64_t i
    cdef int32_t p
    cdef Rows share
    cdef list shares = [None] * partitions
    check_partitions(partitions, sticky)
    try:
        targets = <int32_t *>malloc(max(n, 1) * sizeof(int32_t))
        counts = <int64_t *>malloc(partitions * sizeof(int64_t))
        ends = <int64_t **>malloc(partitions * sizeof(int64_t *))
        if targets == NULL or counts == NULL or ends == NULL:
            raise MemoryError
        for p in range(partitions):
            counts[p] = 0
            ends[p] = NULL
        for i in range(n):
            targets[i] = target_of(rows, kl_rows_at(&rows.rows, start + i), partitions, sticky)
            counts[targets[i]] += 1
        for p in range(partitions):
            if counts[p] != 0:
                share = rows.pick(counts[p])
                shares[p] = share
                ends[p] = share.picked
        for i in range(n):
            p = targets[i]
            ends[p][0] = kl_rows_at(&rows.rows, start + i)
            ends[p] += 1
        return shares
    finally:
        free(targets)
        free(counts)
        free(ends)
