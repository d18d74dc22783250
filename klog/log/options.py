"""The options of opening a log, and checks of arguments. Values only, shared by manager, view and log."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, get_args

from klog.arguments import chosen, having
from klog.values import NamedTuple, dataclass

if TYPE_CHECKING:
    from klog.clock import Clock
    from klog.config import LogConfig, ManagerConfig
    from klog.disk import Files, HandleCache
    from klog.scheduler import Scheduler

Policy = Literal["strict", "kafka", "skip"]  # of a recovery; "skip" only of readers
Durability = Literal["os", "interval", "sync"]
INTERVAL_MS = 1000  # flush.ms of durability="interval", if the configuration sets no flush interval
Compression = str | tuple[str, int] | None


def check_choices(recovery: str, durability: str, *, read_only: bool) -> None:
    """Raise TypeError or ValueError for an invalid recovery or durability."""
    chosen("recovery", recovery, get_args(Policy))
    if recovery == "skip" and not read_only:
        raise ValueError("recovery='skip', read_only=False: only a reader can read past damage; use read_only=True")
    chosen("durability", durability, get_args(Durability))


def check_tools(clock: object, files: object) -> None:
    """Raise TypeError for an object that is not a klog.clock.Clock or not a Files. None stands for klog's own."""
    if clock is not None:
        having("clock", clock, ("wall_ms", "monotonic", "sleep"), "a klog.clock.Clock, or None,")
    if files is not None:
        having("files", files, ("open", "fsync", "replace"), "a Files, or None,")


def settled(config: LogConfig, durability: Durability) -> LogConfig:
    """A topic's configuration, with flush.ms of durability="interval" if it sets no flush interval."""
    if durability != "interval" or "flush.ms" in config.given or "flush.messages" in config.given:
        return config
    return config.replace({"flush.ms": INTERVAL_MS})


class ReaderBounds(NamedTuple):
    """A reader's bounds of a partition that a commit of staged files changes. end_max: until the commit is applied."""

    end_max: int | None
    log_start_offset: int


@dataclass(slots=True)
class Options:
    """How to open a log. Filled by Log.open or by the manager of its log.dir."""

    topic: str
    partition: int
    config: LogConfig
    read_only: bool
    recovery: Policy
    durability: Durability
    clean_shutdown: bool
    recovery_point: int
    log_start_offset: int  # of a reader: that of the checkpoint now
    high_watermark: int | None
    topic_id: uuid.UUID | None
    clock: Clock
    files: Files
    handles: HandleCache
    scheduler: Scheduler
    broker: ManagerConfig  # broker-level keys: expiry of producers, memory of a compaction by hand
    config_known: bool = False
    cleanings: threading.Condition | None = None  # shared by the cleaning states of all logs of a manager
    segments_left: Callable[[int], None] | None = None  # called with the number of segments left to recover
    offsets_listener: Callable[[int], None] | None = None  # called with every new high watermark and the first one
    cleaned_to: int = 0  # the cleaner's checkpoint: a load that ends below lowers it
    identity: tuple[int, int] | None = None  # the directory's device and inode, None if unknown
    topic_id_stored: bool = False  # partition.metadata has topic_id
    end_max: int | None = None  # of a snapshot: the log end of its moment
    # of a reader: looks again at the commit that has set end_max
    held_by: Callable[[], ReaderBounds | None] | None = None
    log_start_min: int = 0  # of a reader: given by the caller
    high_watermark_path: str | None = None  # the checkpoint of high_watermark, for readers that follow it

    def configure(self, config: LogConfig) -> None:
        """Use another configuration."""
        self.config = config

    def know_config(self, known: bool) -> None:
        """Is the configuration that of the topic, or does it stand for one that is not known?"""
        self.config_known = known

    def hold_back(self, look: Callable[[], ReaderBounds | None]) -> None:
        """Set a reader's bounds to what `look` returns. None: no commit in progress concerns it."""
        bounds = look()
        self.end_at(None if bounds is None else bounds.end_max, look)
        if bounds is not None:
            self.log_start_offset = max(self.log_start_offset, bounds.log_start_offset)

    def end_at(self, end_max: int | None, look: Callable[[], ReaderBounds | None]) -> None:
        """Bound a reader's log end until `look` finds the commit applied. None: no commit bounds it."""
        self.end_max, self.held_by = end_max, None if end_max is None else look

    def follow_high_watermark(self, offset: int | None) -> None:
        """Use the high watermark that the checkpoint has now; None: it has none."""
        self.high_watermark = offset

    def follow_log_start(self, offset: int) -> None:
        """Use the log start offset that the checkpoint has now, but not one below that of a commit in progress, nor
        below log_start_min."""
        least = self.log_start_min if self.held_by is None else self.log_start_offset
        self.log_start_offset = max(offset, least)

    def configure_broker(self, broker: ManagerConfig) -> None:
        """Use other broker-level keys."""
        self.broker = broker
