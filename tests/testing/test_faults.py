"""Which requests a fault matches, and what it does to them."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from klog.clock import ManualClock
from klog.protocol import ApiKey, messages
from klog.record import encode
from klog.testing import TestBroker
from klog.testing.waiting import wait_for
from tests.support.patience import PATIENCE
from tests.support.wire_client import WireClient
from tests.testing.test_test_broker import produce

Produce = messages.Produce.Request
NOT_LEADER = 6


def produced(client: WireClient, *partitions: tuple[str, int], acks: int = 1) -> dict[tuple[str, int], int]:
    """Produce to several partitions in one request. Return their error codes; empty for acks=0."""
    topics = [
        Produce.Topic(name=topic, partition_data=[Produce.Partition(index=number, records=encode([(b"k", b"v", 1)]))])
        for topic, number in partitions
    ]
    client.send(ApiKey.PRODUCE, 9, Produce(acks=acks, timeout_ms=1000, topic_data=topics))
    if acks == 0:
        return {}
    found = client.receive(ApiKey.PRODUCE, 9)
    return {(each.name, part.index): part.error_code for each in found.responses for part in each.partition_responses}


@pytest.mark.parametrize(("moment", "expected"), [("before", []), ("after", [b"v"])])
def test_a_kill_before_or_after_the_effect(moment: Any, expected: list[bytes]) -> None:
    with TestBroker(topics=["orders"]) as b:
        address = b.bootstrap_servers
        fault = b.inject("produce", topic="orders", kill=moment)
        with WireClient(address) as client, pytest.raises(ConnectionError):
            produce(client, b"v")
        fault.wait(timeout=PATIENCE)
        assert b.bootstrap_servers == address  # it is the same while the broker is stopped
        b.start()
        assert b.topic("orders").values() == expected
        with WireClient(address) as client:
            assert produce(client, b"w") == 0


def test_a_torn_log_loses_its_last_records() -> None:
    with TestBroker(topics={"orders": 2}) as b:
        b.topic("orders").append([(b"k", b"kept")], partition=0)
        fault = b.inject("produce", topic="orders", partition=0, tear=3, skip=1)
        with WireClient(b.bootstrap_servers) as client:
            assert produce(client, b"kept, too") == 0
            with pytest.raises(ConnectionError):
                produce(client, b"torn")
        b.start()
        assert fault.hits == 1
        assert b.topic("orders").values(0) == [b"kept", b"kept, too"]
        assert b.logs.log("orders").recovery.bytes_truncated > 0


def test_a_killed_broker_starts_again_by_itself() -> None:
    with TestBroker(topics=["orders"]) as b:
        fault = b.inject("produce", kill="after", restart_ms=1, count=2)
        for number in range(2):
            with WireClient(b.bootstrap_servers) as client, pytest.raises(ConnectionError):
                produce(client, b"%d" % number)
            wait_for(lambda: b.is_running and _accepts(b), PATIENCE, lambda: "it does not start")
        assert fault.hits == 2
        assert b.topic("orders").values() == [b"0", b"1"]
        b.inject("produce", kill="after", restart_ms=3_600_000)
        with WireClient(b.bootstrap_servers) as client, pytest.raises(ConnectionError):
            produce(client, b"2")
    assert not [each for each in threading.enumerate() if each.name == "klog-test-crash"]


def test_a_killed_broker_that_is_to_start_again_does_so_after_a_snapshot(tmp_path: Path) -> None:
    with TestBroker(topics=["orders"]) as b:
        b.inject("produce", kill="after", restart_ms=3_600_000, count=2)
        for number, pause in enumerate((b.snapshot, b.restore)):
            with WireClient(b.bootstrap_servers) as client, pytest.raises(ConnectionError):
                produce(client, b"%d" % number)
            pause(tmp_path / "s")
            assert b.is_running
        assert b.topic("orders").values() == [b"0"]


def _accepts(b: TestBroker) -> bool:
    try:
        WireClient(b.bootstrap_servers).socket.close()
    except ConnectionError:
        return False
    return True


def test_requests_are_held_until_the_test_releases_them() -> None:
    with TestBroker(topics=["orders"]) as b:
        with WireClient(b.bootstrap_servers, "first") as first, WireClient(b.bootstrap_servers, "second") as second:
            held = b.inject("produce", client_id="first", hold=True)
            first.send(ApiKey.PRODUCE, 9, _request(b"first"))
            held.wait(timeout=PATIENCE)
            assert produce(second, b"second") == 0
            held.release()
            first.receive(ApiKey.PRODUCE, 9)
            assert b.topic("orders").values() == [b"second", b"first"]
            again = b.inject("produce", client_id="first", hold=True, error="NOT_LEADER_OR_FOLLOWER")
            first.send(ApiKey.PRODUCE, 9, _request(b"refused"))
            again.wait(timeout=PATIENCE)
            b.clear_faults()
            found = first.receive(ApiKey.PRODUCE, 9)
            assert found.responses[0].partition_responses[0].error_code == NOT_LEADER
        with WireClient(b.bootstrap_servers) as third:
            b.inject("produce", hold=True)
            third.send(ApiKey.PRODUCE, 9, _request(b"lost"))
            b.faults[-1].wait(timeout=PATIENCE)
            b.restart()
            assert third.is_closed()
            b.faults[-1].release()
        assert b.topic("orders").values() == [b"second", b"first"]


@pytest.mark.parametrize("fault", [{"delay_ms": 10**9}, {"hold": True}, {"drop": True}])
def test_a_stop_does_not_wait_for_requests_that_a_fault_keeps(
    fault: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    with TestBroker(topics=["orders"]) as b, WireClient(b.bootstrap_servers) as client:
        kept = b.inject("produce", **fault)
        client.send(ApiKey.PRODUCE, 9, _request(b"lost"))
        kept.wait(timeout=PATIENCE)
        b.restart()
        assert client.is_closed()
        assert b.topic("orders").values() == []
    assert "stop_unfinished" not in caplog.text


def _request(value: bytes) -> Any:
    part = Produce.Partition(index=0, records=encode([(b"k", value, 1)]))
    return Produce(acks=1, timeout_ms=1000, topic_data=[Produce.Topic(name="orders", partition_data=[part])])


def test_an_error_of_one_partition_does_not_affect_the_others() -> None:
    with TestBroker(topics={"orders": 2, "other": 1}) as b, WireClient(b.bootstrap_servers) as client:
        b.inject("produce", topic="orders", partition=1, error="NOT_LEADER_OR_FOLLOWER")
        found = produced(client, ("orders", 0), ("orders", 1), ("other", 0))
        assert found == {("orders", 0): 0, ("orders", 1): NOT_LEADER, ("other", 0): 0}
        b.inject("produce", topic="orders", error="NOT_LEADER_OR_FOLLOWER")
        found = produced(client, ("orders", 0), ("orders", 1), ("other", 0))
        assert found == {("orders", 0): NOT_LEADER, ("orders", 1): NOT_LEADER, ("other", 0): 0}
        assert [len(b.topic("orders").records(each)) for each in (0, 1)] == [1, 0]
        assert len(b.topic("other").records()) == 2
        b.inject("create_topics", topic="bad", error="INVALID_TOPIC_EXCEPTION")
        Topic = messages.CreateTopics.Request.Topic
        made = client.call(
            ApiKey.CREATE_TOPICS,
            5,
            topics=[Topic(name=each, num_partitions=1, replication_factor=1) for each in ("good", "bad")],
            timeout_ms=1000,
        )
        assert {each.name: each.error_code for each in made.topics} == {"good": 0, "bad": 17}
        assert sorted(b.logs.topics()) == ["good", "orders", "other"]


def test_without_a_response_a_fault_closes_the_connection() -> None:
    for arguments, expected in (
        ({"error": "NOT_LEADER_OR_FOLLOWER"}, 0),
        ({"disconnect": "after"}, 1),
        ({"half": True}, 1),
        ({"error": "NOT_LEADER_OR_FOLLOWER", "topic": "other"}, 1),
    ):
        with TestBroker(topics=["orders", "other"]) as b, WireClient(b.bootstrap_servers) as client:
            b.inject("produce", **arguments)  # type: ignore[arg-type]
            produced(client, ("orders", 0), ("other", 0), acks=0)
            assert client.is_closed()
            assert len(b.topic("orders").records()) == expected


def test_metadata_keeps_its_brokers_and_has_the_error_in_its_topics() -> None:
    with TestBroker(topics=["orders", "other"]) as b, WireClient(b.bootstrap_servers) as client:
        b.inject("metadata", topic="orders", error="LEADER_NOT_AVAILABLE", count=2)
        for version in (9, 13):
            found = client.call(ApiKey.METADATA, version, topics=None)
            assert {each.name: each.error_code for each in found.topics} == {"orders": 5, "other": 0}
            assert (len(found.brokers), found.error_code) == (1, 0)
        fault = b.inject("metadata", error="LEADER_NOT_AVAILABLE")
        assert client.call(ApiKey.METADATA, 9, topics=[]).topics == []
        assert fault.hits == 0  # the response has no topic that could carry the error


def test_an_error_of_offset_fetch_is_in_its_partitions() -> None:
    Offsets = messages.OffsetFetch.Request
    with TestBroker(topics=["orders"]) as b, WireClient(b.bootstrap_servers) as client:
        asked = [Offsets.Group(group_id="g", topics=[Offsets.GroupTopic(name="orders", partition_indexes=[0])])]
        b.inject("offset_fetch", error="UNSTABLE_OFFSET_COMMIT")
        (group,) = client.call(ApiKey.OFFSET_FETCH, 8, groups=asked).groups
        assert (group.error_code, group.topics[0].partitions[0].error_code) == (0, 88)
        b.inject("offset_fetch", error="NOT_COORDINATOR")
        (group,) = client.call(ApiKey.OFFSET_FETCH, 8, groups=asked).groups
        assert group.error_code == 16


def test_a_response_that_the_test_gives() -> None:
    with TestBroker(topics=["orders"]) as b, WireClient(b.bootstrap_servers) as client:
        Response = messages.FindCoordinator.Response
        b.inject("find_coordinator", respond=lambda request: Response(error_code=15), count=1)
        assert client.call(ApiKey.FIND_COORDINATOR, 2, key="g", key_type=0).error_code == 15
        assert client.call(ApiKey.FIND_COORDINATOR, 2, key="g", key_type=0).error_code == 0
        passed = b.inject("find_coordinator", respond=lambda request: None)
        assert client.call(ApiKey.FIND_COORDINATOR, 2, key="g", key_type=0).error_code == 0
        assert passed.hits == 1


def test_requests_are_selected_by_a_function_or_by_broker() -> None:
    with TestBroker(topics={"orders": 2}, brokers=2) as b:
        second = b.watch(broker=2)
        fault = b.inject("produce", when=lambda request: request.message.acks == -1, error="NOT_LEADER_OR_FOLLOWER")
        for number, address in enumerate(b.bootstrap_servers.split(",")):
            with WireClient(address, f"client-{number}") as client:
                assert produced(client, ("orders", number)) == {("orders", number): 0}
                assert list(produced(client, ("orders", number), acks=-1).values()) == [
                    NOT_LEADER if number == 0 else 0
                ]
        assert (second.hits, fault.hits) == (2, 1)
        assert second.requests[0] == (ApiKey.PRODUCE, 9, "client-1", 2, (("orders", None), ("orders", 1)))
        with pytest.raises(TimeoutError, match=r"<Watch broker=2: 2 hits>: 3 hits expected"):
            second.wait(3, timeout=0.01)
        second.stop()


def test_invalid_faults() -> None:
    with TestBroker() as b:
        for arguments, text in (
            ({"tear": 1}, "api='produce'"),
            ({"api": "produce", "tear": 1, "kill": "before"}, "kill='after'"),
            ({"restart_ms": 1, "drop": True}, "give kill or tear"),
            ({"kill": "later"}, "kill"),
            ({"drop": True, "broker": 2}, "broker 2: the brokers are 1"),
            ({"kill": "after", "half": True}, "one of error"),
        ):
            with pytest.raises(ValueError, match=text):
                b.inject(**arguments)  # type: ignore[arg-type]
        for arguments in ({"when": 1, "drop": True}, {"respond": "x"}, {"hold": 1}):
            with pytest.raises(TypeError):
                b.inject(**arguments)  # type: ignore[arg-type]


def test_with_a_clock_in_the_past_records_of_producers_are_accepted() -> None:
    confluent: Any = pytest.importorskip("confluent_kafka", reason="needs: confluent-kafka")
    clock = ManualClock(1_700_000_000_000)
    with TestBroker(topics=["orders"], clock=clock) as b:
        producer = confluent.Producer(b.client_config())
        errors: list[Any] = []
        producer.produce("orders", b"v", on_delivery=lambda error, _: errors.append(error))
        producer.flush(PATIENCE)
        assert errors == [None]
        assert b.topic("orders").records()[0].timestamp > clock.wall_ms()
