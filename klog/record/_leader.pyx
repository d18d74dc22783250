# cython: auto_pickle=False
"""A partition leader's validation of a producer's buffer: the result is one batch of magic 2, ready for the log.

  V1  the caller's buffer is copied first, once, and never written: the bytes that are checked are the bytes that are
      stored, even if another thread writes to the buffer meanwhile.
  V2  if only offsets, leader epoch, timestamp type and largest timestamp must change, the payload is kept, compressed
      or not; the checksum is computed again only if a byte that it covers changes.
  V3  everything else (another codec, magic 0 and 1) is rewritten, with offsets from 0, times from the first record's.
  V4  errors of single records are collected and reported together; the packed list takes 16 bytes for each.

Stricter than Kafka in three points, where Kafka would store batches that break readers: in magic 2 the offsets inside a
batch must be 0, 1, 2 ... whatever the codec; a header must be correct whatever the origin; and a batch that is already
LogAppendTime is refused whatever times its records have. tests/interop/FINDINGS.md lists them all.
Kafka: LogValidator, and the checksums of UnifiedLog.analyzeAndValidateRecords.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from klog._c.batch cimport (
    KL_AT_ATTRIBUTES, KL_AT_CRC, KL_AT_MAGIC, KL_ATTR_CODEC, KL_ATTR_CONTROL, KL_ATTR_DELETE_HORIZON,
    KL_ATTR_LOG_APPEND_TIME, KL_ATTR_TRANSACTIONAL, KL_BATCH_HEADER, KL_CODEC_LZ4, KL_CODEC_ZSTD, kl_batch_crc,
    kl_batch_fields, kl_batch_frame, kl_batch_header_store, kl_batch_seal, kl_batch_t,
)
from klog._c.bytes cimport kl_load_u32, kl_load_u64
from klog._c.leader cimport (
    kl_leader_refusals, kl_leader_result_t, kl_leader_rewrite, kl_leader_rewrite_size, kl_leader_rules_t,
    kl_leader_scan, kl_refusal_t, kl_set_refusals, kl_set_scan, kl_set_t, kl_set_write,
)
from klog._c.legacy cimport (
    KL_MESSAGE_AT_ATTRIBUTES, KL_MESSAGE_AT_CRC, kl_message_crc, kl_message_next, kl_message_t,
)
from klog._c.pool cimport KL_POOL_BUFFER_MIN, kl_pool_give, kl_pool_t, kl_pool_take
from klog._c.status cimport KL_ECODEC, KL_ECOUNT, KL_ECRC, KL_EMAGIC, KL_EORDER, KL_ETRUNCATED, KL_OK
from klog.codec._kept cimport decompressed_bytes_max
from klog.codec.status cimport status_text
from klog.record._arguments cimport check_buffer, flag_of, long_of, whole_of
from klog.record._table cimport BatchTable, raise_frame
from libc.stdint cimport INT32_MAX, INT32_MIN, INT64_MAX, int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport malloc
from libc.string cimport memcpy

from klog.codec import CODECS as _CODECS
from klog.codec import compress, decompress, lz4_with_header_checksum, parse_compression
from klog.config import LogConfig, config_values
from klog.errors import CorruptBatch, InvalidRecord, InvalidTimestamp, RecordTooLarge, UnsupportedCompression
from klog.record.refusals import RecordErrors

cdef enum:
    KEEP_CODEC = -1             # compression.type=producer
    NOGIL_MIN = 1 << 18         # bytes whose copy, checksum and walk take 50 µs
    LEGACY_NOGIL_MIN = 1 << 14  # the same for checksums by nibbles
    POLICIES_KEPT = 64

cdef str INVALID_MAGIC = "InvalidMagicNumberRecordsPerSec"
cdef str INVALID_OFFSET_OR_SEQUENCE = "InvalidOffsetOrSequenceRecordsPerSec"

cdef kl_pool_t pool


# Configuration --------------------------------------------------------------------------------------------------------

@cython.final
cdef class LeaderPolicy:
    """What a topic's configuration requires of produced batches."""


cdef dict kept_policies = {}


