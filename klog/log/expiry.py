"""Producers that have written nothing for long are forgotten, every producer.id.expiration.check.interval.ms.

Kafka: UnifiedLog.removeExpiredProducers, its task PeriodicProducerExpirationCheck.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from klog.scheduler import Task

if TYPE_CHECKING:
    from klog.log.log import Log


def schedule_expiry(log: Log) -> Task:
    """The task, which ends with its log: one that is forgotten is not kept alive by it."""
    known = weakref.ref(log)

    def expire() -> None:
        log = known()
        if log is None or log.closed:
            task.cancel()
            return
        with log._lock:
            log._producers.expire(log.clock.wall_ms())

    period_ms = log._options.producer_expiration_check_ms
    task = log._options.scheduler.schedule("producer-expiration", expire, period_ms, period_ms)
    return task
