"""Which partitions a named reader may read: all of a topic, one, or its share of a group's.

    klog-reader.NAME@TOPIC.lock   the Leases of a reader name, or of a group, in a topic: a number for each partition

An exclusive reader leases its partition, or all numbers, when it is made; a second one raises AlreadyLocked. A member
of a group leases partitions one by one, as many as its share, and gives up the rest:

  G1  share of the member of rank r among m: partitions // m, and one more if r < partitions % m. The sum is all of them
  G2  a partition is given up only if no record of it was returned since its last commit
  G3  a member that dies holds nothing; the others take its partitions at their next check

Kafka's groups agree on an assignment through a coordinator and heartbeats. Here each member counts the living members
and follows G1. While they see different numbers a partition may wait; it is never held twice.
Kafka: ConsumerCoordinator, RangeAssignor.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from klog.disk import NUMBERS, Holder, Leases
from klog.errors import AlreadyLocked

_FILE_NAME_MAX = 255


def lock_file_name(name: str, topic: str) -> str:
    """The lock file of a reader name in a topic. `@` is in neither; long names are cut and told apart by a hash."""
    found = f"klog-reader.{name}@{topic}.lock"
    if len(found) > _FILE_NAME_MAX:
        import hashlib

        digest = hashlib.sha256(f"{name}@{topic}".encode()).hexdigest()[:32]
        found = f"klog-reader.{name[:100]}@{topic[:90]}@{digest}.lock"
    return found


def exclusive(directory: str, name: str, topic: str, partition: int | None) -> Leases:
    """Lease one partition, or all of a topic. Raises AlreadyLocked."""
    leases = Leases(directory, lock_file_name(name, topic), name)
    try:
        if not leases.take(0, NUMBERS) if partition is None else not leases.take(partition):
            raise _in_use(leases, name, topic)
    except BaseException:
        leases.close()
        raise
    return leases


def _in_use(leases: Leases, name: str, topic: str) -> AlreadyLocked:
    others = leases.holders()
    others.remove(leases.me)
    holder = ", ".join(map(_shown, others)) or "another process"
    return AlreadyLocked(
        f"reader {name!r} of topic {topic!r} is in use by {holder}: close it there, choose another name, or share the "
        f"topic's partitions with group={name!r}",
        path=leases.path,
        holder=holder,
    )


def _shown(holder: Holder) -> str:
    return f"process {holder.pid}" + (" (this one)" if holder.pid == os.getpid() else "")


class GroupShare:
    """The partitions that one member of a group holds. One thread at a time."""

    def __init__(self, leases: Leases) -> None:
        self.held: set[int] = set()
        self._leases = leases

    def _size(self, partitions: int) -> int:
        """G1."""
        rank, members = self._leases.rank()
        return partitions // members + (rank < partitions % members)

    def give_up_surplus(self, partitions: Sequence[int], may_leave: Callable[[int], bool]) -> list[int]:
        """Give up partitions beyond the share (G2), and those that are not there any more. Returns them."""
        size = self._size(len(partitions))
        left = [number for number in sorted(self.held) if number not in partitions]
        for number in sorted(self.held.difference(left), reverse=True):
            if len(self.held) - len(left) <= size:
                break
            if may_leave(number):
                left.append(number)
        self.held.difference_update(left)
        for number in left:
            self._leases.give_up(number)
        return left

    def take(self, partitions: Sequence[int]) -> None:
        """Lease free partitions, up to the share."""
        size = self._size(len(partitions))
        for number in partitions:
            if len(self.held) >= size:
                return
            if number not in self.held and self._leases.take(number):
                self.held.add(number)