cdef LeaderPolicy policy_of(object config):
    """Return the policy of a config. A LogConfig is frozen, so its policy is computed once."""
    cdef LeaderPolicy policy
    if type(config) is LogConfig:
        known = kept_policies.get(id(config))
        if known is not None:
            return <LeaderPolicy>known
    elif not isinstance(config, LogConfig):
        config = LogConfig(config_values("config", config, optional=False))
    policy = LeaderPolicy.__new__(LeaderPolicy)
    policy.config = config
    kind = config.compression_type
    if kind == "producer":
        policy.codec = KEEP_CODEC
    else:
        level = None if kind in ("uncompressed", "snappy") else config[f"compression.{kind}.level"]
        policy.codec, policy.level = parse_compression(kind if level is None else (kind, level))
    policy.before_max = config.message_timestamp_before_max_ms
    policy.after_max = config.message_timestamp_after_max_ms
    policy.stamps = config.message_timestamp_type == "LogAppendTime"
    policy.compacts = config.compacts
    if type(config) is LogConfig:
        if len(kept_policies) >= POLICIES_KEPT:
            kept_policies.clear()
        kept_policies[id(config)] = policy
    return policy


# The result -----------------------------------------------------------------------------------------------------------

@cython.final
cdef class ValidatedBatch(BatchTable):
    """One batch of magic 2 as the log stores it; a read-only buffer of its bytes.

    message_size_maybe_changed: it was rewritten, from conversion_count records (0 if the payload was kept).
    max_timestamp is -1 if no record has a time, log_append_time -1 unless the topic stamps its records.
    temporary_memory_bytes is what Kafka counts under that name, or a few bytes more. Any thread may read it.
    Kafka: LogValidator.ValidationResult, RecordValidationStats.
    """

    def __init__(self):
        raise TypeError("get validated batches from klog.record.validate_append()")

    def __dealloc__(self):
        kl_pool_give(&pool, self.bytes_at, self.capacity)

    cdef int allocate(self, Py_ssize_t size) except -1:
        """Allocate memory for size bytes, once."""
        if size < KL_POOL_BUFFER_MIN:   # without the alignment: malloc takes half the time
            self.capacity = <size_t>max(size, 1)
            self.bytes_at = <uint8_t *>malloc(self.capacity)
        else:
            self.bytes_at = <uint8_t *>kl_pool_take(&pool, <size_t>size, &self.capacity)
        if self.bytes_at == NULL:
            raise MemoryError(f"{size} bytes for a record batch")
        self.nbytes = size
        self.batches = &self.header
        self.n = 1
        return 0

    cdef str codec_sent(self):
        """source_compression, without the attribute's look-up."""
        return _CODECS[self.source_codec]

    @property
    def data(self):
        return memoryview(self)

    @property
    def first_offset(self):
        return self.header.base_offset

    @property
    def last_offset(self):
        return self.header.base_offset + self.header.last_offset_delta

    @property
    def count(self):
        return self.header.count

    @property
    def size(self):
        return self.nbytes

    @property
    def compression(self):
        return _CODECS[self.header.attributes & KL_ATTR_CODEC]

    @property
    def source_compression(self):
        """The last codec other than none in the bytes that were sent."""
        return self.codec_sent()

    @property
    def producer_id(self):
        return self.header.producer_id

    @property
    def shallow_offset_of_max_timestamp(self):
        """The last offset of the batch with the largest timestamp, which is this one; -1 if there is none."""
        return -1 if self.max_timestamp < 0 else self.last_offset

    def __len__(self):
        return self.nbytes

    def __repr__(self):
        return (
            f"ValidatedBatch(first_offset={self.first_offset}, last_offset={self.last_offset}, "
            f"size={self.size}, compression={self.compression!r})"
        )


# What is asked --------------------------------------------------------------------------------------------------------

ctypedef struct request_t:
    kl_leader_rules_t rules
    int64_t offset
    int64_t size_max        # of a batch
    int32_t leader_epoch
    bint client
    bint zero_based         # a client numbers the records of a batch from 0 on, and the log requires it
    bint takes_zstd


ctypedef struct frames_t:
    Py_ssize_t size         # of all whole batches
    Py_ssize_t count        # of them
    int codec               # the last that is not none, as Kafka's sourceCompression


cdef int refuse(str text, str metric) except -1:
    raise InvalidRecord(text, meters={metric: 1} if metric else None)


cdef int corrupt(str text, Py_ssize_t position, kind=None) except -1:
    raise CorruptBatch(text, position=position, kind=kind)


