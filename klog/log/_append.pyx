# cython: auto_pickle=False
"""AppendInfo: what an append answers. A class of its own since each append makes one."""

cimport cython
from libc.stdint cimport int32_t, int64_t


@cython.final
@cython.freelist(8)
cdef class AppendInfo:
    """What an append did. Times in ms; -1 where there is none. Kafka: LogAppendInfo.

    first_offset, last_offset, count    of the records; of a gap in replicated batches count knows nothing
    max_timestamp                       of the records; shallow_offset_of_max_timestamp: the last offset of the first
                                        batch that has it
    log_append_time                     where the topic stamps records so
    last_leader_epoch                   of the last batch
    log_start_offset                    of the log
    source_compression                  of what was given, before the log made anything of it
    valid_bytes                         of whole batches in what was given
    last_offset_of_first_batch
    is_duplicate                        the producer had written this before: offsets and time are those of then

    Two are equal that tell of the same records at the same place and time.
    """

    cdef readonly int64_t first_offset
    cdef readonly int64_t last_offset
    cdef readonly int64_t count
    cdef readonly int64_t max_timestamp
    cdef readonly int64_t log_append_time
    cdef readonly int64_t shallow_offset_of_max_timestamp
    cdef readonly int64_t log_start_offset
    cdef readonly int64_t valid_bytes
    cdef readonly int64_t last_offset_of_first_batch
    cdef readonly int32_t last_leader_epoch
    cdef readonly bint is_duplicate
    cdef readonly str source_compression

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
        return _rebuilt, (
            *self.what(), self.shallow_offset_of_max_timestamp, self.log_start_offset, self.valid_bytes,
            self.last_offset_of_first_batch, self.last_leader_epoch, self.is_duplicate, self.source_compression,
        )

    def joined(self, AppendInfo after):
        """This append and the one behind it, as one."""
        younger = after.max_timestamp > self.max_timestamp
        return AppendInfo(
            self.first_offset, after.last_offset, self.count + after.count, max(self.max_timestamp, after.max_timestamp),
            after.log_append_time,
            shallow_offset_of_max_timestamp=(
                after.shallow_offset_of_max_timestamp if younger else self.shallow_offset_of_max_timestamp),
            log_start_offset=after.log_start_offset,
            valid_bytes=self.valid_bytes + after.valid_bytes,
            last_offset_of_first_batch=self.last_offset_of_first_batch,
            last_leader_epoch=after.last_leader_epoch,
            source_compression=after.source_compression,
        )


def _rebuilt(first, last, count, timestamp, time, shallow, start, size, first_batch, epoch, duplicate, codec):
    return AppendInfo(
        first, last, count, timestamp, time, shallow_offset_of_max_timestamp=shallow, log_start_offset=start,
        valid_bytes=size, last_offset_of_first_batch=first_batch, last_leader_epoch=epoch, is_duplicate=duplicate,
        source_compression=codec,
    )
