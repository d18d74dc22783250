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
from klog.log.write._append_info import AppendInfo
from klog.log.write._append_policy import AppendPolicy
from klog.log.write._commit import CommitQueue
from klog.record import BatchGroup, EncodedBatches, Records
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
class Tail: ...

@final
class ReplacedEntries:
    def __new__(cls, known: dict[int, ProducerEntry], replaced: dict[int, ProducerEntry]) -> Self: ...
    def take_back(self) -> None: ...

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
