# cython: auto_pickle=False
"""AppendInfo: the result of an append."""

cimport cython
from libc.stdint cimport int32_t, int64_t

from klog.record._builder cimport BatchGroup
from klog.record._encoded cimport EncodedBatches
from klog.record._leader cimport ValidatedBatch

from functools import partial


@cython.final
@cython.freelist(8)
cdef class AppendInfo:
    """The result of an append. Times in ms; -1 if there is none. Kafka: LogAppendInfo.

    first_offset, last_offset, count    of the records; count includes gaps in replicated batches
    max_timestamp                       of the records; shallow_offset_of_max_timestamp: the last offset of the first
                                        batch that has it
    log_append_time                     with message.timestamp.type=LogAppendTime
    last_leader_epoch                   of the last batch
    log_start_offset                    of the log
    source_compression                  of the batches as given
    valid_bytes                         of the whole batches as given
    last_offset_of_first_batch
    is_duplicate                        the producer had written this before: offsets and time are those of that append

    Two are equal if first_offset, last_offset, count, max_timestamp and log_append_time are.
    """

    def __init__(self, int64_t first_offset, int64_t last_offset, int64_t count, int64_t max_timestamp,
                 int64_t log_append_time, *, int64_t shallow_offset_of_max_timestamp=-1, int64_t log_start_offset=-1,
                 int64_t valid_bytes=0, int64_t last_offset_of_first_batch=-1, int32_t last_leader_epoch=-1,
                 bint is_duplicate=False, str source_compression="none"):
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.count = count
        self.max_timestamp = max_timestamp
        self.log_append_time = log_append_time
        self.shallow_offset_of_max_timestamp = shallow_offset_of_max_timestamp
        self.log_start_offset = log_start_offset
        self.valid_bytes = valid_bytes
        self.last_offset_of_first_batch = last_offset_of_first_batch
        self.last_leader_epoch = last_leader_epoch
        self.is_duplicate = is_duplicate
        self.source_compression = source_compression

    cdef tuple what(self):
        return self.first_offset, self.last_offset, self.count, self.max_timestamp, self.log_append_time

    def __eq__(self, other):
        if not isinstance(other, AppendInfo):
            return NotImplemented
        return self.what() == (<AppendInfo>other).what()

    def __hash__(self):
        return hash(self.what())

    def __repr__(self):
        duplicate = ", is_duplicate=True" if self.is_duplicate else ""
        return (
            f"AppendInfo(first_offset={self.first_offset}, last_offset={self.last_offset}, count={self.count}, "
            f"max_timestamp={self.max_timestamp}, log_append_time={self.log_append_time}{duplicate})"
        )

    def __reduce__(self):
        return partial(
            AppendInfo, shallow_offset_of_max_timestamp=self.shallow_offset_of_max_timestamp,
            log_start_offset=self.log_start_offset, valid_bytes=self.valid_bytes,
            last_offset_of_first_batch=self.last_offset_of_first_batch, last_leader_epoch=self.last_leader_epoch,
            is_duplicate=self.is_duplicate, source_compression=self.source_compression), self.what()

    def joined(self, AppendInfo after not None):
        """This append and the next one as a single result."""
        younger = after.max_timestamp > self.max_timestamp
        return AppendInfo(
            self.first_offset, after.last_offset, self.count + after.count,
            max(self.max_timestamp, after.max_timestamp),
            after.log_append_time,
            shallow_offset_of_max_timestamp=(
                after.shallow_offset_of_max_timestamp if younger else self.shallow_offset_of_max_timestamp),
            log_start_offset=after.log_start_offset,
            valid_bytes=self.valid_bytes + after.valid_bytes,
            last_offset_of_first_batch=self.last_offset_of_first_batch,
            last_leader_epoch=after.last_leader_epoch,
            source_compression=after.source_compression,
        )


cdef AppendInfo led(ValidatedBatch batch, int32_t epoch, int64_t log_start_offset):
    """The result for a client whose batch is in the log."""
    cdef AppendInfo info = AppendInfo.__new__(AppendInfo)
    cdef int64_t last = batch.header.base_offset + batch.header.last_offset_delta
    info.first_offset = batch.header.base_offset
    info.last_offset = last
    info.count = batch.header.count
    info.max_timestamp = batch.max_timestamp
    info.log_append_time = batch.log_append_time
    info.shallow_offset_of_max_timestamp = -1 if batch.max_timestamp < 0 else last
    info.log_start_offset = log_start_offset
    info.valid_bytes = batch.source_size
    info.last_offset_of_first_batch = last
    info.last_leader_epoch = epoch
    info.source_compression = batch.codec_sent()
    return info


cdef AppendInfo followed(EncodedBatches batches, int64_t log_start_offset):
    """The result for a follower whose batches are in the log."""
    cdef AppendInfo info = AppendInfo.__new__(AppendInfo)
    info.first_offset = batches.first_offset
    info.last_offset = batches.last_offset
    info.count = batches.last_offset - batches.first_offset + 1 if batches.first_offset >= 0 else 0
    info.max_timestamp = batches.max_timestamp
    info.log_append_time = -1
    info.shallow_offset_of_max_timestamp = batches.shallow_offset_of_max_timestamp
    info.log_start_offset = log_start_offset
    info.valid_bytes = batches.nbytes
    info.last_offset_of_first_batch = batches.last_offset_of_first_batch
    info.last_leader_epoch = batches.last_leader_epoch
    info.source_compression = batches.codec_sent()
    return info


cdef AppendInfo grouped(BatchGroup group, int64_t log_append_time, int64_t log_start_offset):
    """The result for records that are in the log."""
    cdef AppendInfo info = AppendInfo.__new__(AppendInfo)
    info.first_offset = group.first_offset
    info.last_offset = group.first_offset + group.count - 1
    info.count = group.count
    info.max_timestamp = group.max_timestamp
    info.log_append_time = log_append_time
    info.shallow_offset_of_max_timestamp = -1
    info.log_start_offset = log_start_offset
    info.valid_bytes = group.nbytes
    info.last_offset_of_first_batch = -1
    info.last_leader_epoch = group.batches[0].leader_epoch
    info.source_compression = "none"
    return info


cpdef AppendInfo nothing(int64_t end, int64_t log_start_offset):
    """The result of an append without a whole batch, or without records."""
    return AppendInfo(end, end - 1, 0, -1, -1, log_start_offset=log_start_offset)
