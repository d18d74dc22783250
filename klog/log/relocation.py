"""A Log in use becomes another: what a move between directories ends with. Under both logs' locks.

Renaming is partition_life's. Kafka replaces the log in its maps instead, since nobody holds on to one there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klog.log._core import LogState
from klog.log.write.flush import wait_locked

if TYPE_CHECKING:
    from klog.log.log import Log

# What a Log is by itself, and not because of its files: its lock, who waits for it, for a commit or for a flush, and
# listens, what it has counted, the task that refers to it. Of truncations and of appends that were taken back as well:
# who remembers how many there were is to find no fewer.
_STAYS = frozenset(
    {
        "_bell",
        "_cleaning",
        "_commits",
        "_expiry",
        "_generation",
        "_lock",
        "_metrics",
        "_offsets_listener",
        "_rewritten",
        "_sends",
        "_taken_back",
        "_sync_lock",
    }
)
_FIELDS = [name for name in vars(LogState) if name.startswith("_") and not name.startswith("__")]
_NOTHING = object()


def exchange_locked(log: Log, other: Log) -> None:
    """The two become each other, but for their locks, both of which are held: whoever has `log` in hand goes on with
    what `other` was. What they are is all in their attributes, some of which are fields of a struct."""
    for each in (log, other):
        wait_locked(each)
    for name in _FIELDS:
        if name not in _STAYS:
            mine, others = getattr(log, name), getattr(other, name)
            setattr(log, name, others)
            setattr(other, name, mine)
    here, there = log.__dict__, other.__dict__
    for name in (here.keys() | there.keys()) - _STAYS:
        before, after = here.get(name, _NOTHING), there.get(name, _NOTHING)
        for owner, value in ((here, after), (there, before)):
            if value is _NOTHING:
                owner.pop(name, None)
            else:
                owner[name] = value
