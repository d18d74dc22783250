"""The inputs, tools and findings of a load, shared by its stages."""

from __future__ import annotations

from collections.abc import Callable

from klog.clock import Clock
from klog.config import LogConfig
from klog.disk import Files, HandleCache
from klog.log.options import Policy
from klog.log.state._log_core import LogCore
from klog.logger import logger_of
from klog.segment import Segment, SegmentDir
from klog.values import dataclass, field

_log = logger_of("log")


@dataclass(frozen=True, slots=True)
class Recovery:
    """The findings of a load. reason is "" after a clean shutdown without repairs; details has a line per finding.
    offsets_missing: how far the log ends below the recovery point: records that were flushed are lost."""

    clean_shutdown: bool
    seconds: float
    segments_scanned: int
    bytes_scanned: int
    bytes_truncated: int
    reason: str
    details: tuple[str, ...]
    offsets_missing: int = 0


@dataclass(slots=True)
class Inputs:
    """The inputs and tools of a load."""

    directory: str
    config: LogConfig
    files: Files
    handles: HandleCache
    clock: Clock
    policy: Policy
    clean_shutdown: bool
    recovery_point: int
    log_start_offset: int
    producer_expiration_ms: int
    check_gaps: bool  # False where the topic may be compacted
    high_watermark: int | None = None  # None: the log end
    cleaned_to: int = 0  # the cleaner made the gaps below: the topic was compacted before
    segments_left: Callable[[int], None] | None = None  # called with the number of segments left to recover
    segment_dir: SegmentDir | None = None  # shared by the segments, made with the first of them


@dataclass(slots=True)
class Findings:
    """The findings so far, for Recovery."""

    segments_scanned: int = 0
    bytes_scanned: int = 0
    bytes_truncated: int = 0
    details: list[str] = field(default_factory=list)
    to_unlink: list[str] = field(default_factory=list)  # names of files to unlink later

    def note(self, text: str) -> None:
        self.details.append(text)
        _log.warning("event=recovery %s", text)


def new_segment(
    inputs: Inputs, base_offset: int, *, writable: bool, size: int = 0, next_offset: int | None = None
) -> Segment:
    """A Segment object for a base offset. Accesses no file. size, next_offset: as in Segment."""
    return Segment(segment_dir_of(inputs, writable=writable), base_offset, inputs.clock.wall_ms(), size, next_offset)


def segment_dir_of(inputs: Inputs, *, writable: bool) -> SegmentDir:
    """The SegmentDir of the segments that this load makes."""
    segment_dir = inputs.segment_dir
    if segment_dir is None or segment_dir.writable != writable:
        segment_dir = inputs.segment_dir = SegmentDir(
            inputs.directory,
            inputs.config,
            inputs.files,
            inputs.handles,
            writable=writable,
            strict=inputs.policy != "kafka",
        )
    return segment_dir


def inputs_of(log: LogCore) -> Inputs:
    """The inputs to load an open log again, or a part of it."""
    options = log.options
    return Inputs(
        directory=log.directory.path,
        config=options.config,
        files=options.files,
        handles=options.handles,
        clock=options.clock,
        policy=options.recovery,
        clean_shutdown=options.clean_shutdown,
        recovery_point=options.recovery_point,
        log_start_offset=options.log_start_offset,
        producer_expiration_ms=options.broker.producer_id_expiration_ms,
        # The writer of a snapshot's log may have compacted it, whatever the config was when the log was opened.
        check_gaps=options.config_known and not options.config.compacts and not log.is_snapshot,
        high_watermark=options.high_watermark,
        cleaned_to=options.cleaned_to,
        segments_left=options.segments_left,
        segment_dir=log.directory.segment_dir,
    )
