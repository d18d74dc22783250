"""The server assignors: every partition has one owner, the counts are even, and few partitions move. A1 to A4 are the
invariants in the docstring of klog.coordinator.groups.assignors."""

from __future__ import annotations

import uuid
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.coordinator.groups.assignors import ASSIGNORS, Members, MemberSpec, Sizes, range_, uniform
from klog.coordinator.groups.consumer_member import Target

T = [uuid.UUID(int=number) for number in range(1, 7)]


def spec(topics: list[int], target: dict[int, set[int]] | None = None, instance_id: str | None = None) -> MemberSpec:
    return MemberSpec(
        frozenset(T[number] for number in topics),
        {T[number]: frozenset(some) for number, some in (target or {}).items()},
        instance_id,
    )


def pairs(target: Target) -> set[tuple[uuid.UUID, int]]:
    return {(topic_id, partition) for topic_id, some in target.items() for partition in some}


def check(members: Members, sizes: Sizes, result: dict[str, Target]) -> None:
    """A1, and no assignment has a topic without partitions."""
    assert result.keys() == members.keys()
    owners = Counter(pair for target in result.values() for pair in pairs(target))
    wanted = {
        (topic_id, partition)
        for topic_id, size in sizes.items()
        if any(topic_id in member.topics for member in members.values())
        for partition in range(size)
    }
    assert owners == Counter(wanted)
    assert all(target.keys() <= members[name].topics for name, target in result.items())
    assert all(some for target in result.values() for some in target.values())


def counts(result: dict[str, Target]) -> dict[str, int]:
    return {name: len(pairs(target)) for name, target in result.items()}


@st.composite
def groups(draw: st.DrawFn, *, same: bool = False) -> tuple[Members, Sizes]:
    sizes = {T[number]: draw(st.integers(0, 7)) for number in range(draw(st.integers(0, 5)))}
    topics = st.frozensets(st.sampled_from(T))  # one of them never exists
    shared = draw(topics)
    members = {}
    for number in range(draw(st.integers(1, 6))):
        target = draw(st.dictionaries(st.sampled_from(T), st.frozensets(st.integers(-1, 8), min_size=1), max_size=4))
        members[f"m{number}"] = MemberSpec(shared if same else draw(topics), target)
    return members, sizes


@given(groups(), st.sampled_from(sorted(ASSIGNORS)))
def test_each_partition_has_one_owner_that_subscribes(group: tuple[Members, Sizes], assignor: str) -> None:
    members, sizes = group
    result = ASSIGNORS[assignor](members, sizes)
    check(members, sizes, result)
    backwards = dict(reversed(members.items())), dict(reversed(sizes.items()))
    assert ASSIGNORS[assignor](*backwards) == result  # A4


@given(groups(same=True))
def test_uniform_counts_of_equal_members_differ_by_one(group: tuple[Members, Sizes]) -> None:
    found = counts(uniform(*group)).values()
    assert max(found) - min(found) <= 1


@given(groups())
def test_uniform_balances_the_subscribers_of_each_topic(group: tuple[Members, Sizes]) -> None:
    """No partition has a subscriber with two or more partitions fewer than its owner."""
    members, sizes = group
    result = uniform(members, sizes)
    found = counts(result)
    for name, target in result.items():
        for topic_id in target:
            for other, member in members.items():
                if topic_id in member.topics:
                    assert found[name] - found[other] <= 1


@given(groups(), st.sampled_from(["uniform", "range"]))
def test_an_assignment_that_is_up_to_date_does_not_change(group: tuple[Members, Sizes], assignor: str) -> None:
    members, sizes = group
    result = ASSIGNORS[assignor](members, sizes)
    again = {name: MemberSpec(member.topics, result[name]) for name, member in members.items()}
    assert ASSIGNORS[assignor](again, sizes) == result


@given(groups(same=True), st.integers(0, 5))
def test_uniform_moves_only_the_partitions_of_a_member_that_leaves(group: tuple[Members, Sizes], leaver: int) -> None:
    members, sizes = group
    result = uniform(members, sizes)
    names = sorted(members)
    if len(names) == 1:
        return
    gone = names[leaver % len(names)]
    left = {name: MemberSpec(members[name].topics, result[name]) for name in names if name != gone}
    after = uniform(left, sizes)
    assert all(pairs(result[name]) <= pairs(after[name]) for name in left)  # A3


@given(groups(same=True))
def test_uniform_moves_only_the_partitions_that_a_new_member_gets(group: tuple[Members, Sizes]) -> None:
    members, sizes = group
    result = uniform(members, sizes)
    more = {name: MemberSpec(member.topics, result[name]) for name, member in members.items()}
    more["new"] = MemberSpec(next(iter(members.values())).topics, {})
    after = uniform(more, sizes)
    moved = sum(len(pairs(result[name]) - pairs(after[name])) for name in members)
    assert moved == len(pairs(after["new"]))


def test_uniform_leaves_a_balanced_assignment_as_it_is() -> None:
    members = {"a": spec([0], {0: {0, 1}}), "b": spec([0], {0: {2, 3, 4}}), "c": spec([0], {0: {5, 6}})}
    assert uniform(members, {T[0]: 7}) == {name: member.target for name, member in members.items()}


def test_uniform_balances_topics_that_have_one_subscriber() -> None:
    members = {"a": spec([0, 1]), "b": spec([1])}
    assert counts(uniform(members, {T[0]: 4, T[1]: 4})) == {"a": 4, "b": 4}


def test_uniform_moves_partitions_of_one_topic_to_balance_another() -> None:
    members = {"a": spec([0, 1], {1: {0, 1, 2, 3}}), "b": spec([1])}
    result = uniform(members, {T[0]: 4, T[1]: 4})
    assert counts(result) == {"a": 4, "b": 4}


def test_range_gives_the_same_partitions_of_equal_topics() -> None:
    result = range_({"b": spec([0, 1]), "a": spec([0, 1])}, {T[0]: 3, T[1]: 3})
    assert result == {"a": {T[0]: {0, 1}, T[1]: {0, 1}}, "b": {T[0]: {2}, T[1]: {2}}}


def test_range_orders_static_members_by_their_instances() -> None:
    members = {"x": spec([0], instance_id="2"), "y": spec([0], instance_id="1"), "a": spec([0])}
    result = range_(members, {T[0]: 3})
    assert result == {"y": {T[0]: {0}}, "x": {T[0]: {1}}, "a": {T[0]: {2}}}


def test_more_members_than_partitions() -> None:
    members = {f"m{number}": spec([0]) for number in range(5)}
    for assignor in ASSIGNORS.values():
        assert sorted(counts(assignor(members, {T[0]: 2})).values()) == [0, 0, 0, 1, 1]


@pytest.mark.parametrize("assignor", sorted(ASSIGNORS))
def test_no_members_or_no_topics(assignor: str) -> None:
    assert ASSIGNORS[assignor]({}, {T[0]: 2}) == {}
    assert ASSIGNORS[assignor]({"a": spec([])}, {}) == {"a": {}}
