from collections.abc import Callable
from typing import Any, Protocol, Self, final

from typing_extensions import Buffer, disjoint_base

from klog.config import LogConfig
from klog.disk import Bell
from klog.log.options import Compression, Options
from klog.log.state._flush_state import FlushState
from klog.log.state._producer_entry import ProducerEntry
from klog.log.state.leader_epochs import LeaderEpochCache
from klog.log.state.metrics import LogMetrics
from klog.log.state.producers import Producers
from klog.log.write._append_policy import AppendPolicy
from klog.log.write._commit import CommitQueue
from klog.record import BatchGroup, EncodedBatches, Records, ValidatedBatch
from klog.segment import Segment

class _TakenBack(Protocol):
    def take_back(self) -> None: ...

@disjoint_base
class LogState:
    _lock: Any
    _segments: tuple[Segment, ...]
    _config: LogConfig
    _append_policy: AppendPolicy
    _epochs: LeaderEpochCache
    _producers: Producers
    _options: Options
    _bell: Bell
    _offline: str | None
    _offsets_listener: Callable[[int], None] | None
    _metrics: LogMetrics
    _tail: Tail | None
    _closed: bool
    _forked: bool
    _marked_for_deletion: bool
    _log_start_offset: int
    _log_end_offset: int
    _written_end: int
    _commits: CommitQueue | None
    _applied: list[_TakenBack]
    _flush_state: FlushState
    _looked_ms: int

@disjoint_base
class Counters:
    bytes_in: int
    messages_in: int
    replicated_bytes_in: int

@final
class AppendInfo:
    def __init__(
        self,
        first_offset: int,
        last_offset: int,
        count: int,
        max_timestamp: int,
        log_append_time: int,
        *,
        shallow_offset_of_max_timestamp: int = -1,
        log_start_offset: int = -1,
        valid_bytes: int = 0,
        last_offset_of_first_batch: int = -1,
        last_leader_epoch: int = -1,
        is_duplicate: bool = False,
        source_compression: str = "none",
    ) -> None: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    @property
    def first_offset(self) -> int: ...
    @property
    def last_offset(self) -> int: ...
    @property
    def count(self) -> int: ...
    @property
    def max_timestamp(self) -> int: ...
    @property
    def log_append_time(self) -> int: ...
    @property
    def shallow_offset_of_max_timestamp(self) -> int: ...
    @property
    def log_start_offset(self) -> int: ...
    @property
    def valid_bytes(self) -> int: ...
    @property
    def last_offset_of_first_batch(self) -> int: ...
    @property
    def last_leader_epoch(self) -> int: ...
    @property
    def is_duplicate(self) -> bool: ...
    @property
    def source_compression(self) -> str: ...
    def joined(self, after: AppendInfo) -> Self: ...

@final
class Tail: ...

@final
class ReplacedEntries:
    def __new__(cls, known: dict[int, ProducerEntry], replaced: dict[int, ProducerEntry]) -> Self: ...
    def take_back(self) -> None: ...

def led(batch: ValidatedBatch, epoch: int, log_start_offset: int) -> AppendInfo: ...
def followed(batches: EncodedBatches, log_start_offset: int) -> AppendInfo: ...
def grouped(log: LogState, group: BatchGroup, now: int) -> AppendInfo: ...
def timed(log: LogState, group: BatchGroup, now: int) -> int: ...
def append(log: LogState, records: Records, compression: Compression) -> AppendInfo: ...
def append_group(log: LogState, group: BatchGroup, now: int) -> AppendInfo: ...
def append_group_locked(log: LogState, group: BatchGroup, now: int) -> AppendInfo: ...

@final
class EncodedGroups:
    def __new__(cls, log: LogState, records: Records, compression: Compression) -> Self: ...
    def __iter__(self) -> Self: ...
    def __next__(self) -> tuple[BatchGroup, int]: ...

def lead_alone(log: LogState, buffer: Buffer, origin: str, leader_epoch: int | None) -> AppendInfo: ...
def follow_alone(log: LogState, batches: EncodedBatches, origin: str) -> AppendInfo: ...
def append_batches(log: LogState, buffer: Buffer, origin: str, leader_epoch: int | None) -> AppendInfo: ...
