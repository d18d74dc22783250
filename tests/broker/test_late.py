"""Components that are imported when they are first needed."""

from __future__ import annotations

import threading
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest

from klog.broker import Broker, late_apis
from klog.broker.late import Late
from klog.clock import ManualClock
from klog.protocol import ApiKey, messages
from tests.support.batches import transactional
from tests.support.patience import PATIENCE
from tests.support.wire_client import WireClient

COMPONENTS = {
    "_coordinators.groups": late_apis.GROUPS,
    "_coordinators.transactions": late_apis.TRANSACTIONS,
    "_admin": late_apis.ADMIN,
}


def late_of(broker: Broker, name: str) -> Late:
    found: Late = attrgetter(name)(broker._serving)
    return found


def made(broker: Broker) -> list[str]:
    """The names of the components that have been made."""
    return [name.rpartition(".")[2] for name in COMPONENTS if late_of(broker, name).made is not None]


@pytest.mark.parametrize("name", COMPONENTS)
def test_a_late_component_has_the_apis_that_are_advertised_for_it(name: str, tmp_path: Path) -> None:
    with Broker(tmp_path, listeners=["127.0.0.1:0"]) as broker:
        late = late_of(broker, name)
        assert set(late.get().handlers()) == COMPONENTS[name] == set(late.handlers())


def test_share_fetches_have_the_apis_that_are_advertised_for_them(tmp_path: Path) -> None:
    with Broker(tmp_path, listeners=["127.0.0.1:0"]) as broker:
        (late,) = broker._serving._leading._share_fetches.values()
        assert set(late.get().handlers()) == late_apis.SHARE_FETCHES == set(late.handlers())


def test_a_component_exists_after_its_first_request_and_at_once_after_a_restart(tmp_path: Path) -> None:
    with Broker(tmp_path, listeners=["127.0.0.1:0"]) as broker:
        broker.topics.create("t", 1)
        assert made(broker) == []
        with WireClient(broker.bootstrap_servers) as client:
            client.call(ApiKey.METADATA, 9, topics=None)
            assert made(broker) == []
            client.call(ApiKey.DESCRIBE_CLUSTER, 0)
            assert made(broker) == ["_admin"]
            client.call(ApiKey.LIST_GROUPS, 3)
            assert made(broker) == ["groups", "_admin"]
            assert client.call(ApiKey.FIND_COORDINATOR, 1, key="g", key_type=0).error_code == 0
    with Broker(tmp_path, listeners=["127.0.0.1:0"]) as broker:
        assert made(broker) == ["groups"], "groups in __consumer_offsets may have to expire"


def joined(client: WireClient, **fields: Any) -> Any:
    """The response to the heartbeat of a new member of the group "g"."""
    request = {"group_id": "g", "member_id": "m", "member_epoch": 0, "rebalance_timeout_ms": 1000} | fields
    return client.call(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, **request, topic_partitions=[])


def test_after_a_restart_a_member_has_the_session_of_its_group(tmp_path: Path) -> None:
    """The session timeout is that of the group's own configuration."""
    clock = ManualClock()
    kind = messages.IncrementalAlterConfigs.Request
    values = {"consumer.session.timeout.ms": "10000", "consumer.heartbeat.interval.ms": "2000"}
    configs = [kind.Config(name=name, config_operation=0, value=value) for name, value in values.items()]
    with Broker(tmp_path, listeners=["127.0.0.1:0"], clock=clock) as broker:
        broker.topics.create("t", 1)
        with WireClient(broker.bootstrap_servers) as client:
            resource = kind.Resource(resource_type=32, resource_name="g", configs=configs)
            found = client.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource])
            assert [each.error_code for each in found.responses] == [0]
            assert joined(client, subscribed_topic_names=["t"]).error_code == 0
        broker.stop()
        broker.start()
        assert made(broker) == ["groups", "_admin"]
        clock.advance(9_000)
        group = broker.group("g")
        assert group is not None and len(group.members) == 1
        clock.advance(2_000)
        group = broker.group("g")
        assert group is not None and not group.members


def test_after_a_restart_a_transaction_ends_in_time_without_a_request(tmp_path: Path) -> None:
    clock = ManualClock()
    with Broker(tmp_path, listeners=["127.0.0.1:0"], clock=clock) as broker:
        broker.topics.create("t", 1)
        with WireClient(broker.bootstrap_servers) as client:
            client.call(ApiKey.FIND_COORDINATOR, 1, key="x", key_type=1)
            new = client.call(ApiKey.INIT_PRODUCER_ID, 1, transactional_id="x", transaction_timeout_ms=20_000)
            assert new.error_code == 0
            kind = messages.Produce.Request
            data = kind.Partition(index=0, records=transactional(new.producer_id, new.producer_epoch, 0))
            topics = [kind.Topic(name="t", topic_id=broker.topics.topic_id("t"), partition_data=[data])]
            found = client.call(ApiKey.PRODUCE, 12, transactional_id="x", acks=-1, timeout_ms=1000, topic_data=topics)
            assert found.responses[0].partition_responses[0].error_code == 0
        broker.stop()
        broker.start()
        assert made(broker) == ["transactions"]
        log = broker.logs.log("t", 0)
        assert (log.last_stable_offset, log.log_end_offset) == (0, 1)
        clock.advance(40_000)
        assert (log.last_stable_offset, log.log_end_offset) == (2, 2)


def test_a_component_that_another_thread_makes_is_waited_for() -> None:
    found: list[Any] = []
    others: list[threading.Thread] = []

    class Component:
        def handlers(self) -> dict[ApiKey, Any]:
            return {}

    def make() -> Component:
        others.append(threading.Thread(target=lambda: found.append(late.made_now())))
        others[0].start()
        others[0].join(0.05)
        return Component()

    late: Late = Late([], make)
    assert late.made_now() is None
    made = late.get()
    others[0].join(PATIENCE)
    assert found == [made]


def test_a_component_that_could_not_be_made_is_tried_again() -> None:
    failures = [OSError("full")]

    class Component:
        def handlers(self) -> dict[ApiKey, object]:
            return {ApiKey.FETCH: lambda context, request: request}

    def make() -> Component:
        if failures:
            raise failures.pop()
        return Component()

    late: Late = Late([ApiKey.FETCH], make)  # type: ignore[arg-type]
    handle = late.handlers()[ApiKey.FETCH]
    with pytest.raises(OSError, match="full"):
        handle(None, "a")
    assert late.made is None
    assert handle(None, "b") == "b"
    assert late.get() is late.get() is late.made
