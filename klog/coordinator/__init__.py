"""Group and transaction coordinators: take decoded requests, return responses, keep their state in internal topics.

CoordinatorLog      the topic of a coordinator: which partition has a group or a transactional id, appends, replay
FindCoordinator     which broker has a group or a transactional id
groups              groups and their committed offsets
"""

from klog.coordinator.coordinator_log import CoordinatorLog
from klog.coordinator.find_coordinator import FindCoordinator

__all__ = ["CoordinatorLog", "FindCoordinator"]


def __dir__() -> list[str]:
    return sorted(__all__)
