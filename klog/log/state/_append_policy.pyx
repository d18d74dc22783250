# cython: auto_pickle=False
"""What a topic's configuration sets for the encoding of its records: codec, limits of a batch, range of timestamps."""

cimport cython
from libc.stdint cimport INT64_MAX, INT64_MIN, int64_t

from klog.record._builder cimport BatchGroup, Encoder
from klog.record._leader cimport policy_of as leader_policy_of

from klog.codec import parse_compression
from klog.errors import RecordBatchTooLarge, RecordTooLarge

cdef enum:
    BATCH_BYTES = 256 << 10

cdef int64_t MS_MAX = <int64_t>1 << 62     # in place of larger numbers, to be added to a time


cdef AppendPolicy _latest = None    # most logs of a manager have the configuration of the log before


cpdef AppendPolicy policy_of(object config):
    """The policy of a configuration."""
    global _latest
    cdef AppendPolicy policy = _latest
    if policy is None or policy.config is not config:
        policy = _latest = AppendPolicy(config)
    return policy


@cython.final
cdef class AppendPolicy:
    """The settings of a configuration that appends need, computed once. stamps: is the timestamp the append time?"""

    def __init__(self, config):
        self.config = config
        self.of_leader, self.request_bytes_max = leader_policy_of(config), config.max_message_bytes
        kind = config.compression_type
        compression = None
        if kind not in ("producer", "uncompressed"):
            compression = kind if kind == "snappy" else (kind, config[f"compression.{kind}.level"])
        self.codec, self.level = parse_compression(compression)
        self.message_bytes_max = min(config.max_message_bytes, config.segment_size)
        self.batch_bytes_max = min(BATCH_BYTES, self.message_bytes_max)
        self.segment_limits = config.segment_size < config.max_message_bytes
        self.before_max_ms = min(config.message_timestamp_before_max_ms, MS_MAX)
        self.after_max_ms = min(config.message_timestamp_after_max_ms, MS_MAX)
        self.stamps = config.message_timestamp_type == "LogAppendTime"
        self.key_required = config.compacts

    cpdef Encoder encoder(self, object records, object compression, int64_t now):
        """An encoder of records. compression: None for that of the topic."""
        cdef Encoder encoder = Encoder.__new__(Encoder)
        cdef int codec = self.codec
        level = self.level
        if compression is not None:
            codec, level = parse_compression(compression)
        encoder.begin(records, codec, level, self.batch_bytes_max, self.message_bytes_max, self.key_required)
        self.use_time(encoder, now)
        return encoder

    cdef void use_time(self, Encoder encoder, int64_t now) noexcept:
        """Set the time for the records that the encoder has not read yet."""
        cdef int64_t low = INT64_MIN, high = INT64_MAX
        if self.stamps:
            encoder.use_times(now, low, high, now)
            return
        if now >= low + self.before_max_ms:
            low = now - self.before_max_ms
        if now <= high - self.after_max_ms:
            high = now + self.after_max_ms
        encoder.use_times(now, low, high, -1)

    cpdef BatchGroup next_group(self, Encoder encoder, int64_t bytes_max):
        """The next group of the encoder, None at the end. A batch has the smaller of two limits; the error names the
        one that was exceeded."""
        try:
            return encoder.take_group(bytes_max)
        except RecordTooLarge as error:
            if not self.segment_limits:
                raise
            raise RecordBatchTooLarge(str(error).replace("max.message.bytes", "segment.bytes")) from None
