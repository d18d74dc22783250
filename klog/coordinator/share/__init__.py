"""Share groups (KIP-932): takes the requests of members, returns what they may have of partitions, and keeps what was
delivered in __share_group_state.

ShareKind, ShareGroupConfig     the share groups of a broker, and their limits
"""

from klog.coordinator.share.config import ShareGroupConfig
from klog.coordinator.share.share_kind import ShareKind

__all__ = ["ShareGroupConfig", "ShareKind"]


def __dir__() -> list[str]:
    return sorted(__all__)
