"""Exchanges the content of two Log objects, the last step of a move between log.dirs. Under both logs' locks.

directory/lifecycle.py renames the directories. Kafka replaces the log in its maps instead: there no caller keeps one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klog.log.state._log_state import LogState
from klog.log.write.flush import wait_locked

if TYPE_CHECKING:
    from klog.log.log import Log

# Fields that belong to the object and not to its files: its lock, its waiters for a lock, a commit or a flush, its
# listener, its metrics, its expiry task. Also the counters of truncations and undone appends: a reader that remembers
# one must never find a smaller number.
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
    """Exchange all fields of two logs except _STAYS: users of `log` then use what `other` was. Both locks are held.

    Some fields are attributes, others are members of the C struct.
    """
    for each in (log, other):
        wait_locked(each)
    unflushed, others_unflushed = log.unflushed_bytes, other.unflushed_bytes
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
    log._flush_state.recount(log._metrics.appended_bytes - others_unflushed)
    other._flush_state.recount(other._metrics.appended_bytes - unflushed)
