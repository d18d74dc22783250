"""Group and transaction coordinators: take decoded requests, return responses, keep their state in internal topics.

CoordinatorLog   the topic of a coordinator: which partition has a group or a transactional id, appends, replay
"""

from klog.coordinator.coordinator_log import CoordinatorLog

__all__ = ["CoordinatorLog"]


def __dir__() -> list[str]:
    return sorted(__all__)
