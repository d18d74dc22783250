"""A new leader of a partition: its records have a leader epoch of their own. Kafka: Partition.makeLeader."""

from __future__ import annotations

from klog.log.state._log_core import LogCore
from klog.log.write.append_batches import take_back_epochs
from klog.log.write.failures import guard_undoable
from klog.log.write.undo import wait_for_sync_locked


def begin_epoch(log: LogCore, epoch: int) -> None:
    """Begin an epoch at the log end. See Log.begin_leader_epoch."""
    with log.lock:
        log.check_idle("a leader epoch")
        wait_for_sync_locked(log)
        if epoch < log.epochs.current:
            raise ValueError(f"epoch={epoch}: at least {log.epochs.current} expected, the leader epoch of {log.name}")
        known = log.epochs.entries  # replaced at each change, never changed
        if log.epochs.assign(epoch, log.log_end_offset):
            try:
                guard_undoable(log, log.epochs.flush)
            except BaseException:
                take_back_epochs(log, known)
                raise
        log.epochs.begin_at(epoch, log.log_end_offset)
