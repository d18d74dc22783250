"""Groups: takes the requests of members of groups, returns responses, keeps groups and offsets in __consumer_offsets.

GroupCoordinator, GroupConfig      the groups of a broker
Group, GroupKind, Kind, Records    what groups of both kinds, and the handlers of a kind, have in common
GroupTable, AppendFailed           what the handlers share: groups, offsets, log, lock, deadlines
"""

from typing import TYPE_CHECKING

from klog import lazy

if TYPE_CHECKING:
    from klog.coordinator.groups.config import GroupConfig
    from klog.coordinator.groups.coordinator import GroupCoordinator
    from klog.coordinator.groups.group import Group, GroupKind, Kind, Records
    from klog.coordinator.groups.table import AppendFailed, GroupTable

_PLACES = {
    "AppendFailed": "table",
    "Group": "group",
    "GroupConfig": "config",
    "GroupCoordinator": "coordinator",
    "GroupKind": "group",
    "GroupTable": "table",
    "Kind": "group",
    "Records": "group",
}
__all__ = ["AppendFailed", "Group", "GroupConfig", "GroupCoordinator", "GroupKind", "GroupTable", "Kind", "Records"]


def __dir__() -> list[str]:
    return sorted(__all__)


__getattr__ = lazy.attributes(globals(), _PLACES)
