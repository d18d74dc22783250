"""A Log in use becomes another: what a move between directories ends with. Under both logs' locks.

Renaming is partition_life's. Kafka replaces the log in its maps instead, since nobody holds on to one there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from klog.log.log import Log

# What a Log is by itself, and not because of its files: its lock, who waits for it, the task that refers to it.
_STAYS = frozenset({"_lock", "_bell", "_expiry"})
_NOTHING = object()


def exchange_locked(log: Log, other: Log) -> None:
    """The two become each other, but for their locks, both of which are held: whoever has `log` in hand goes on with
    what `other` was. What they are is all in their attributes."""
    mine, others = log.__dict__, other.__dict__
    for name in (mine.keys() | others.keys()) - _STAYS:
        before, after = mine.get(name, _NOTHING), others.get(name, _NOTHING)
        for owner, value in ((mine, after), (others, before)):
            if value is _NOTHING:
                owner.pop(name, None)
            else:
                owner[name] = value
