"""Transactions: the records that consumers read, and offsets that are committed in a transaction."""

from __future__ import annotations

import contextlib

import pytest

from tests.clients.adapters import Client
from tests.clients.reading import eventually, everything


def check(client: Client, topic: str, isolation: str, values: list[bytes]) -> None:
    """A new consumer with this isolation level reads exactly these values."""
    assert [each.value for each in everything(client, topic, len(values), isolation)] == values


def test_a_committed_transaction_is_read_and_an_aborted_one_is_not(client: Client, topic: str) -> None:
    producer = client.producer(transactional_id=topic)
    for number, end in enumerate([producer.commit, producer.abort, producer.commit]):
        producer.begin()
        producer.send(topic, b"a%d" % number)
        producer.send(topic, b"b%d" % number)
        producer.flush()
        end()
    producer.close()
    check(client, topic, "read_committed", [b"a0", b"b0", b"a2", b"b2"])
    check(client, topic, "read_uncommitted", [b"a0", b"b0", b"a1", b"b1", b"a2", b"b2"])


def test_records_after_an_open_transaction_are_read_when_it_ends(client: Client, topic: str) -> None:
    transactional = client.producer(transactional_id=topic)
    transactional.begin()
    transactional.send(topic, b"open")
    transactional.flush()
    plain = client.producer()
    plain.send(topic, b"plain")
    plain.flush()
    plain.close()
    check(client, topic, "read_committed", [])
    check(client, topic, "read_uncommitted", [b"open", b"plain"])
    transactional.commit()
    transactional.close()
    check(client, topic, "read_committed", [b"open", b"plain"])


def test_a_transaction_spans_topics(client: Client, admin: object, name: str) -> None:
    maker = client.admin()
    topics = [f"{name}-{number}" for number in range(3)]
    for each in topics:
        maker.create_topic(each)
    maker.close()
    producer = client.producer(transactional_id=name)
    producer.begin()
    for each in topics:
        producer.send(each, each.encode())
    producer.flush()
    producer.commit()
    producer.close()
    for each in topics:
        check(client, each, "read_committed", [each.encode()])


def test_offsets_are_committed_with_the_transaction(client: Client, topic: str) -> None:
    consumer = client.consumer(topic + "-group", isolation="read_committed")
    consumer.assign({(topic, 0): 0})
    producer = client.producer(transactional_id=topic)
    producer.begin()
    producer.send(topic, b"x")
    producer.send_offsets({(topic, 0): 4}, consumer)
    producer.commit()
    eventually(lambda: consumer.committed((topic, 0)) == 4)  # not every library waits for the end of the transaction
    producer.begin()
    producer.send_offsets({(topic, 0): 9}, consumer)
    producer.abort()
    assert consumer.committed((topic, 0)) == 4
    producer.close()
    consumer.close()


def test_a_second_producer_with_the_same_id_fences_the_first(client: Client, topic: str) -> None:
    first = client.producer(transactional_id=topic)
    first.begin()
    first.send(topic, b"left open")
    first.flush()
    second = client.producer(transactional_id=topic)
    second.begin()
    second.send(topic, b"second")
    second.flush()
    second.commit()
    with pytest.raises(Exception) as fenced:
        first.commit()
    assert not isinstance(fenced.value, TimeoutError)
    second.close()
    with contextlib.suppress(Exception):  # aiokafka reports the fencing once more
        first.close()
    check(client, topic, "read_committed", [b"second"])


def test_many_transactions_in_a_row(client: Client, topic: str) -> None:
    producer = client.producer(transactional_id=topic)
    for number in range(20):
        producer.begin()
        producer.send(topic, b"%d" % number)
        producer.flush()
        if number % 3 == 2:
            producer.abort()
        else:
            producer.commit()
    producer.close()
    wanted = [b"%d" % number for number in range(20) if number % 3 != 2]
    check(client, topic, "read_committed", wanted)


def test_empty_transactions_have_no_effect(client: Client, topic: str) -> None:
    producer = client.producer(transactional_id=topic)
    producer.begin()
    producer.commit()
    producer.begin()
    producer.abort()
    producer.begin()
    producer.send(topic, b"x")
    producer.flush()
    producer.commit()
    producer.close()
    check(client, topic, "read_committed", [b"x"])
