"""The assignor of share groups: which member reads which partitions. Members may share a partition.

  S1  each partition of a topic with a subscriber has a member, and each member that subscribes to one has a partition
  S2  of members that subscribe to the same, no one has two partitions more than another
  S3  a member keeps what it has as far as S2 allows
  S4  the result depends on the arguments only, not on their order

Kafka: SimpleAssignor. Which members share a partition is not the same there.
"""

from __future__ import annotations

from itertools import islice, repeat
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    import uuid
    from collections.abc import Iterable, Iterator, Mapping

    from klog.coordinator.groups.consumer_member import Target

NAME = "simple"
_T = TypeVar("_T")


def assign(
    members: Mapping[str, tuple[frozenset[uuid.UUID], Target]], sizes: Mapping[uuid.UUID, int]
) -> dict[str, Target]:
    """The target assignment of each member, from its topics and its assignment so far. sizes: the partitions of each
    topic; other topics are not assigned."""
    by_topics: dict[frozenset[uuid.UUID], list[str]] = {}
    for member_id, (topics, _) in sorted(members.items()):
        by_topics.setdefault(topics & frozenset(sizes), []).append(member_id)
    found: dict[str, Target] = {member_id: {} for member_id in members}
    for topics, alike in sorted(by_topics.items(), key=lambda each: sorted(each[0])):
        partitions = [(topic_id, number) for topic_id in sorted(topics) for number in range(sizes[topic_id])]
        if partitions:
            before = {member_id: members[member_id][1] for member_id in alike}
            for member_id, some in _spread(partitions, before).items():
                target: dict[uuid.UUID, set[int]] = {}
                for topic_id, number in some:
                    target.setdefault(topic_id, set()).add(number)
                found[member_id] = {topic_id: frozenset(numbers) for topic_id, numbers in target.items()}
    return found


def _spread(
    partitions: list[tuple[uuid.UUID, int]], before: Mapping[str, Target]
) -> dict[str, list[tuple[uuid.UUID, int]]]:
    """Assign partitions to members that all read the same topics: as many pairs as there are members or partitions,
    whichever are more. So each member has a partition, each partition has a member, and no pair comes twice."""
    pairs = max(len(partitions), len(before))
    of_members, of_partitions = _Remaining(before, pairs), _Remaining(partitions, pairs)
    found: dict[str, list[tuple[uuid.UUID, int]]] = {member_id: [] for member_id in before}
    for member_id, target in before.items():
        for partition in ((topic_id, number) for topic_id in sorted(target) for number in sorted(target[topic_id])):
            if of_members.has(member_id) and of_partitions.has(partition):
                of_members.take(member_id)
                of_partitions.take(partition)
                found[member_id].append(partition)
    for member_id, partition in zip(of_members.left(), of_partitions.left(), strict=True):
        found[member_id].append(partition)
    return found


class _Remaining(Generic[_T]):
    """How many more pairs each item may have: all the same number, and some of them one more."""

    def __init__(self, things: Iterable[_T], pairs: int) -> None:
        self._used = dict.fromkeys(things, 0)
        self._least, self._extra = divmod(pairs, len(self._used))

    def has(self, thing: _T) -> bool:
        used = self._used.get(thing, self._least + 1)
        return used < self._least or (used == self._least and self._extra > 0)

    def take(self, thing: _T) -> None:
        if self._used[thing] == self._least:
            self._extra -= 1
        self._used[thing] += 1

    def left(self) -> Iterator[_T]:
        """Each item as often as it needs another pair."""
        for thing, used in self._used.items():
            yield from repeat(thing, max(0, self._least - used))
        yield from islice((thing for thing, used in self._used.items() if used <= self._least), self._extra)