cdef int frame(const uint8_t *data, Py_ssize_t size, const request_t *request, frames_t *out) except -1:
    """Find the whole batches and compare their checksums. A batch cut short at the end is ignored."""
    cdef Py_ssize_t at = 0
    cdef kl_batch_t b
    cdef uint32_t crc
    cdef int status, codec
    out.size = out.count = out.codec = 0
    while True:
        status = kl_batch_frame(data + at, <size_t>(size - at), &b)
        if status == KL_ETRUNCATED:
            break
        if status != KL_OK:
            return raise_frame(status, data + at, at)
        if b.magic == 2:
            if request.zero_based and kl_load_u64(data + at) != 0:
                refuse(f"a client's batch must begin at offset 0, not {<int64_t>kl_load_u64(data + at)}", None)
            b.crc = kl_load_u32(data + at + KL_AT_CRC)
            b.attributes = data[at + KL_AT_ATTRIBUTES + 1]  # the low byte, with the codec
        else:
            b.crc = kl_load_u32(data + at + KL_MESSAGE_AT_CRC)
            b.attributes = data[at + KL_MESSAGE_AT_ATTRIBUTES]
        if b.size > request.size_max:
            too_large(b.size, request)
        if b.magic == 2:
            if b.size >= NOGIL_MIN:
                with nogil:
                    crc = kl_batch_crc(data + at, b.size)
            else:
                crc = kl_batch_crc(data + at, b.size)
        elif b.size >= LEGACY_NOGIL_MIN:
            with nogil:
                crc = kl_message_crc(data + at, b.size)
        else:
            crc = kl_message_crc(data + at, b.size)
        if crc != b.crc:
            corrupt(f"the checksum of a batch of {b.size} bytes is {b.crc:08x}, its bytes make {crc:08x}", at, "crc")
        codec = b.attributes & KL_ATTR_CODEC
        if codec >= <int>len(_CODECS):
            corrupt(f"codec bits {codec} are not a known codec", at)
        if codec != 0:
            out.codec = codec
        out.count += 1
        at += b.size
    out.size = at
    return 0


cdef int too_large(int64_t size, const request_t *request) except -1:
    raise RecordTooLarge(f"a batch of {size} bytes is larger than max.message.bytes={request.size_max}")


cdef int raise_refusals(bytes packed, int magic, const request_t *request, int32_t count) except -1:
    cdef object now = request.rules.now     # a Python int: it does not wrap past 64 bits
    errors = RecordErrors(packed, magic, now - request.rules.before_max, now + request.rules.after_max)
    cls = InvalidTimestamp if errors.by_timestamp else InvalidRecord
    raise cls(
        f"{len(errors)} of {count} records are invalid, so the batch is refused: {errors}",
        record_errors=errors, meters=errors.meters,
    )


cdef int64_t last_of(int64_t offset, int64_t count) except -1:
    if offset < 0 or offset > INT64_MAX - count:
        raise ValueError(f"{count} offsets from {offset} on do not fit into 63 bits")
    return offset + count - 1


# Magic 2 --------------------------------------------------------------------------------------------------------------

cdef int check_header(const kl_batch_t *b, const request_t *request) except -1:
    if b.last_offset_delta < 0:
        refuse(f"a last offset delta of {b.last_offset_delta} is invalid", INVALID_OFFSET_OR_SEQUENCE)
    if b.count <= 0:
        refuse(f"a count of {b.count} records is invalid", INVALID_OFFSET_OR_SEQUENCE)
    if <int64_t>b.last_offset_delta + 1 != b.count:
        refuse(f"{<int64_t>b.last_offset_delta + 1} offsets for {b.count} records", INVALID_OFFSET_OR_SEQUENCE)
    if request.client:
        if b.attributes & KL_ATTR_CONTROL:
            refuse("clients must not write control records", INVALID_OFFSET_OR_SEQUENCE)
        if b.producer_id >= 0 and b.base_sequence < 0:
            refuse(
                f"sequence {b.base_sequence} of producer {b.producer_id} is negative", INVALID_OFFSET_OR_SEQUENCE
            )
    return 0


