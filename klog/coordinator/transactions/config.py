"""TransactionConfig: the settings of the coordinator, under Kafka's names."""

from __future__ import annotations

from klog.arguments import LONG_MAX
from klog.config.keyed import Keyed, key
from klog.values import dataclass


@dataclass(frozen=True, slots=True)
class TransactionConfig(Keyed):
    """All in ms."""

    transaction_max_timeout_ms: int = key("transaction.max.timeout.ms", 900_000, 1, LONG_MAX)
    transactional_id_expiration_ms: int = key(
        "transactional.id.expiration.ms",
        604_800_000,
        1,
        LONG_MAX,
        doc="a transactional id that is not used for this long is forgotten, ms",
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = key(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        10_000,
        1,
        LONG_MAX,
        doc="period of the check for transactions that have timed out, ms",
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = key(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        3_600_000,
        1,
        LONG_MAX,
        doc="period of the check for expired transactional ids, ms",
    )
    klog_transaction_marker_retry_ms: int = key(
        "klog.transaction.marker.retry.ms",
        100,
        1,
        LONG_MAX,
        doc="pause before a transaction marker that could not be written is tried again, ms",
    )
