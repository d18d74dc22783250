"""Every error that klog raises on purpose, in one tree under KlogError.

Four kinds, never mixed: the caller's mistakes are also ValueError or TypeError; bad bytes carry the file, position and
offset; the kernel's errors are OSError with their path; klog's own mistakes are AssertionError and not listed here.

`code` is Kafka's protocol error code where Kafka has one (its class is named in each docstring), else -1
(UNKNOWN_SERVER_ERROR). Messages end with what to do next.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any


class KlogError(Exception):
    """Root of the tree."""

    code: ClassVar[int] = -1

    @property
    def meters(self) -> Mapping[str, int]:
        """Kafka's meters that a broker marks when it refuses a produced batch so, and by how much."""
        return {}


class CorruptData(KlogError):
    """Bytes in a file or buffer that break the format. Kafka: CorruptRecordException (2).

    path: file, or None for bytes in memory. position: first byte of the broken thing in that file or buffer.
    offset: record offset where known, else None. kind: what `verify` calls it: crc, length, offset_order, epoch,
    index, timeindex, txnindex, snapshot, checkpoint, gap.
    """

    code = 2
    default_kind: ClassVar[str] = "length"

    def __init__(
        self,
        message: str,
        *,
        path: str | os.PathLike[str] | None = None,
        position: int | None = None,
        offset: int | None = None,
        kind: str | None = None,
    ) -> None:
        self.path = None if path is None else os.fspath(path)
        self.position = position
        self.offset = offset
        self.kind = kind or self.default_kind
        self.reason = message
        where = []
        if self.path is not None:
            where.append(self.path)
        if position is not None:
            where.append(f"position {position}")
        if offset is not None:
            where.append(f"offset {offset}")
        super().__init__(f"{message} ({', '.join(where)})" if where else message)

    @property
    def meters(self) -> Mapping[str, int]:
        return {"InvalidMessageCrcRecordsPerSec": 1} if self.kind == "crc" else {}

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.reason, self.path, self.position, self.offset, self.kind)


def _rebuild(
    cls: type[CorruptData], message: str, path: str | None, position: int | None, offset: int | None, kind: str
) -> CorruptData:
    return cls(message, path=path, position=position, offset=offset, kind=kind)


class CorruptBatch(CorruptData):
    """A record batch or a record in it: length, checksum, varint, count, codec stream.

    next_offset: where the readers of a log can go on behind the damage, read(start=error.next_offset); None where the
    bytes are of no log.
    """

    next_offset: int | None = None

    def __reduce__(self) -> tuple[object, ...]:
        return (*super().__reduce__(), {"next_offset": self.next_offset})


class UnsupportedBatch(CorruptBatch):
    """A sound batch of a format that a log does not take: magic 0 and 1, which only `klog.record` reads. Nothing is
    cut because of it."""

    code = 43


class DecompressionLimit(CorruptBatch):
    """A payload that grows past the bound on decompressed bytes."""


class CorruptIndex(CorruptData):
    """An .index, .timeindex or .txnindex file. Kafka: CorruptIndexException."""

    default_kind = "index"


class CorruptSnapshot(CorruptData):
    """A .snapshot file of producer state. Kafka: CorruptSnapshotException."""

    default_kind = "snapshot"


class CorruptCheckpoint(CorruptData):
    """A checkpoint, leader-epoch or metadata text file."""

    default_kind = "checkpoint"


class CorruptAudit(CorruptData):
    """klog-audit.jsonl: a line that is none. Nothing is purged until it is put right."""

    default_kind = "checkpoint"


class CorruptLog(CorruptData):
    """A log that recovery="strict" refuses to open, since cutting it would throw away good batches."""


class OffsetOutOfRange(KlogError, ValueError):
    """Kafka: OffsetOutOfRangeException (1). Attributes: offset, log_start_offset, log_end_offset."""

    code = 1

    def __init__(self, offset: int, log_start_offset: int, log_end_offset: int, name: str = "log") -> None:
        self.offset, self.log_start_offset, self.log_end_offset = offset, log_start_offset, log_end_offset
        self.name = name
        super().__init__(
            f"offset {offset} is outside {name}, which holds [{log_start_offset}, {log_end_offset}); "
            f"read from 'earliest' or from an offset in that range"
        )

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.offset, self.log_start_offset, self.log_end_offset, self.name)


class UnknownTopicOrPartition(KlogError, LookupError):
    """Kafka: UnknownTopicOrPartitionException (3)."""

    code = 3


class RecordTooLarge(KlogError, ValueError):
    """Kafka: RecordTooLargeException (10): a batch above max.message.bytes."""

    code = 10


class InvalidTopic(KlogError, ValueError):
    """Kafka: InvalidTopicException (17)."""

    code = 17


class RecordBatchTooLarge(KlogError, ValueError):
    """Kafka: RecordBatchTooLargeException (18): an append above segment.bytes."""

    code = 18


class _Refused(KlogError, ValueError):
    """record_errors: each record for which a leader refuses its batch (klog.record.RecordError), in their order; empty
    where the batch as a whole is wrong, and where the records were the caller's own.

    Kafka: RecordValidationException.
    """

    def __init__(
        self, message: str = "", *, record_errors: Sequence[Any] = (), meters: Mapping[str, int] | None = None
    ) -> None:
        super().__init__(message)
        self.record_errors = record_errors
        self._metrics = dict(meters or {})

    @property
    def meters(self) -> Mapping[str, int]:
        return self._metrics


