"""transactions: the transaction coordinator. Takes requests of producers, returns responses, and keeps what is open,
decided and complete in __transaction_state; ends transactions by markers in their partitions.

TransactionCoordinator   the APIs, and what Produce and TxnOffsetCommit need
TransactionConfig        its settings
as_produce_error         an error of the coordinator as one of a Produce response
"""

from typing import TYPE_CHECKING

from klog import lazy

if TYPE_CHECKING:
    from klog.coordinator.transactions.config import TransactionConfig
    from klog.coordinator.transactions.coordinator import TransactionCoordinator
    from klog.coordinator.transactions.decisions import as_produce_error

_PLACES = {
    "TransactionConfig": "config",
    "TransactionCoordinator": "coordinator",
    "as_produce_error": "decisions",
}
__all__ = ["TransactionConfig", "TransactionCoordinator", "as_produce_error"]


def __dir__() -> list[str]:
    return sorted(__all__)


__getattr__ = lazy.attributes(globals(), _PLACES)
