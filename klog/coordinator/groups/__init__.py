"""Groups: takes the requests of members of groups, returns responses, keeps groups and offsets in __consumer_offsets.

Group, GroupKind    what groups of both kinds, and the handlers of a kind, have in common
GroupTable          what the handlers share: groups, offsets, log, lock, deadlines; AppendFailed
"""

from klog.coordinator.groups.group import Group, GroupKind, Kind, Records
from klog.coordinator.groups.table import AppendFailed, GroupTable

__all__ = ["AppendFailed", "Group", "GroupKind", "GroupTable", "Kind", "Records"]


def __dir__() -> list[str]:
    return sorted(__all__)
