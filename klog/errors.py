"""All exceptions of klog, as subclasses of KlogError.

Four kinds, never mixed: mistakes of the caller are also ValueError or TypeError; invalid bytes have path, position and
offset as attributes; errors of the kernel are OSError with a path; bugs of klog are AssertionError and not listed here.

`code` is Kafka's protocol error code if Kafka has one (each docstring names its class), else -1
(UNKNOWN_SERVER_ERROR). Messages end with what to do next.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False  # as in typing, which `import klog` does not load
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any, ClassVar, SupportsIndex


class KlogError(Exception):
    """Base class of all exceptions of klog."""

    code: ClassVar[int] = -1

    @property
    def meters(self) -> Mapping[str, int]:
        """{name of a Kafka metric: its increment} when a broker refuses a produced batch with this error."""
        return {}

    def __reduce_ex__(self, _protocol: SupportsIndex) -> tuple[Any, ...]:
        """As __reduce__ of the class states it, with what was set or noted since (add_note)."""
        return (*self.__reduce__()[:2], vars(self))


class CorruptData(KlogError):
    """Bytes in a file or buffer that violate the format. Kafka: CorruptRecordException (2).

    path: the file, or None for bytes in memory. position: first byte of the invalid part in that file or buffer.
    offset: record offset if known, else None. kind: the problem's name in `verify`: crc, length, offset_order, epoch,
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


class CorruptFrame(CorruptData):
    """A request, response or part of one that is not a message of its version. Kafka: InvalidRequestException (42).

    position: in the bytes that were decoded. field: its path, as in "topics[3].partitions[0].index", or None.
    """

    code = 42
    field: str | None = None

    def __init__(self, message: str, *, position: int | None = None, field: str | None = None) -> None:
        super().__init__(message, position=position)
        self.field = field

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild_frame, (self.reason, self.position, self.field)


def _rebuild_frame(message: str, position: int | None, field: str | None) -> CorruptFrame:
    return CorruptFrame(message, position=position, field=field)


class CorruptBatch(CorruptData):
    """A record batch or a record in it: length, checksum, varint, count, codec stream.

    next_offset: where a reader of the log can continue after the damage, read(start=error.next_offset); None if the
    bytes do not belong to a log.
    """

    next_offset: int | None = None


class UnsupportedBatch(CorruptBatch):
    """A valid batch of a format that a log does not accept: magic 0 or 1, which only `klog.record` reads. A load never
    cuts it off."""

    code = 43


class DecompressionLimit(CorruptBatch):
    """A payload that exceeds the limit of decompressed bytes."""


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
    """klog-audit.jsonl with an invalid line. Nothing is purged until it is corrected."""

    default_kind = "checkpoint"


class CorruptLog(CorruptData):
    """A log that recovery="strict" refuses to open, because a cut would remove valid batches."""


class OffsetOutOfRange(KlogError, ValueError):
    """An offset below the log start or above the log end, or, for a tail, that was above it meanwhile. Kafka:
    OffsetOutOfRangeException (1). Attributes: offset, log_start_offset, log_end_offset."""

    code = 1

    def __init__(
        self, offset: int, log_start_offset: int, log_end_offset: int, name: str = "log", text: str | None = None
    ) -> None:
        self.offset, self.log_start_offset, self.log_end_offset = offset, log_start_offset, log_end_offset
        self.name = name
        super().__init__(
            text
            or f"offset {offset} is outside {name}, which holds [{log_start_offset}, {log_end_offset}); "
            f"read from 'earliest' or from an offset in that range"
        )

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.offset, self.log_start_offset, self.log_end_offset, self.name, self.args[0])


class LogTruncated(OffsetOutOfRange):
    """A truncation has removed what a reader has read last, and the log may have grown beyond its position again.
    Kafka: LogTruncationException, of consumers.

    offset: the reader's position. diverging_offset: the log was truncated there or below.
    """

    def __init__(
        self, offset: int, log_start_offset: int, log_end_offset: int, name: str, diverging_offset: int
    ) -> None:
        self.diverging_offset = diverging_offset
        held = f"holds [{log_start_offset}, {log_end_offset})"
        how = f"{name} was truncated below offset {offset}, or its topic was created again"
        text = f"offset {offset} is outside {name}, which {held}. {how}: read again from an earlier offset"
        if offset <= log_end_offset:
            text = (
                f"{how}: from offset {diverging_offset} on, or from an earlier one, its records are not those that "
                f"were read. It {held}: read again from an earlier offset"
            )
        super().__init__(offset, log_start_offset, log_end_offset, name, text)

    def __reduce__(self) -> tuple[object, ...]:
        start, end = self.log_start_offset, self.log_end_offset
        return type(self), (self.offset, start, end, self.name, self.diverging_offset)


