"""Properties of every assignment of partitions to the members of a share group."""

from __future__ import annotations

import uuid

from hypothesis import given
from hypothesis import strategies as st

from klog.coordinator.groups.consumer_member import Target
from klog.coordinator.share.assignor import assign

TOPICS = [uuid.UUID(int=number) for number in range(1, 4)]
SIZES = st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 6))
SUBSCRIPTIONS = st.dictionaries(
    st.sampled_from([f"m{number}" for number in range(9)]), st.frozensets(st.sampled_from(TOPICS))
)


def pairs(target: Target) -> set[tuple[uuid.UUID, int]]:
    return {(topic_id, number) for topic_id, numbers in target.items() for number in numbers}


@given(sizes=SIZES, members=SUBSCRIPTIONS, before=SUBSCRIPTIONS, sizes_before=SIZES)
def test_every_partition_has_members_and_every_member_has_partitions(
    sizes: dict[uuid.UUID, int],
    members: dict[str, frozenset[uuid.UUID]],
    before: dict[str, frozenset[uuid.UUID]],
    sizes_before: dict[uuid.UUID, int],
) -> None:
    kept = assign({name: (topics, {}) for name, topics in before.items()}, sizes_before)
    found = assign({name: (topics, kept.get(name, {})) for name, topics in members.items()}, sizes)
    assert found.keys() == members.keys()
    read = {pair for target in found.values() for pair in pairs(target)}
    for name, topics in members.items():
        allowed = {(topic_id, number) for topic_id in topics & sizes.keys() for number in range(sizes[topic_id])}
        assert pairs(found[name]) <= allowed <= read
        assert bool(pairs(found[name])) == bool(allowed)
        alike = [
            len(pairs(found[other])) for other in members if members[other] & sizes.keys() == topics & sizes.keys()
        ]
        assert max(alike) - min(alike) <= 1
    again = assign({name: (members[name], found[name]) for name in sorted(members, reverse=True)}, sizes)
    assert again == found


def test_more_members_than_partitions_share_them_evenly() -> None:
    topic = TOPICS[0]
    members: dict[str, tuple[frozenset[uuid.UUID], Target]] = {
        f"m{each}": (frozenset([topic]), {}) for each in range(7)
    }
    found = assign(members, {topic: 3})
    readers = [sum(number in target[topic] for target in found.values()) for number in range(3)]
    assert sorted(readers) == [2, 2, 3]


def test_a_member_that_leaves_moves_only_its_own_partitions() -> None:
    topics = frozenset(TOPICS[:1])
    before = assign({name: (topics, {}) for name in "abc"}, {TOPICS[0]: 6})
    after = assign({name: (topics, before[name]) for name in "ab"}, {TOPICS[0]: 6})
    assert all(pairs(before[name]) <= pairs(after[name]) for name in "ab")
