from collections.abc import Callable
from typing import Any, Protocol

from typing_extensions import disjoint_base

from klog.config import LogConfig
from klog.disk import Bell
from klog.log.options import Options
from klog.log.state._fetch_positions import FetchPositions
from klog.log.state._flush_state import FlushState
from klog.log.state.high_watermark_rules import OffsetMetadata
from klog.log.state.leader_epochs import LeaderEpochCache
from klog.log.state.metrics import LogMetrics
from klog.log.state.producers import Producers
from klog.log.write._append_policy import AppendPolicy
from klog.log.write._commit import CommitQueue
from klog.segment import Home, Segment

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
    _home: Home | None
    _bell: Bell
    _offline: str | None
    _unreadable: str | None
    _offsets_listener: Callable[[int], None] | None
    _metrics: LogMetrics
    _tail: Any
    _closed: bool
    _forked: bool
    _marked_for_deletion: bool
    _log_start_offset: int
    _log_end_offset: int
    _written_end: int
    _high_watermark: OffsetMetadata | None
    _commits: CommitQueue | None
    _applied: list[_TakenBack]
    _flush_state: FlushState
    _looked_ms: int
    _generation: int
    _rewritten: int
    _taken_back: int
    _reads_failed: int
    _fetch_positions: FetchPositions
