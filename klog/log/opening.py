"""Opening a log: take the claim on its directory, load it, and prepare it for appends.

Kafka: UnifiedLog.apply, LogLoader.
"""

from __future__ import annotations

import os
import warnings
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from klog.disk import Claim, Notifier, SendCounts, exists
from klog.log.closing import abandon
from klog.log.directory import checkpoint, cleaner_offsets
from klog.log.load.inputs import inputs_of
from klog.log.load.loader import load_read_only, load_writable
from klog.log.options import Options
from klog.log.read.aborted_transactions import AbortedFinder
from klog.log.read.newest_before import NewestBefore
from klog.log.read.read_policy import Reading
from klog.log.read.refresh import Follower
from klog.log.state import forks, high_watermark, high_watermark_rules
from klog.log.state._counters import Counters
from klog.log.state._log_core import LogCore
from klog.log.state.cleaning_state import CleaningState
from klog.log.state.high_watermark_rules import OffsetMetadata
from klog.log.state.partition_dir import Owner, PartitionDir
from klog.log.works import bound
from klog.log.write._commit import CommitQueue, SyncLock
from klog.log.write.commit import commit_locked
from klog.log.write.removal import unlink_later_locked
from klog.segment import names
from klog.values import replace


class OpenLog(LogCore):
    """A log that warns if it is garbage-collected before it is closed. Its readers keep it.

    In another process, a reader opens its log by path: the log of a LogReader that was pickled.
    """

    is_of_a_reader = False  # then there is no log that a caller could close

    def leave_to_readers(self) -> None:
        """The readers alone keep it."""
        self.is_of_a_reader = True

    def __reduce__(self) -> Any:
        if not self.read_only:
            return super().__reduce__()  # raises
        return bound().reopen, (self.path, self.config, self.options.recovery)

    def __del__(self, _warn: Any = warnings.warn) -> None:
        health = getattr(self, "health", None)
        if health is None or health.closed or os.getpid() != health.pid:
            return
        if self.is_of_a_reader:
            abandon(self)
        else:
            _warn(f"{self!r} was never closed: use `with`, or call close()", ResourceWarning, source=self)
            try:
                abandon(self)
            except Exception:
                return  # there is no caller to raise to


def of_a_reader(log: LogCore) -> LogCore:
    """Let a read-only log be closed when its last reader is collected."""
    assert isinstance(log, OpenLog) and log.read_only
    log.leave_to_readers()
    return log


def open_log(directory: str, options: Options) -> LogCore:
    """Open the log of a partition directory.

    Raises AlreadyLocked if another log of this process writes there, CorruptLog, OSError.
    """
    claim = None if options.read_only else Claim(directory, options.identity)
    try:
        if claim is not None:
            claim.take()
        log = OpenLog(
            options,
            PartitionDir(directory, claim),
            counters=Counters(),
            notifier=Notifier(),  # notifies when a reader can read more
            sends=SendCounts(),
            commits=CommitQueue(commit_locked) if options.durability == "sync" and not options.read_only else None,
            sync_lock=SyncLock(),
            cleaning=CleaningState(options.cleanings),
            reading=Reading(),
            newest_before=NewestBefore(),
            aborted_finder=AbortedFinder(),
            follower=Follower() if options.read_only else None,
        )
        to_unlink = _load(log)
        forks.register(log)
        if not options.read_only:
            _prepare_to_write(log)
            if to_unlink:
                unlink_later_locked(log, to_unlink)
        log.health.opened()
        high_watermark.notify_listener(log, log.high_watermark)
    except BaseException:
        if claim is not None:
            claim.release()
        raise
    return log


def options_of_snapshot(log: LogCore) -> Options:
    """The options of a reader that stays at the offsets that the log has now. Raises LogClosed, StorageOffline."""
    log.check_open()
    if log.health.deleted:
        log.check_writable()  # raises
    return replace(
        log.options,
        config=log.config,
        read_only=True,
        clean_shutdown=log.read_only and log.options.clean_shutdown,
        recovery_point=log.recovery_point,
        log_start_offset=log.log_start_offset,
        high_watermark=log.high_watermark,
        high_watermark_path=None,
        end_max=log.log_end_offset,
        held_by=None,
        offsets_listener=None,
    )


def _load(log: LogCore) -> Sequence[str]:
    """Load the log. Returns the names of the files to unlink later."""
    inputs = inputs_of(log)
    if log.follower is not None:
        log.follower.begin(log)
    loaded = load_read_only(inputs) if log.read_only else load_writable(inputs)
    log.directory.loaded(inputs.segment_dir)
    log.load(loaded)
    if log.follower is not None:
        log.follower.loaded(log, loaded)
    return loaded.to_unlink


def _prepare_to_write(log: LogCore) -> None:
    options, active = log.options, log.segments[-1]
    if options.cleaned_to > log.log_end_offset:
        # Records appended at these offsets will be dirty. After a crash before this, the next load does it.
        key, log_dir = (log.topic, log.partition), os.path.dirname(log.path)
        cleaner_offsets.lower(options.files, log_dir, key, log.log_end_offset)
    if active.size == 0 and not exists(active.path):
        active.activate()
        options.files.fsync_dir(log.path)
    if not log.epochs.stored and not exists(log.epochs.path):
        log.epochs.flush()
    if options.topic_id is not None and not options.topic_id_stored:
        path = os.path.join(log.path, names.METADATA)
        if not exists(path) or os.stat(path).st_size == 0:
            options.files.replace(path, checkpoint.format_metadata(options.topic_id))
    if options.high_watermark is not None:
        offset = high_watermark_rules.initial(options.high_watermark, log.log_start_offset, log.log_end_offset)
        log.watermark.set(OffsetMetadata(offset))
    log.producers.on_high_watermark_updated(log.high_watermark)
    check_ms, known = options.broker.producer_id_expiration_check_interval_ms, weakref.ref(log)

    def expire() -> None:
        still = known()
        if still is not None:
            _expire_producers(still)

    log.expire_with(options.scheduler.schedule("producer-expiration", expire, check_ms, check_ms))


def _expire_producers(log: LogCore) -> None:
    """Forget producers that wrote nothing for producer.id.expiration.ms. Kafka: removeExpiredProducers."""
    with log.lock:
        log.lock.begins(log, "an expiry of producers")
        if not log.closed:
            log.producers.expire(log.clock.wall_ms(), log.options.broker.producer_id_expiration_ms)


def belong_to(log: LogCore, owner: Owner, on_flush: Callable[[LogCore], None] | None = None) -> None:
    """Set the owner, which writes the checkpoints of the log from here on.

    A recovery point, or a reader's position, beyond the log end of this load is lowered before the first append, since
    records appended below it are not on disk, or not read. After a crash before this, the next load does it.
    """
    log.directory.belong_to(owner, on_flush)
    fell = log.options.recovery_point > log.recovery_point
    try:
        if fell:
            owner.lower(log, log.recovery_point, log.log_start_offset)
        if not log.read_only and (fell or log.recovery.reason):
            owner.lower_positions(log, log.log_end_offset, False)
    except BaseException:
        abandon(log)
        raise
