"""Leader epochs of one broker: they rise after a crash, so that clients notice which records it has lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from klog.protocol import ApiKey, ErrorCode, messages
from klog.testing import TestBroker
from tests.support.wire_client import WireClient

FENCED, UNKNOWN = ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH


def epoch_of(b: TestBroker, topic: str) -> int:
    """Return the leader epoch in the metadata."""
    with WireClient(b.bootstrap_servers) as client:
        found = client.call(ApiKey.METADATA, 9, topics=[messages.Metadata.Request.Topic(name=topic)])
        epoch: int = found.topics[0].partitions[0].leader_epoch
        return epoch


def append(b: TestBroker, values: str) -> None:
    for value in values:
        b.logs.log("orders", 0).append([(None, value.encode())])


def record_epochs(b: TestBroker) -> list[int]:
    return [record.leader_epoch for record in b.topic("orders").records()]


def fetched(client: WireClient, offset: int, current: int, last: int) -> Any:
    Request = messages.Fetch.Request
    asked = Request.Partition(
        partition=0,
        fetch_offset=offset,
        partition_max_bytes=1000,
        current_leader_epoch=current,
        last_fetched_epoch=last,
    )
    topics = [Request.Topic(topic="orders", partitions=[asked])]
    found = client.call(ApiKey.FETCH, 12, max_bytes=1000, topics=topics, session_epoch=-1)
    return found.responses[0].partitions[0]


def test_leader_epochs_rise_after_a_crash_and_never_fall() -> None:
    with TestBroker(topics=["orders", "quiet"]) as b:
        append(b, "a")
        b.restart()
        assert (epoch_of(b, "orders"), epoch_of(b, "quiet")) == (0, 0)
        for wanted in (1, 2):
            b.kill()
            b.start()
            assert (epoch_of(b, "orders"), epoch_of(b, "quiet")) == (wanted, wanted)
        for _ in range(2):  # no record has this epoch
            b.restart()
            assert (epoch_of(b, "orders"), epoch_of(b, "quiet")) == (2, 2)
        append(b, "b")
        assert record_epochs(b) == [0, 2]
        b.restart()
        assert (epoch_of(b, "orders"), epoch_of(b, "quiet")) == (2, 2)
        checkpoint = Path(b.directory, "orders-0", "leader-epoch-checkpoint")
        assert checkpoint.read_text() == "0\n2\n0 0\n2 1\n"


def test_a_client_notices_that_a_crash_has_lost_records() -> None:
    with TestBroker(topics=["orders"]) as b:
        append(b, "abc")
        b.kill()
        b.tear("orders", last_bytes=1)
        b.start()
        append(b, "de")
        assert record_epochs(b) == [0, 0, 1, 1]
        with WireClient(b.bootstrap_servers) as client:
            codes = [fetched(client, 3, current, -1).error_code for current in (0, 1, 2)]
            assert codes == [FENCED, 0, UNKNOWN]
            diverging = fetched(client, 3, 1, 0).diverging_epoch
            assert (diverging.epoch, diverging.end_offset) == (0, 2)
            Request = messages.OffsetForLeaderEpoch.Request
            asked = Request.Partition(partition=0, current_leader_epoch=1, leader_epoch=0)
            topics = [Request.Topic(topic="orders", partitions=[asked])]
            (found,) = client.call(ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, topics=topics).topics[0].partitions
            assert (found.error_code, found.leader_epoch, found.end_offset) == (0, 0, 2)


def test_leader_epochs_rise_when_a_directory_goes_back_to_an_earlier_state(tmp_path: Path) -> None:
    """Otherwise a client that knows the later epoch, or has read later records, would not notice."""
    with TestBroker(topics=["orders", "quiet"]) as b:
        append(b, "a")
        b.snapshot(tmp_path / "s")
        append(b, "b")
        b.restore(tmp_path / "s")
        assert (epoch_of(b, "orders"), epoch_of(b, "quiet")) == (1, 0)
        b.kill()
        b.start()
        b.stop()
        b.restore(tmp_path / "s")
        b.start()
        assert (epoch_of(b, "orders"), epoch_of(b, "quiet")) == (3, 2)
