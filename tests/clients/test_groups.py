"""Consumer groups: membership, rebalances and committed offsets."""

from __future__ import annotations

import pytest

from tests.clients.adapters import CLIENTS, Admin, Client, Refused, load
from tests.clients.reading import collect, eventually, poll_together, settle
from tests.clients.servers import Server

PARTITIONS = 4


def fill(client: Client, topic: str, count: int = 40) -> None:
    producer = client.producer()
    for number in range(count):
        producer.send(topic, b"%d" % number, partition=number % PARTITIONS)
    producer.flush()
    producer.close()


@pytest.fixture
def wide_topic(admin: Admin, name: str) -> str:
    """A topic with four partitions."""
    admin.create_topic(name, partitions=PARTITIONS)
    return name


def test_one_member_gets_all_partitions_and_records(client: Client, wide_topic: str) -> None:
    fill(client, wide_topic)
    member = client.consumer(wide_topic)
    member.subscribe([wide_topic])
    found = collect(member, 40)
    assert {each.value for each in found} == {b"%d" % number for number in range(40)}
    assert member.assignment() == {(wide_topic, partition) for partition in range(PARTITIONS)}
    member.close()


def test_members_share_the_partitions_and_take_over_from_one_that_leaves(client: Client, wide_topic: str) -> None:
    everything = {(wide_topic, partition) for partition in range(PARTITIONS)}
    first = client.consumer(wide_topic)
    first.subscribe([wide_topic])
    settle([first], lambda: first.assignment() == everything)

    second = client.consumer(wide_topic)
    second.subscribe([wide_topic])

    def shared() -> bool:
        owned = [first.assignment(), second.assignment()]
        return all(len(each) == 2 for each in owned) and owned[0] | owned[1] == everything

    settle([first, second], shared)
    fill(client, wide_topic)
    values: list[bytes | None] = []
    while len(values) < 40:
        values += [each.value for each in poll_together([first, second])]
    assert len(values) == 40
    assert set(values) == {b"%d" % number for number in range(40)}

    first.close()
    settle([second], lambda: second.assignment() == everything)
    second.close()


def test_a_new_member_resumes_where_the_group_has_committed(client: Client, wide_topic: str) -> None:
    fill(client, wide_topic)
    member = client.consumer(wide_topic)
    member.subscribe([wide_topic])
    collect(member, 40)
    assert member.committed((wide_topic, 0)) is None
    member.commit({(wide_topic, partition): 7 + partition for partition in range(PARTITIONS)})
    assert member.committed((wide_topic, 3)) == 10
    member.close()

    member = client.consumer(wide_topic)
    member.subscribe([wide_topic])
    left = sorted((each.partition, each.offset) for each in collect(member, 6))
    assert left == [(0, 7), (0, 8), (0, 9), (1, 8), (1, 9), (2, 9)]
    member.close()


def test_offsets_are_committed_without_membership(client: Client, topic: str) -> None:
    consumer = client.consumer(topic)
    consumer.assign({(topic, 0): 0})
    consumer.commit({(topic, 0): 5})
    assert consumer.committed((topic, 0)) == 5
    consumer.close()
    other = client.consumer(topic + "-other")
    assert other.committed((topic, 0)) is None
    other.close()


def test_a_group_is_listed_described_and_deleted(client: Client, admin: Admin, wide_topic: str) -> None:
    member = client.consumer(wide_topic)
    member.subscribe([wide_topic])
    settle([member], lambda: len(member.assignment()) == PARTITIONS)
    assert wide_topic in admin.groups()
    assert admin.group_state(wide_topic) == ("Stable", 1)
    member.commit({(wide_topic, 1): 0})
    assert admin.group_offsets(wide_topic) == {(wide_topic, 1): 0}
    if "delete_group" not in client.lacks:
        with pytest.raises(Refused) as refused:
            admin.delete_group(wide_topic)
        assert refused.value.code == 68
    member.close()
    eventually(lambda: admin.group_state(wide_topic) == ("Empty", 0))
    if "delete_group" not in client.lacks:
        admin.delete_group(wide_topic)
        assert wide_topic not in admin.groups()
        with pytest.raises(Refused) as refused:
            admin.delete_group(wide_topic)
        assert refused.value.code == 69


def test_an_added_partition_is_assigned(client: Client, admin: Admin, topic: str) -> None:
    member = client.consumer(topic)
    member.subscribe([topic])
    settle([member], lambda: member.assignment() == {(topic, 0)})
    admin.add_partitions(topic, 2)
    settle([member], lambda: member.assignment() == {(topic, 0), (topic, 1)})
    member.close()


