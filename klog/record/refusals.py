"""Lists which records of a produced batch are invalid, and why. Texts are made only when read: a batch of 1 MiB may
have a hundred thousand invalid records.

Kafka: LogValidator.ApiRecordError.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Final, overload

from klog.values import dataclass

MAGIC, KEY, LOG_APPEND_TIME, TIMESTAMP, NEGATIVE = range(1, 6)  # csrc/leader.h, kl_refused_t

METRICS: Final = {MAGIC: "InvalidMagicNumberRecordsPerSec", KEY: "NoKeyCompactedTopicRecordsPerSec"}

_REFUSAL: Final = struct.Struct("=qii")  # csrc/leader.h, kl_refusal_t: timestamp, number, reason
_SHOWN_MAX: Final = 3


@dataclass(frozen=True, slots=True)
class RecordError:
    """One record because of which a leader refuses its batch. batch_index counts from 0 in that batch.

    Kafka: ProduceResponse.RecordError.
    """

    batch_index: int
    message: str


@dataclass(frozen=True, eq=False)
class RecordErrors(Sequence[RecordError]):
    """Immutable; equal to any sequence of the same errors."""

    packed: bytes
    magic: int
    timestamp_min: int
    timestamp_max: int

    def __len__(self) -> int:
        return len(self.packed) // _REFUSAL.size

    @overload
    def __getitem__(self, index: int) -> RecordError: ...
    @overload
    def __getitem__(self, index: slice) -> list[RecordError]: ...
    def __getitem__(self, index: int | slice) -> RecordError | list[RecordError]:
        if isinstance(index, slice):
            return [self._at(i) for i in range(*index.indices(len(self)))]
        return self._at(range(len(self))[index])

    def __iter__(self) -> Iterator[RecordError]:
        return map(self._at, range(len(self)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or isinstance(other, str | bytes):
            return NotImplemented
        return len(self) == len(other) and all(mine == theirs for mine, theirs in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<{len(self)} record errors: {self}>"

    def __str__(self) -> str:
        """Return the text of the first three."""
        shown = [f"record {error.batch_index}: {error.message}" for error in self[:_SHOWN_MAX]]
        if len(self) > _SHOWN_MAX:
            shown.append(f"and {len(self) - _SHOWN_MAX} more")
        return "; ".join(shown)

    @property
    def meters(self) -> dict[str, int]:
        reasons = [why for _, _, why in _REFUSAL.iter_unpack(self.packed)]
        return {metric: reasons.count(why) for why, metric in METRICS.items() if why in reasons}

    @property
    def by_timestamp(self) -> bool:
        """Is the timestamp of at least one of them invalid?"""
        return any(why in (LOG_APPEND_TIME, TIMESTAMP, NEGATIVE) for _, _, why in _REFUSAL.iter_unpack(self.packed))

    def _at(self, i: int) -> RecordError:
        timestamp, number, why = _REFUSAL.unpack_from(self.packed, i * _REFUSAL.size)
        return RecordError(number, self._text(why, timestamp))

    def _text(self, why: int, timestamp: int) -> str:
        if why == MAGIC:
            return f"its magic is not that of its wrapper, {self.magic}"
        if why == KEY:
            return "Compacted topic cannot accept message without key; give it one"
        if why == LOG_APPEND_TIME:
            return "the batch has the type LogAppendTime, which only the leader may set; produce with CreateTime"
        if why == NEGATIVE:
            return f"timestamp {timestamp} is negative; use -1 for no timestamp"
        return (
            f"timestamp {timestamp} is outside [{self.timestamp_min}, {self.timestamp_max}], "
            f"the range that message.timestamp.before.max.ms and .after.max.ms allow"
        )
