"""Server assignors: which member of a consumer group gets which partitions.

    uniform   as even as possible over all topics together, with as few moves as that allows
    range     of each topic a range of partitions, in the order of the members; topics with the same number of
              partitions and subscribers are split alike, so that they can be joined

  A1  each partition of a topic with a subscriber has exactly one owner, which subscribes to the topic
  A2  uniform: among members with the same subscription the counts differ by at most 1
  A3  uniform: a partition moves only if its owner has left, or if A2 or the balance asks for it
  A4  the result depends on the arguments only, not on their order

A topic whose subscribers also have other topics is balanced among them as far as moves of its own partitions can do.
Kafka: UniformAssignor, RangeAssignor.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

from klog.values import dataclass

if TYPE_CHECKING:
    import uuid
    from collections.abc import Callable, Mapping

    from klog.coordinator.groups.consumer_member import Target

_PASSES_MAX = 16  # of the balance over topics with different subscribers; as in Kafka


@dataclass(frozen=True, slots=True)
class MemberSpec:
    """A member, as an assignor sees it. topics: it subscribes to. target: its assignment so far."""

    topics: frozenset[uuid.UUID]
    target: Target
    instance_id: str | None = None


Members = dict[str, MemberSpec]
Sizes = dict["uuid.UUID", int]


def uniform(members: Members, sizes: Sizes) -> dict[str, Target]:
    """The target assignment of each member. sizes: the partitions of each topic; other topics are not assigned."""
    if not members:
        return {}
    known = frozenset(sizes)
    if len({member.topics & known for member in members.values()}) == 1:
        return _homogeneous(members, sizes)
    return _Heterogeneous(members, sizes).build()


def range_(members: Members, sizes: Sizes) -> dict[str, Target]:
    """The target assignment of each member. Static members come first, by their instance ids: their order survives a
    restart."""
    order = sorted(members, key=lambda name: (members[name].instance_id is None, members[name].instance_id, name))
    result: dict[str, Target] = {name: {} for name in members}
    for topic_id, size in sizes.items():
        subscribers = [name for name in order if topic_id in members[name].topics]
        if not subscribers:
            continue
        least, extra = divmod(size, len(subscribers))
        begin = 0
        for index, name in enumerate(subscribers):
            end = begin + least + (index < extra)
            if end > begin:
                result[name][topic_id] = frozenset(range(begin, end))
            begin = end
    return result


ASSIGNORS: Mapping[str, Callable[[Members, Sizes], dict[str, Target]]] = {"uniform": uniform, "range": range_}


def _kept(members: Members, sizes: Sizes) -> dict[uuid.UUID, dict[int, str]]:
    """The owners of partitions that need not move: the owner subscribes to the topic, which has the partition."""
    owners: dict[uuid.UUID, dict[int, str]] = {topic_id: {} for topic_id in sizes}
    for name in sorted(members):
        member = members[name]
        for topic_id, partitions in member.target.items():
            if topic_id in sizes and topic_id in member.topics:
                topic, size = owners[topic_id], sizes[topic_id]
                for partition in partitions:
                    if 0 <= partition < size:
                        topic.setdefault(partition, name)
    return owners


def _targets(members: Members, owners: dict[uuid.UUID, dict[int, str]]) -> dict[str, Target]:
    found: dict[str, dict[uuid.UUID, list[int]]] = {name: {} for name in members}
    for topic_id, topic in owners.items():
        for partition, name in topic.items():
            found[name].setdefault(topic_id, []).append(partition)
    return {
        name: {topic_id: frozenset(partitions) for topic_id, partitions in topics.items()}
        for name, topics in found.items()
    }


def _homogeneous(members: Members, sizes: Sizes) -> dict[str, Target]:
    """All members have the same subscription: each has a quota, and keeps what it has up to that."""
    topics = sorted(next(iter(members.values())).topics & sizes.keys())
    sizes = {topic_id: sizes[topic_id] for topic_id in topics}
    owners = _kept(members, sizes)
    counts = dict.fromkeys(members, 0)
    for topic in owners.values():
        for name in topic.values():
            counts[name] += 1
    least, extra = divmod(sum(sizes.values()), len(members))
    # One partition more for those that have the most already: they need not give it up.
    order = sorted(members, key=lambda name: (-counts[name], name))
    quotas = {name: least + (index < extra) for index, name in enumerate(order)}
    free: list[tuple[uuid.UUID, int]] = []
    left = dict(quotas)
    for topic_id in topics:
        topic = owners[topic_id]
        for partition in range(sizes[topic_id]):
            owner = topic.get(partition)
            if owner is not None and left[owner] > 0:
                left[owner] -= 1
            else:
                topic.pop(partition, None)
                free.append((topic_id, partition))
    waiting = iter(free)
    for name in sorted(members):
        for _ in range(left[name]):
            topic_id, partition = next(waiting)
            owners[topic_id][partition] = name
    return _targets(members, owners)


class _Heterogeneous:
    """Members with different subscriptions: keep, assign free partitions, then balance topic by topic."""

    def __init__(self, members: Members, sizes: Sizes) -> None:
        self._members = members
        self._sizes = sizes
        self._subscribers = {
            topic_id: [name for name in sorted(members) if topic_id in members[name].topics] for topic_id in sizes
        }
        self._owners = _kept(members, sizes)
        self._load = dict.fromkeys(members, 0)
        for topic in self._owners.values():
            for name in topic.values():
                self._load[name] += 1

    def build(self) -> dict[str, Target]:
        # Topics with few subscribers first: the others can still make up for them.
        topics = sorted(
            (topic_id for topic_id in self._sizes if self._subscribers[topic_id]),
            key=lambda topic_id: (len(self._subscribers[topic_id]), -self._sizes[topic_id], topic_id),
        )
        for topic_id in topics:
            self._assign_free(topic_id)
        for _ in range(_PASSES_MAX):
            if not sum([self._balance(topic_id) for topic_id in topics]):
                break
        return _targets(self._members, self._owners)

    def _assign_free(self, topic_id: uuid.UUID) -> None:
        """Give each free partition to the subscriber with the least."""
        topic = self._owners[topic_id]
        free = [partition for partition in range(self._sizes[topic_id]) if partition not in topic]
        heap = [(self._load[name], name) for name in self._subscribers[topic_id]]
        heapq.heapify(heap)
        for partition in free:
            load, name = heap[0]
            topic[partition] = name
            self._load[name] = load + 1
            heapq.heapreplace(heap, (load + 1, name))

    def _balance(self, topic_id: uuid.UUID) -> int:
        """Move partitions of a topic from the subscriber with the most to that with the least, until they differ by at
        most 1. Returns the number of moves."""
        subscribers, topic, load = self._subscribers[topic_id], self._owners[topic_id], self._load
        if max(load[name] for name in subscribers) - min(load[name] for name in subscribers) <= 1:
            return 0
        held: dict[str, list[int]] = {}
        for partition in sorted(topic):
            held.setdefault(topic[partition], []).append(partition)
        lowest = [(load[name], name) for name in subscribers]
        highest = [(-load[name], name) for name in held]
        heapq.heapify(lowest)
        heapq.heapify(highest)
        moves = 0
        while highest:
            giver, taker = highest[0][1], lowest[0][1]
            if load[taker] != lowest[0][0]:  # a count from before a move
                heapq.heapreplace(lowest, (load[taker], taker))
            elif load[giver] != -highest[0][0]:
                heapq.heapreplace(highest, (-load[giver], giver))
            elif not held[giver]:
                heapq.heappop(highest)
            elif load[giver] - load[taker] <= 1:
                break
            else:
                partition = held[giver].pop()
                topic[partition] = taker
                load[giver] -= 1
                load[taker] += 1
                moves += 1
        return moves
