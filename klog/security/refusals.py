"""What the handlers of this package have in common: who may call them, and errors of one item of a request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from klog.protocol import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

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


def cluster_authorized(authorized: Callable[[str, str, str], bool], operation: str) -> bool:
    """Is an operation on the cluster authorized? authorized: Context.authorized of the request."""
    return authorized(operation, "CLUSTER", CLUSTER_NAME)