@pytest.mark.parametrize("client", [CLIENTS[0]], indirect=True)
class TestConsumerProtocol:
    """KIP-848: the broker assigns the partitions."""

    def test_members_share_the_partitions_and_take_over(self, client: Client, wide_topic: str) -> None:
        everything = {(wide_topic, partition) for partition in range(PARTITIONS)}
        first = client.consumer(wide_topic, protocol="consumer")
        first.subscribe([wide_topic])
        settle([first], lambda: first.assignment() == everything)
        second = client.consumer(wide_topic, protocol="consumer")
        second.subscribe([wide_topic])
        settle([first, second], lambda: len(first.assignment()) == len(second.assignment()) == 2)
        assert first.assignment() | second.assignment() == everything
        first.close()
        settle([second], lambda: second.assignment() == everything)
        second.close()

    def test_a_new_member_resumes_where_the_group_has_committed(self, client: Client, wide_topic: str) -> None:
        fill(client, wide_topic)
        member = client.consumer(wide_topic, protocol="consumer")
        member.subscribe([wide_topic])
        collect(member, 40)
        member.commit({(wide_topic, partition): 9 for partition in range(PARTITIONS)})
        member.close()
        member = client.consumer(wide_topic, protocol="consumer")
        member.subscribe([wide_topic])
        assert {(each.partition, each.offset) for each in collect(member, 4)} == {(n, 9) for n in range(PARTITIONS)}
        member.close()

    def test_the_group_is_described_and_deleted(self, client: Client, admin: Admin, wide_topic: str) -> None:
        member = client.consumer(wide_topic, protocol="consumer")
        member.subscribe([wide_topic])
        settle([member], lambda: len(member.assignment()) == PARTITIONS)
        assert wide_topic in admin.groups()
        eventually(lambda: admin.group_state(wide_topic) == ("Stable", 1))
        member.close()
        eventually(lambda: admin.group_state(wide_topic) == ("Empty", 0))
        admin.delete_group(wide_topic)
        assert wide_topic not in admin.groups()

    def test_a_group_changes_its_protocol_when_it_is_empty(self, client: Client, wide_topic: str) -> None:
        fill(client, wide_topic)
        member = client.consumer(wide_topic)
        member.subscribe([wide_topic])
        collect(member, 40)
        member.commit({(wide_topic, partition): 8 for partition in range(PARTITIONS)})
        member.close()
        member = client.consumer(wide_topic, protocol="consumer")
        member.subscribe([wide_topic])
        assert {(each.partition, each.offset) for each in collect(member, 8)} == {
            (partition, offset) for partition in range(PARTITIONS) for offset in (8, 9)
        }
        member.close()

    @pytest.mark.parametrize("other", CLIENTS)
    def test_a_group_changes_its_protocol_member_by_member(
        self, client: Client, server: Server, other: str, wide_topic: str
    ) -> None:
        classic = load(other, server.bootstrap).consumer(wide_topic)
        classic.subscribe([wide_topic])
        settle([classic], lambda: len(classic.assignment()) == PARTITIONS)
        modern = client.consumer(wide_topic, protocol="consumer")
        modern.subscribe([wide_topic])
        settle([classic, modern], lambda: len(classic.assignment()) == len(modern.assignment()) == 2)
        assert not classic.assignment() & modern.assignment()
        classic.close()
        settle([modern], lambda: len(modern.assignment()) == PARTITIONS)
        modern.close()

    def test_topics_that_match_a_pattern_are_assigned_when_they_are_created(
        self, client: Client, admin: Admin, name: str
    ) -> None:
        member = client.consumer(name, protocol="consumer")
        member.subscribe([f"^{name}-.*"])
        for number in range(2):
            topic = f"{name}-{number}"
            admin.create_topic(topic)
            settle([member], lambda: (topic, 0) in member.assignment())  # noqa: B023
        admin.delete_topic(f"{name}-0")
        settle([member], lambda: member.assignment() == {(f"{name}-1", 0)})
        member.close()


@pytest.mark.parametrize("client", [CLIENTS[0]], indirect=True)
@pytest.mark.parametrize("other", CLIENTS[1:])
def test_libraries_read_the_offsets_of_each_other(client: Client, server: Server, other: str, topic: str) -> None:
    consumer = client.consumer(topic)
    consumer.assign({(topic, 0): 0})
    consumer.commit({(topic, 0): 3})
    consumer.close()
    theirs = load(other, server.bootstrap).consumer(topic)
    assert theirs.committed((topic, 0)) == 3
    theirs.close()