class InvalidTimestamp(_Refused):
    """Kafka: InvalidTimestampException (32)."""

    code = 32


class TopicExists(KlogError, ValueError):
    """Kafka: TopicExistsException (36)."""

    code = 36


class InvalidConfig(KlogError, ValueError):
    """Kafka: InvalidConfigurationException (40): unknown key, wrong type, value out of range."""

    code = 40


class PolicyViolation(KlogError, ValueError):
    """Kafka: PolicyViolationException (44): what the topic's cleanup.policy does not allow."""

    code = 44


class ConfigUnknown(KlogError):
    """Retention or compaction of a topic whose configuration nobody has given: nothing is deleted on a guess."""


class OutOfOrderSequence(KlogError, ValueError):
    """Kafka: OutOfOrderSequenceException (45): a producer's batch does not go on where its last one ended."""

    code = 45


class InvalidProducerEpoch(KlogError, ValueError):
    """Kafka: InvalidProducerEpochException (47): an older epoch than the producer has written with."""

    code = 47


class InvalidTxnState(KlogError, ValueError):
    """Kafka: InvalidTxnStateException (48): data outside the transaction that its producer has open."""

    code = 48


class TransactionCoordinatorFenced(KlogError, ValueError):
    """Kafka: TransactionCoordinatorFencedException (52): a marker of a coordinator that another one has followed."""

    code = 52


class UnexpectedAppendOffset(KlogError, ValueError):
    """Kafka: UnexpectedAppendOffsetException: replicated batches that begin below the log end (in a metadata log:
    anywhere but there). Attributes: first_offset, last_offset of what was to be appended; log_end_offset."""

    def __init__(self, first_offset: int, last_offset: int, log_end_offset: int, name: str = "log") -> None:
        self.first_offset, self.last_offset, self.log_end_offset = first_offset, last_offset, log_end_offset
        self.name = name
        super().__init__(
            f"batches of offsets {first_offset} to {last_offset} for {name}, which ends at {log_end_offset}"
        )

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.first_offset, self.last_offset, self.log_end_offset, self.name)


class OffsetsOutOfOrder(KlogError, ValueError):
    """Kafka: OffsetsOutOfOrderException: replicated batches whose offsets do not rise from batch to batch."""


class SegmentOffsetOverflow(KlogError, ValueError):
    """Kafka: LogSegmentOffsetOverflowException: offsets too far apart for one segment, 2^31 or more."""


class StorageOffline(KlogError):
    """Kafka: KafkaStorageException (56): an I/O error took the directory offline; reopen to decide from disk."""

    code = 56


class ReadFailed(KlogError, OSError):
    """Kafka: KafkaStorageException (56): the disk does not give the bytes of a log file. The log stays open, and other
    places of it can be read. Attributes: errno, filename, position."""

    code = 56

    def __init__(self, number: int, text: str, path: str, position: int) -> None:
        self.position = position
        super().__init__(number, text, path)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.errno, self.strerror, self.filename, self.position)


class DuplicateLog(KlogError):
    """One partition in two log directories. Kafka: IllegalStateException, and the broker does not start."""


class LogClosed(StorageOffline, ValueError):
    """The log or manager was closed; open it again."""


class UnsupportedCompression(KlogError, ValueError):
    """Kafka: UnsupportedCompressionTypeException (76)."""

    code = 76


class InvalidRecord(_Refused):
    """Kafka: InvalidRecordException (87)."""

    code = 87


class InconsistentTopicId(KlogError):
    """Kafka: InconsistentTopicIdException (103)."""

    code = 103


class AlreadyLocked(KlogError):
    """Another process, or another object of this one, holds the directory. Attribute: path; holder where known."""

    def __init__(self, message: str, *, path: str | None = None, holder: str | None = None) -> None:
        self.path, self.holder = path, holder
        super().__init__(message)


class ReadOnly(KlogError):
    """A write on a log that was opened with read_only=True."""


class PeerGone(KlogError, ConnectionError):
    """Whoever was sent to is gone: EPIPE, ECONNRESET and their like. Attributes: errno, sent."""

    def __init__(self, number: int, sent: int) -> None:
        self.sent = sent
        super().__init__(number, f"{os.strerror(number)}: the peer is gone, {sent} bytes had been sent to it")

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.errno, self.sent)


class SendTimeout(KlogError, TimeoutError):
    """A socket took nothing for as long as its timeout is. Attribute: sent, the bytes that it had taken before."""

    def __init__(self, seconds: float, sent: int) -> None:
        self.seconds, self.sent = seconds, sent
        super().__init__(f"the socket took nothing for {seconds} s, {sent} bytes had been sent; go on behind them")

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.seconds, self.sent)


class ForkedHandle(KlogError):
    """A write in a forked child on a log that its parent opened; open the log again in the child."""


class ReentrantCall(KlogError, RuntimeError):
    """A call in the middle of another one of the same thread on the same log or directory, which only the handler of a
    signal can make: let the handler set a flag, or raise, and do the rest behind it. The call has done nothing."""


class NewerFormat(KlogError):
    """A file of klog's own written by a newer klog."""
