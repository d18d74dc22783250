"""Groups: takes the requests of members of groups, returns responses, keeps groups and offsets in __consumer_offsets.

Group, Kind, Records   what groups of both kinds have in common
"""

from klog.coordinator.groups.group import Group, Kind, Records

__all__ = ["Group", "Kind", "Records"]


def __dir__() -> list[str]:
    return sorted(__all__)