cdef int scan(const uint8_t *records, Py_ssize_t size, const kl_batch_t *b, const request_t *request,
              kl_leader_result_t *found) except -1:
    """Check every record of a payload; raises if one is invalid."""
    cdef int32_t bad = 0, n
    cdef int status
    cdef bytes packed
    cdef kl_refusal_t *entries
    cdef kl_leader_rules_t rules
    if size >= NOGIL_MIN:
        with nogil:
            status = kl_leader_scan(
                records, <size_t>size, b.count, b.base_timestamp, &request.rules, found, &bad)
    else:
        status = kl_leader_scan(records, <size_t>size, b.count, b.base_timestamp, &request.rules, found, &bad)
    if status != KL_OK:
        refuse(f"record {bad} of {b.count}: {status_text(status)}", None)
    if found.misnumbered >= 0:
        refuse(
            f"record {found.misnumbered} of {b.count} does not have offset {found.misnumbered} in its batch",
            INVALID_OFFSET_OR_SEQUENCE,
        )
    if found.may_be_refused:
        rules = request.rules
        # A negative time is reported when it is written, so that any more serious error comes first.
        for rules.negative_refused in range(2 if rules.negative_refused else 1):
            n = kl_leader_refusals(records, <size_t>size, b.count, b.base_timestamp, &rules, NULL, 0)
            if n != 0:
                packed = PyBytes_FromStringAndSize(NULL, n * <Py_ssize_t>sizeof(kl_refusal_t))
                entries = <kl_refusal_t *>PyBytes_AS_STRING(packed)
                kl_leader_refusals(records, <size_t>size, b.count, b.base_timestamp, &rules, entries, n)
                raise_refusals(packed, 2, request, b.count)
    return 0


cdef object plain_of(ValidatedBatch source, int codec):
    """Return the decompressed payload of a compressed batch."""
    cdef Py_ssize_t size = source.nbytes - KL_BATCH_HEADER
    try:
        return decompress(codec, memoryview(source)[KL_BATCH_HEADER:], decompressed_bytes_max(size))
    except CorruptBatch as error:
        raise type(error)(error.reason, position=0, kind=error.kind) from None


cdef ValidatedBatch keep(ValidatedBatch batch, const kl_batch_t *b, LeaderPolicy policy, const request_t *request,
                         const kl_leader_result_t *found):
    """V2: keep the batch, with the fields that a leader sets."""
    cdef kl_batch_t *header = &batch.header
    cdef int64_t max_timestamp = request.rules.now if policy.stamps else found.max_timestamp
    cdef int16_t kind = KL_ATTR_LOG_APPEND_TIME if policy.stamps else 0
    header[0] = b[0]
    header.position = 0
    header.base_offset = last_of(request.offset, b.count) - b.last_offset_delta
    header.leader_epoch = request.leader_epoch
    if b.max_timestamp != max_timestamp or (b.attributes & KL_ATTR_LOG_APPEND_TIME) != kind:
        # Bits without a meaning are kept, as in Kafka.
        header.attributes = kind | b.attributes & (
            KL_ATTR_CODEC | KL_ATTR_TRANSACTIONAL | KL_ATTR_CONTROL | KL_ATTR_DELETE_HORIZON)
        header.max_timestamp = max_timestamp
        seal(batch)
    else:
        kl_batch_header_store(batch.bytes_at, header)
    batch.max_timestamp = max_timestamp
    batch.log_append_time = max_timestamp if policy.stamps else -1
    return batch


cdef int seal(ValidatedBatch batch) except -1:
    """Write header and checksum of a batch whose payload is complete."""
    batch.header.size = <int32_t>batch.nbytes
    if batch.nbytes >= NOGIL_MIN:
        with nogil:
            kl_batch_seal(batch.bytes_at, &batch.header)
    else:
        kl_batch_seal(batch.bytes_at, &batch.header)
    return 0


cdef ValidatedBatch draft(int64_t payload_size):
    """Allocate a batch with a payload of this many bytes."""
    cdef ValidatedBatch batch = ValidatedBatch.__new__(ValidatedBatch)
    if payload_size > INT32_MAX - KL_BATCH_HEADER:
        raise RecordTooLarge(f"a batch of {payload_size} bytes of records exceeds 2 GiB; send smaller ones")
    batch.allocate(<Py_ssize_t>payload_size + KL_BATCH_HEADER)
    return batch


