"""The quota of changes of topics: CreateTopics, DeleteTopics, CreatePartitions. Kafka: ControllerMutationQuotaManager,
ReplicationControlManager.

Each topic that passes its checks counts its partitions. From a version of the API on (KIP-599) a topic beyond the quota
is refused; before it, it is changed, and the client waits. A topic that a Metadata request creates counts, too; beyond
the quota it is not created (klog.broker.serving).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from klog.broker.admin.failures import Refused
from klog.broker.late_apis import TOPIC_CHANGES
from klog.protocol import ErrorCode

if TYPE_CHECKING:
    from klog.security import Context


class Charge(Protocol):
    """Counts the partitions that a client creates or deletes."""

    def __call__(self, context: Any, partitions: int, /, *, strict: bool) -> int:
        """How long the client waits, in ms. strict: it waits before, and nothing is counted then."""


def unlimited(context: Any, partitions: int, /, *, strict: bool) -> int:
    """The charge of a client without a quota."""
    return 0


class Mutations:
    """What one request changes. One thread. throttle_ms: how long the client waits after the response."""

    def __init__(self, charge: Charge, context: Context) -> None:
        self._charge = charge
        self._context = context
        self._strict = context.version >= TOPIC_CHANGES[context.api]
        self.throttle_ms = 0

    def add(self, partitions: int) -> None:
        """Count the partitions of a topic that is about to be changed. Raises Refused beyond the quota."""
        waits_ms = self._charge(self._context, partitions, strict=self._strict)
        self.throttle_ms = max(self.throttle_ms, waits_ms)
        if waits_ms and self._strict:
            raise Refused(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED, f"the quota of controller_mutation_rate: wait for {waits_ms} ms"
            )
