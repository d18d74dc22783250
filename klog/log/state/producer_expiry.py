"""A scheduled task that removes producers of a log that wrote nothing for producer.id.expiration.ms.

Kafka: UnifiedLog.removeExpiredProducers.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from klog.scheduler import Task

if TYPE_CHECKING:
    from klog.log.log import Log


def expire_producers_regularly(log: Log) -> Task:
    """Expire producers every producer.id.expiration.check.interval.ms until the task is cancelled.

    The task does not keep the log alive.
    """
    known = weakref.ref(log)

    def expire() -> None:
        still = known()
        if still is not None:
            with still._lock:
                still._lock.begins(still, "an expiry of producers")
                if not still.closed:
                    still._producers.expire(still.clock.wall_ms())

    interval_ms = log._options.producer_expiration_check_ms
    return log._options.scheduler.schedule("producer-expiration", expire, interval_ms, interval_ms)