cdef ValidatedBatch renew(ValidatedBatch plain, const kl_batch_t *b, int codec, object level, LeaderPolicy policy,
                          const request_t *request, const kl_leader_result_t *found):
    """V3: make a batch of the records in plain, which follow space for a header, with the producer fields of b."""
    cdef ValidatedBatch batch = plain
    cdef kl_batch_t *header
    cdef Py_buffer view
    if codec != 0:
        payload = compress(codec, memoryview(plain)[KL_BATCH_HEADER:], level)
        PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE)
        try:
            if plain.nbytes - KL_BATCH_HEADER <= decompressed_bytes_max(view.len):
                batch = draft(view.len)
                memcpy(batch.bytes_at + KL_BATCH_HEADER, view.buf, <size_t>view.len)
            else:
                codec = 0   # readers would refuse it as a bomb
        finally:
            PyBuffer_Release(&view)
    header = &batch.header
    header[0] = b[0]
    header.position = 0
    header.base_offset = request.offset
    header.last_offset_delta = <int32_t>(last_of(request.offset, found.count) - request.offset)
    header.count = found.count
    header.leader_epoch = request.leader_epoch
    header.magic = 2
    header.base_timestamp = found.first_timestamp
    header.max_timestamp = request.rules.now if policy.stamps else found.max_timestamp
    header.attributes = <int16_t>(
        codec | b.attributes & KL_ATTR_TRANSACTIONAL | (KL_ATTR_LOG_APPEND_TIME if policy.stamps else 0))
    seal(batch)
    batch.max_timestamp = header.max_timestamp
    batch.log_append_time = header.max_timestamp if policy.stamps else -1
    batch.message_size_maybe_changed = True
    batch.conversion_count = found.count
    return batch


cdef ValidatedBatch take_batch(ValidatedBatch source, LeaderPolicy policy, request_t *request):
    cdef kl_batch_t b
    cdef Py_buffer view
    cdef int codec, target
    cdef bint stays
    kl_batch_fields(source.bytes_at, &b)
    source.nbytes = b.size
    check_header(&b, request)
    codec = b.attributes & KL_ATTR_CODEC
    target = codec if policy.codec == KEEP_CODEC else policy.codec
    if not request.takes_zstd and (codec == KL_CODEC_ZSTD or target == KL_CODEC_ZSTD):
        refuse_zstd()
    request.rules.log_append_time = (b.attributes & KL_ATTR_LOG_APPEND_TIME) != 0
    # Control records keep their codec, which is none.
    stays = codec == target or b.attributes & KL_ATTR_CONTROL
    request.rules.negative_refused = not stays
    plain = None if codec == 0 else plain_of(source, codec)
    if plain is None:
        return take_records(
            source, source.bytes_at + KL_BATCH_HEADER, source.nbytes - KL_BATCH_HEADER, &b, stays, target, policy,
            request)
    PyObject_GetBuffer(plain, &view, PyBUF_SIMPLE)
    try:
        return take_records(source, <const uint8_t *>view.buf, view.len, &b, stays, target, policy, request)
    finally:
        PyBuffer_Release(&view)


cdef ValidatedBatch take_records(ValidatedBatch source, const uint8_t *records, Py_ssize_t size, const kl_batch_t *b,
                                 bint stays, int target, LeaderPolicy policy, const request_t *request):
    cdef kl_leader_result_t found
    cdef int64_t anew
    cdef ValidatedBatch plain, batch
    scan(records, size, b, request, &found)
    if stays:
        batch = keep(source, b, policy, request, &found)
        # Kafka counts here whenever a codec is used.
        if b.attributes & KL_ATTR_CODEC or target != 0:
            batch.temporary_memory_bytes = KL_BATCH_HEADER + size
        return batch
    if size >= NOGIL_MIN:
        with nogil:
            anew = kl_leader_rewrite_size(records, <size_t>size, b.count)
        plain = draft(anew)
        with nogil:
            kl_leader_rewrite(records, <size_t>size, b.count, plain.bytes_at + KL_BATCH_HEADER)
    else:
        anew = kl_leader_rewrite_size(records, <size_t>size, b.count)
        plain = draft(anew)
        kl_leader_rewrite(records, <size_t>size, b.count, plain.bytes_at + KL_BATCH_HEADER)
    batch = renew(plain, b, target, policy.level, policy, request, &found)
    batch.temporary_memory_bytes = 2 * KL_BATCH_HEADER + size + anew
    return batch


cdef int refuse_zstd() except -1:
    raise UnsupportedCompression("the client's version is too old for zstd; compress with another codec")


# Magic 0 and 1 --------------------------------------------------------------------------------------------------------

