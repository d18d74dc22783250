"""What moves with the log end: the high watermark of a single copy. Under the log's lock."""

from __future__ import annotations

from klog.log.state import high_watermark
from klog.log.state._log_core import LogCore


def end_moved_locked(log: LogCore) -> None:
    """Notify all that depend on the log end, which has moved."""
    if log.watermark.metadata is None:
        end = log.log_end_offset
        log.producers.on_high_watermark_updated(end)
        high_watermark.notify_listener(log, end)
    log.notifier.notify()
