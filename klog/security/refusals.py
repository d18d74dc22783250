"""What the handlers of this package have in common: who may call them, and errors of one item of a request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from klog.protocol import ErrorCode

if TYPE_CHECKING:
    from klog.security.context import Context

CLUSTER_NAME = "kafka-cluster"
UNAUTHORIZED = "Cluster authorization failed."


class ItemRefused(Exception):
    """An item of a request that is refused with this error code and text."""

    def __init__(self, code: ErrorCode, reason: str) -> None:
        self.code, self.reason = code, reason
        super().__init__(reason)


def invalid(reason: str) -> ItemRefused:
    """INVALID_REQUEST."""
    return ItemRefused(ErrorCode.INVALID_REQUEST, reason)


def cluster_authorized(context: Context, operation: str) -> bool:
    """May the client do this to the cluster?"""
    return context.authorized(operation, "CLUSTER", CLUSTER_NAME)