cdef object unwrap(ValidatedBatch source, const kl_message_t *m):
    """Return the decompressed set of messages in a wrapper."""
    cdef int codec = m.attributes & KL_ATTR_CODEC
    cdef Py_ssize_t value_at = m.value - source.bytes_at
    if codec == KL_CODEC_ZSTD:
        refuse(f"a message of magic {m.magic} with codec zstd, which requires magic 2", None)
    if m.value_size < 0:
        refuse("a wrapper with a null value", None)
    value = memoryview(source)[value_at:value_at + m.value_size]
    if codec == KL_CODEC_LZ4 and m.magic == 0:
        value = lz4_with_header_checksum(value)
    try:
        return decompress(codec, value, decompressed_bytes_max(m.value_size))
    except CorruptBatch as error:
        raise type(error)(error.reason, position=0, kind=error.kind) from None


cdef int raise_set(int status, int32_t number, const kl_set_t *messages) except -1:
    where = f"message {number} in a wrapper" if messages.wrapped else f"message {number}"
    if status == KL_ECRC:
        corrupt(f"{where}: the checksum does not match", 0, "crc")
    if status == KL_ECODEC:
        refuse(f"{where} has a codec inside a compressed wrapper", None)
    if status == KL_ECOUNT:
        refuse("a wrapper without messages", None)
    if status == KL_EORDER:
        refuse(f"a wrapper of magic 1 at offset {messages.offset}, before its last message", None)
    if status == KL_EMAGIC:
        refuse(f"{where} has a different magic from the first, {messages.magic}", INVALID_MAGIC)
    return corrupt(f"{where}: {status_text(status)}", 0)


cdef ValidatedBatch take_messages(ValidatedBatch source, const frames_t *frames, LeaderPolicy policy, request_t *request):
    cdef kl_message_t m
    cdef kl_set_t messages
    cdef Py_buffer view
    cdef int target = frames.codec if policy.codec == KEEP_CODEC else policy.codec
    cdef int status = kl_message_next(source.bytes_at, <size_t>frames.size, &m)
    if status != KL_OK:
        corrupt(f"a message of magic {<int8_t>source.bytes_at[KL_AT_MAGIC]}: {status_text(status)}", 0)
    if not request.takes_zstd and (frames.codec == KL_CODEC_ZSTD or target == KL_CODEC_ZSTD):
        refuse_zstd()
    request.rules.log_append_time = m.magic == 1 and (m.attributes & KL_ATTR_LOG_APPEND_TIME) != 0
    request.rules.negative_refused = True
    messages.magic = m.magic
    messages.offset = m.offset
    messages.wrapped = frames.codec != 0
    if not messages.wrapped:
        messages.at = source.bytes_at
        messages.size = <size_t>frames.size
        return take_set(&messages, frames, target, policy, request)
    plain = unwrap(source, &m)
    PyObject_GetBuffer(plain, &view, PyBUF_SIMPLE)
    try:
        messages.at = <const uint8_t *>view.buf
        messages.size = <size_t>view.len
        return take_set(&messages, frames, target, policy, request)
    finally:
        PyBuffer_Release(&view)


cdef ValidatedBatch take_set(const kl_set_t *messages, const frames_t *frames, int target, LeaderPolicy policy,
                             const request_t *request):
    cdef kl_leader_result_t found
    cdef kl_refusal_t *entries
    cdef kl_leader_rules_t rules
    cdef kl_batch_t b
    cdef ValidatedBatch plain, batch
    cdef bytes packed
    cdef int32_t bad = 0, n
    cdef int status
    if messages.size >= LEGACY_NOGIL_MIN:
        with nogil:
            status = kl_set_scan(messages, &request.rules, &found, &bad)
    else:
        status = kl_set_scan(messages, &request.rules, &found, &bad)
    if status != KL_OK:
        raise_set(status, bad, messages)
    if found.may_be_refused:
        rules = request.rules
        for rules.negative_refused in range(2):     # as above
            n = kl_set_refusals(messages, found.count, &rules, NULL, 0)
            if n != 0:
                packed = PyBytes_FromStringAndSize(NULL, n * <Py_ssize_t>sizeof(kl_refusal_t))
                entries = <kl_refusal_t *>PyBytes_AS_STRING(packed)
                kl_set_refusals(messages, found.count, &rules, entries, n)
                if not messages.wrapped:    # each message is a batch of its own
                    entries[0].number = 0
                raise_refusals(packed, messages.magic, request, found.count if messages.wrapped else 1)
    plain = draft(found.size)
    if found.size >= NOGIL_MIN:
        with nogil:
            kl_set_write(messages, &found, plain.bytes_at + KL_BATCH_HEADER)
    else:
        kl_set_write(messages, &found, plain.bytes_at + KL_BATCH_HEADER)
    b.attributes = 0
    b.producer_id = -1
    b.producer_epoch = -1
    b.base_sequence = -1
    batch = renew(plain, &b, target, policy.level, policy, request, &found)
    batch.temporary_memory_bytes = KL_BATCH_HEADER + found.size
    if frames.codec != 0 or target != 0:
        batch.temporary_memory_bytes += frames.count * KL_BATCH_HEADER + <int64_t>messages.size
    return batch