class BadValue(KlogError, ValueError):
    """A key or value whose bytes are not of the format that the reader was given.

    partition: topic-partition. offset: of its record. column: key or value. reason: what is wrong.
    """

    def __init__(self, partition: str, offset: int, column: str, reason: str, hint: str) -> None:
        self.partition, self.offset, self.column, self.reason = partition, offset, column, reason
        self._hint = hint
        super().__init__(f"{partition}, offset {offset}: the {column} is bad: {reason}. {hint}")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.partition, self.offset, self.column, self.reason, self._hint)


class UnknownTopicOrPartition(KlogError, LookupError):
    """A topic or partition that does not exist, or does not exist any more. Kafka: UnknownTopicOrPartitionException
    (3)."""

    code = 3


class GroupIdNotFound(KlogError, LookupError):
    """A consumer group that does not exist. Kafka: GroupIdNotFoundException (69)."""

    code = 69


class RecordTooLarge(KlogError, ValueError):
    """Kafka: RecordTooLargeException (10): a batch above max.message.bytes."""

    code = 10


class InvalidTopic(KlogError, ValueError):
    """A name that no topic can have. Kafka: InvalidTopicException (17)."""

    code = 17


class RecordBatchTooLarge(KlogError, ValueError):
    """Kafka: RecordBatchTooLargeException (18): an append above segment.bytes."""

    code = 18


class _Refused(KlogError, ValueError):
    """A refused append. record_errors: the records for which a leader refuses the batch (klog.record.RecordError), in
    order; empty if the batch as a whole is invalid, or if the caller passed records instead of a batch.

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
    """A timestamp that is negative, too large, or outside the bounds of the topic. Kafka: InvalidTimestampException
    (32)."""

    code = 32


class UnsupportedVersion(KlogError, ValueError):
    """Kafka: UnsupportedVersionException (35): a version of a message that klog does not know, or a value that a
    version cannot carry. Attributes: api_key, api_version, correlation_id of a received request; else None."""

    code = 35

    def __init__(
        self,
        message: str,
        *,
        api_key: int | None = None,
        api_version: int | None = None,
        correlation_id: int | None = None,
    ) -> None:
        self.api_key, self.api_version, self.correlation_id = api_key, api_version, correlation_id
        super().__init__(message)


class TopicExists(KlogError, ValueError):
    """The topic exists already, or the directory for a new log.dir is not empty. Kafka: TopicExistsException (36)."""

    code = 36


class InvalidPartitions(KlogError, ValueError):
    """Kafka: InvalidPartitionsException (37): a number of partitions that the topic cannot get."""

    code = 37


class InvalidConfig(KlogError, ValueError):
    """Kafka: InvalidConfigurationException (40): unknown key, wrong type, value out of range."""

    code = 40


class PolicyViolation(KlogError, ValueError):
    """Kafka: PolicyViolationException (44): a call that the topic's cleanup.policy does not allow."""

    code = 44


class ConfigUnknown(KlogError):
    """An operation that depends on a topic's configuration, such as retention, when that is not known."""


class OutOfOrderSequence(KlogError, ValueError):
    """Kafka: OutOfOrderSequenceException (45): a producer's batch does not continue after its last one."""

    code = 45


class InvalidProducerEpoch(KlogError, ValueError):
    """Kafka: InvalidProducerEpochException (47): an epoch below the producer's last one."""

    code = 47


class InvalidTxnState(KlogError, ValueError):
    """Kafka: InvalidTxnStateException (48): a batch outside the open transaction of its producer."""

    code = 48


class TransactionCoordinatorFenced(KlogError, ValueError):
    """Kafka: TransactionCoordinatorFencedException (52): a marker of a coordinator that has been replaced."""

    code = 52


class UnexpectedAppendOffset(KlogError, ValueError):
    """Kafka: UnexpectedAppendOffsetException: replicated batches that begin below the log end (in a metadata log:
    not at the log end). Attributes: first_offset, last_offset of the batches; log_end_offset."""

    def __init__(self, first_offset: int, last_offset: int, log_end_offset: int, name: str = "log") -> None:
        self.first_offset, self.last_offset, self.log_end_offset = first_offset, last_offset, log_end_offset
        self.name = name
        super().__init__(
            f"batches of offsets {first_offset} to {last_offset} do not continue {name}, whose log end is "
            f"{log_end_offset}; fetch from that offset"
        )

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.first_offset, self.last_offset, self.log_end_offset, self.name)