# API ------------------------------------------------------------------------------------------------------------------

def validate_append(buffer, config, *, offset, now, str origin="client", leader_epoch=-1, takes_zstd=True):
    """Validate a produced buffer as a partition's leader. Returns a ValidatedBatch whose first record has `offset`.

    buffer: a batch of magic 2, or messages of magic 0 or 1, which are converted to one. config: a LogConfig, or a dict
    with Kafka's names. now: the leader's clock, in ms. origin: "client", or "coordinator", which may write control
    records. takes_zstd: False if a peer is too old for zstd. The log, not this function, limits the batch's size.

    Raises CorruptBatch (checksum, frame, codec stream), InvalidRecord and InvalidTimestamp (with `record_errors` if
    single records are invalid), UnsupportedCompression. Their `meters` are the Kafka metrics to increment.
    """
    cdef request_t request
    cdef ValidatedBatch batch
    request.offset = long_of("offset", offset)
    request.leader_epoch = <int32_t>whole_of("leader_epoch", leader_epoch, INT32_MIN, INT32_MAX)
    request.size_max = INT32_MAX
    request.zero_based = False
    request.takes_zstd = flag_of("takes_zstd", takes_zstd)
    batch = lead(buffer, policy_of(config), long_of("now", now), origin, &request)
    if batch is None:
        if len(memoryview(buffer)) != 0:
            corrupt(f"{len(memoryview(buffer))} bytes, less than a batch", 0)
        refuse("the buffer has no whole batch", None)
    return batch


cdef ValidatedBatch leaders_batch(buffer, LeaderPolicy policy, int64_t offset, int64_t now, str origin,
                                  int32_t leader_epoch, int64_t size_max):
    """The same for a log, which also requires that a client's batch begin at offset 0 and that no batch exceed size_max
    bytes, before and after (RecordTooLarge). Returns None if there is no whole batch."""
    cdef request_t request
    cdef ValidatedBatch batch
    request.offset = offset
    request.leader_epoch = leader_epoch
    request.size_max = size_max
    request.zero_based = origin == "client"
    request.takes_zstd = True
    batch = lead(buffer, policy, now, origin, &request)
    if batch is not None and batch.nbytes > size_max:
        too_large(batch.nbytes, &request)
    return batch


cdef ValidatedBatch lead(buffer, LeaderPolicy policy, int64_t now, str origin, request_t *request):
    cdef Py_buffer view
    cdef frames_t frames
    cdef ValidatedBatch batch, source = ValidatedBatch.__new__(ValidatedBatch)
    request.client = origin == "client"
    if not request.client and origin != "coordinator":
        raise ValueError(f'origin must be "client" or "coordinator", not {origin!r}: followers do not validate')
    request.rules.now = now
    request.rules.before_max = policy.before_max
    request.rules.after_max = policy.after_max
    request.rules.range_checked = not policy.stamps
    request.rules.key_required = policy.compacts
    check_buffer("buffer", buffer)
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        source.allocate(view.len)
        if view.len >= NOGIL_MIN:
            with nogil:
                memcpy(source.bytes_at, view.buf, <size_t>view.len)
        else:
            memcpy(source.bytes_at, view.buf, <size_t>view.len)
    finally:
        PyBuffer_Release(&view)
    frame(source.bytes_at, source.nbytes, request, &frames)
    if frames.count == 0:
        return None
    if frames.count > 1 and (source.bytes_at[KL_AT_MAGIC] == 2 or frames.codec != 0):
        refuse(f"{frames.count} batches; a produce request must contain one", None)
    if source.bytes_at[KL_AT_MAGIC] == 2:
        batch = take_batch(source, policy, request)
    else:
        batch = take_messages(source, &frames, policy, request)
    batch.source_size = frames.size
    batch.source_codec = frames.codec
    return batch