class OffsetsOutOfOrder(KlogError, ValueError):
    """Kafka: OffsetsOutOfOrderException: replicated batches whose offsets do not increase from batch to batch."""


class SegmentOffsetOverflow(KlogError, ValueError):
    """Kafka: LogSegmentOffsetOverflowException: offsets too far apart for one segment, 2^31 or more."""


class StorageOffline(KlogError):
    """Kafka: KafkaStorageException (56): an I/O error took the directory offline. Open it again: what is on disk is
    then checked."""

    code = 56


class ReadFailed(KlogError, OSError):
    """Kafka: KafkaStorageException (56): the disk failed to read bytes of a log file. The log stays open, and its other
    bytes can be read. Attributes: errno, filename, position."""

    code = 56

    def __init__(self, number: int, text: str, path: str, position: int) -> None:
        self.position = position
        super().__init__(number, text, path)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.errno, self.strerror, self.filename, self.position)


class RecordRemoved(KlogError):
    """Retention, a compaction or a truncation has removed a record after latest_by_key(), before it was read."""


class UnexplainedLogEnd(KlogError):
    """A log does not end at the offset in the manifest of a staged commit: another program has written to the log."""


class StagingLost(KlogError):
    """Staged files of a commit are missing or have changed, or their topic has changed: nothing was committed."""


class DuplicateLog(KlogError):
    """One partition is in two log.dirs. Kafka: IllegalStateException, and the broker does not start."""


class NotALogDirectory(KlogError, ValueError):
    """The directory of one partition where a log.dir is expected."""


class LogClosed(StorageOffline, ValueError):
    """The log or manager was closed; open it again."""


class UnsupportedCompression(KlogError, ValueError):
    """An unknown codec, or one that the client's version does not know. Kafka: UnsupportedCompressionTypeException
    (76)."""

    code = 76


class InvalidRecord(_Refused):
    """A record that the log does not accept, such as one without a key in a compacted topic. Kafka:
    InvalidRecordException (87)."""

    code = 87


class InconsistentTopicId(KlogError):
    """A partition's directory has another topic id than expected. Kafka: InconsistentTopicIdException (103)."""

    code = 103


class AlreadyLocked(KlogError):
    """Another process, or another object of this one, holds the directory. Attributes: path; holder, None if it is not
    known."""

    def __init__(self, message: str, *, path: str | None = None, holder: str | None = None) -> None:
        self.path, self.holder = path, holder
        super().__init__(message)


class ReadOnly(KlogError):
    """A write on a log that was opened with read_only=True."""


class PeerGone(KlogError, ConnectionError):
    """The peer has closed the connection: EPIPE, ECONNRESET and similar. Attributes: errno, sent."""

    def __init__(self, number: int, sent: int) -> None:
        self.sent = sent
        super().__init__(number, f"{os.strerror(number)}: the peer is gone, {sent} bytes had been sent; connect again")

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.errno, self.sent)


class SendTimeout(KlogError, TimeoutError):
    """A socket took no bytes during its timeout. Attribute: sent, the bytes that it had taken before."""

    def __init__(self, seconds: float, sent: int) -> None:
        self.seconds, self.sent = seconds, sent
        super().__init__(f"the socket took nothing for {seconds} s, {sent} bytes had been sent; continue after them")

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.seconds, self.sent)


class SendInterrupted(KlogError, ConnectionError):
    """An exception from a signal handler has ended a send through this TLS socket. Whether its last record was sent is
    not known, so nothing more can be sent: close the connection."""

    sent = 0


class ForkedHandle(KlogError):
    """A write in a forked child on a log that its parent opened; open the log again in the child."""


class Overtaken(KlogError):
    """A compaction, a purge or a dry run of one was interrupted each time: by retention, a truncation, a rename of the
    directory, or a call that waits for the log. Nothing is lost: try again."""


class ReentrantCall(KlogError, RuntimeError):
    """A call inside another call of the same thread on the same log or directory, which only a signal handler can make.

    Let the handler set a flag, or raise, and make the call after the handler. The refused call has changed nothing.
    """


class NewerFormat(KlogError):
    """A file of klog that a newer version has written."""


class HandoverRefused(KlogError):
    """A directory that cannot be handed over to a Kafka broker, or taken over from one, in its present state."""


__all__ = sorted(  # every class above, also one that is added
    name
    for name, value in globals().items()
    if isinstance(value, type) and issubclass(value, KlogError) and not name.startswith("_")
)


def __dir__() -> list[str]:
    return __all__
