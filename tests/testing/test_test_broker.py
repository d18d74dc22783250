"""TestBroker, for tests of programs that use Kafka: an example of each feature."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import klog
from klog.clock import ManualClock
from klog.errors import KlogError
from klog.protocol import ApiKey, ErrorCode, messages
from klog.record import Record, encode
from klog.testing import TestBroker
from klog.testing.topic import TopicUnderTest
from tests.support.patience import PATIENCE
from tests.support.wire_client import WireClient


def produce(client: WireClient, value: bytes, topic: str = "orders") -> int:
    """Produce one record. Return the error code of the response."""
    Request = messages.Produce.Request
    asked = Request.Partition(index=0, records=encode([(b"k", value, 1_700_000_000_000)]))
    found = client.call(
        ApiKey.PRODUCE, 9, acks=1, timeout_ms=1000, topic_data=[Request.Topic(name=topic, partition_data=[asked])]
    )
    code: int = found.responses[0].partition_responses[0].error_code
    return code


def test_topics_and_their_records() -> None:
    with klog.TestBroker(
        topics={"orders": 1, "compacted": {"partitions": 2, "config": {"cleanup.policy": "compact"}}}
    ) as b:
        assert b.logs.topics() == {"compacted": [0, 1], "orders": [0]}
        with WireClient(b.bootstrap_servers) as client:
            assert produce(client, b"first") == 0
        assert b.topic("orders").values() == [b"first"]
        assert len(b.topic("nothing").records()) == 0
        assert "b'first'" in b.dump()
        directory = Path(b.directory)
        assert (directory / "orders-0" / "00000000000000000000.log").exists()
    assert not directory.exists()


def test_waiting_for_records() -> None:
    with TestBroker(topics=["orders"]) as b:
        late = threading.Timer(0.05, lambda: b.topic("orders").append([(b"k", b"v")]))
        late.start()
        assert [record.value for record in b.topic("orders").wait(1, timeout=PATIENCE)] == [b"v"]
        late.join()
        with pytest.raises(TimeoutError, match="2 records of orders expected; there are 1"):
            b.topic("orders").wait(2, timeout=0.01)


def test_a_partition_that_a_topic_does_not_have() -> None:
    """An empty result would hide the mistake of a test."""
    with TestBroker(topics={"orders": 2}) as b:
        orders = b.topic("orders")
        orders.append([(b"k", b"v")], partition=1)
        assert (orders.values(0), orders.values(1), b.group("g").lag("orders", 1)) == ([], [b"v"], 1)
        assert (b.topic("nothing").values(7), b.group("g").lag("nothing", 7)) == ([], 0)
        for ask in (orders.records, orders.values, lambda number: b.group("g").lag("orders", number)):
            with pytest.raises(klog.errors.UnknownTopicOrPartition, match="'orders' has no partition 7"):
                ask(7)
            with pytest.raises(TypeError, match="partition='1': an int expected"):
                ask("1")  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="partition='1'"):
            b.leader("1")  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="topic=5"):
            b.topic(5)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="count='1'"):
            orders.wait("1")  # type: ignore[arg-type]
        with pytest.raises(TimeoutError, match="there is no such topic"):
            b.wait_group_lag("g", "nothing", timeout=0)


def test_records_are_iterated_and_read_at_every_isolation_level(monkeypatch: pytest.MonkeyPatch) -> None:
    reads, read = [], TopicUnderTest.records

    def counted(topic: TopicUnderTest, *arguments: Any, **more: Any) -> list[Record]:
        reads.append(topic.name)
        return read(topic, *arguments, **more)

    monkeypatch.setattr(TopicUnderTest, "records", counted)
    with TestBroker(topics=["orders"]) as b:
        b.topic("orders").append([(b"1", b"paid"), (b"2", b"open")])
        assert [record.key for record in list(b.topic("orders"))] == [b"1", b"2"]
        assert reads == ["orders"]
        assert b.topic("orders").values(isolation="read_uncommitted") == [b"paid", b"open"]
        with pytest.raises(ValueError, match="isolation='read_comitted'"):
            b.topic("orders").values(isolation="read_comitted")


def test_a_topic_that_exists() -> None:
    with TestBroker(topics=["orders"]) as b:
        with pytest.raises(klog.errors.TopicExists, match="exist_ok=True accepts it"):
            b.create_topic("orders")
        assert b.create_topic("orders", exist_ok=True).values() == []


def test_a_directory_that_is_kept_has_its_topics_at_the_next_start(tmp_path: Path) -> None:
    for number in range(2):
        with TestBroker(topics={"orders": 2}, directory=tmp_path) as b:
            assert len(b.topic("orders").records()) == number
            b.topic("orders").append([(b"k", b"v")])
    with TestBroker(topics={"orders": 2}, copy_of=tmp_path) as b:
        assert len(b.topic("orders").records()) == 2
    with pytest.raises(klog.errors.TopicExists, match="2 partitions"), TestBroker(topics=["orders"], copy_of=tmp_path):
        pass


def test_a_closed_broker_stays_closed(tmp_path: Path) -> None:
    """A second start would use a directory that nothing removes."""
    b = TestBroker(topics=["orders"])
    with b:
        b.snapshot(tmp_path / "s")
    b.close()
    for call in (b.start, b.restart, lambda: b.restore(tmp_path / "s"), lambda: b.snapshot(tmp_path / "t")):
        with pytest.raises(RuntimeError, match="the broker is closed: make a new TestBroker"):
            call()
    assert not Path(b.directory).exists()


def test_an_error_instead_of_the_effect() -> None:
    with TestBroker(topics=["orders", "other"]) as b, WireClient(b.bootstrap_servers) as client:
        fault = b.inject("produce", topic="orders", error="NOT_LEADER_OR_FOLLOWER", count=2, skip=1)
        codes = [produce(client, b"%d" % number) for number in range(4)]
        assert produce(client, b"other", "other") == 0
        wrong = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        assert codes == [0, wrong, wrong, 0]
        assert (fault.hits, fault.is_active) == (2, False)
        assert b.topic("orders").values() == [b"0", b"3"]


@pytest.mark.parametrize(("effect", "expected"), [("before", []), ("after", [b"v"])])
def test_a_connection_that_ends_before_or_after_the_effect(effect: str, expected: list[bytes]) -> None:
    with TestBroker(topics=["orders"]) as b, WireClient(b.bootstrap_servers) as client:
        fault = b.inject(ApiKey.PRODUCE, disconnect=effect)  # type: ignore[arg-type]
        with pytest.raises(ConnectionError):
            produce(client, b"v")
        fault.wait(timeout=PATIENCE)
        assert b.topic("orders").values() == expected


def test_half_a_response() -> None:
    with TestBroker(topics=["orders"]) as b, WireClient(b.bootstrap_servers) as client:
        b.inject("produce", half=True)
        with pytest.raises(ConnectionError):
            produce(client, b"v")
        assert b.topic("orders").values() == [b"v"]


def test_no_response_and_delays() -> None:
    with TestBroker(topics=["orders"]) as b, WireClient(b.bootstrap_servers) as client:
        dropped = b.inject("produce", drop=True)
        client.socket.settimeout(0.05)
        with pytest.raises(TimeoutError):
            produce(client, b"v")
        dropped.wait(timeout=PATIENCE)
    with TestBroker(topics=["orders"]) as b, WireClient(b.bootstrap_servers) as client:
        fault = b.inject(delay_ms=30, client_id="te*", count=None)
        assert produce(client, b"v") == 0
        fault.stop()
        assert produce(client, b"w") == 0
        assert fault.hits == 1


def test_faults_are_checked() -> None:
    with TestBroker() as b:
        for arguments, text in (
            ({"api": "produse", "error": 1}, "produse"),
            ({"error": "NO_SUCH"}, "NO_SUCH"),
            ({"api": "fetch"}, "one of error"),
            ({"error": 1, "drop": True}, "one of error"),
            ({"partition": 1, "drop": True}, "topic"),
            ({"disconnect": "later"}, "disconnect"),
        ):
            with pytest.raises(ValueError, match=text):
                b.inject(**arguments)  # type: ignore[arg-type]


def test_a_killed_broker_recovers_from_a_torn_log() -> None:
    with TestBroker(topics=["orders"]) as b:
        with WireClient(b.bootstrap_servers) as client:
            for value in (b"a", b"b"):
                produce(client, value)
        address = b.bootstrap_servers
        b.kill()
        b.tear("orders", last_bytes=3)
        b.start()
        assert b.bootstrap_servers == address
        assert b.topic("orders").values() == [b"a"]
        assert b.logs.log("orders").recovery.bytes_truncated > 0


def test_a_snapshot_restores_everything(tmp_path: Path) -> None:
    with TestBroker(topics=["orders"]) as b:
        b.topic("orders").append([(b"k", b"kept")])
        b.snapshot(tmp_path / "before")
        b.topic("orders").append([(b"k", b"dropped")])
        b.create_topic("more")
        b.restore(tmp_path / "before")
        assert b.logs.topics() == {"orders": [0]}
        assert b.topic("orders").values() == [b"kept"]
    with TestBroker(directory=tmp_path / "before") as b:
        assert b.topic("orders").values() == [b"kept"]
    assert (tmp_path / "before").exists()


def test_a_snapshot_that_fails_leaves_no_part_of_it(tmp_path: Path) -> None:
    """A restore of a part would lose records."""
    with TestBroker(topics=["orders", "paid"]) as b:
        b.topic("orders").append([(b"k", b"v")])
        fifo = Path(b.directory) / "orders-0" / "fifo"
        os.mkfifo(fifo)
        with pytest.raises(OSError, match="fifo"):
            b.snapshot(tmp_path / "s")
        assert list(tmp_path.iterdir()) == []
        fifo.unlink()
        assert b.topic("orders").values() == [b"v"]
        b.snapshot(f"{tmp_path}/s/")
        b.restore(tmp_path / "s")
        assert b.topic("orders").values() == [b"v"]
    assert [each.name for each in tmp_path.iterdir()] == ["s"]


def test_a_restore_that_is_refused_changes_nothing(tmp_path: Path) -> None:
    metadata = tmp_path / "kafka" / "__cluster_metadata-0"
    metadata.mkdir(parents=True)
    (metadata / f"{0:020d}.log").write_bytes(b"no metadata log" * 10)
    with TestBroker(topics=["orders"], directory=tmp_path / "data") as b:
        b.topic("orders").append([(b"k", b"kept")])
        with pytest.raises(KlogError):
            b.restore(tmp_path / "kafka")
        assert b.is_running
        assert b.restart().topic("orders").values() == [b"kept"]
    assert sorted(each.name for each in tmp_path.iterdir()) == ["data", "kafka"]


def test_a_restore_that_is_interrupted_keeps_the_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, rename = tmp_path / "data", os.rename

    def interrupted(source: Any, target: Any) -> None:
        if target == str(home) and not (Path(source) / "orders-0").exists():
            raise KeyboardInterrupt
        rename(source, target)

    (tmp_path / "empty").mkdir()
    with TestBroker(topics=["orders"], directory=home) as b:
        b.topic("orders").append([(b"k", b"kept")])
        monkeypatch.setattr(os, "rename", interrupted)
        with pytest.raises(KeyboardInterrupt):
            b.restore(tmp_path / "empty")
        monkeypatch.undo()
        assert b.is_running and b.topic("orders").values() == [b"kept"]
    assert sorted(each.name for each in tmp_path.iterdir()) == ["data", "empty"]


def test_a_snapshot_is_outside_the_directory_of_the_broker(tmp_path: Path) -> None:
    home = tmp_path / "data"
    with TestBroker(topics=["orders"], directory=home) as b:
        b.topic("orders").append([(b"k", b"kept")])
        (tmp_path / "link").symlink_to(home)
        for path in (home, tmp_path / "link", home / "orders-0"):
            with pytest.raises(ValueError, match="own directory"):
                b.restore(path)
        with pytest.raises(ValueError, match="own directory"):
            b.snapshot(home / "before")
        assert b.is_running
        assert b.topic("orders").values() == [b"kept"]


def test_only_the_log_of_a_partition_is_torn(tmp_path: Path) -> None:
    (tmp_path / "other-0").mkdir()
    outside = tmp_path / "other-0" / "00000000000000000000.log"
    outside.write_bytes(bytes(100))
    with TestBroker(topics=["orders"], directory=tmp_path / "data") as b:
        b.kill()
        for topic, partition in (("../other", 0), ("orders", -1), ("", 0)):
            with pytest.raises(ValueError, match="topic|partition"):
                b.tear(topic, partition)
        with pytest.raises(FileNotFoundError):
            b.tear("orders", 1)
    assert outside.stat().st_size == 100


def test_retention_by_a_clock_that_the_test_moves() -> None:
    clock = ManualClock(1_700_000_000_000)
    with TestBroker(topics={"orders": {"config": {"retention.ms": 1000, "segment.ms": 10}}}, clock=clock) as b:
        for number in range(3):
            b.topic("orders").append([(b"k", b"%d" % number, clock.wall_ms())])
            clock.advance(100)
        clock.advance(3_600_000)
        b.logs.log("orders").apply_retention()
        assert b.logs.log("orders").log_start_offset >= 2


PLUGIN = """
import pytest

@pytest.mark.klog_broker(topics=["orders"])
def test_one(klog_broker):
    klog_broker.topic("orders").append([(b"k", b"what was there")])
    assert 0, klog_broker.directory

def test_two(klog_broker):
    assert klog_broker.logs.topics() == {}

@pytest.mark.klog_broker(["orders"])
def test_arguments_without_names(klog_broker):
    pass

@pytest.fixture
def paid(klog_broker):
    klog_broker.topic("orders").append([(b"k", b"what a fixture saw")])
    assert 0

def test_another_fixture_fails(paid):
    pass

def test_three():
    import sys
    loader = type(sys.modules["klog.manager"].__spec__.loader).__name__
    assert loader == "SourceFileLoader", "pytest has rewritten klog's modules"
"""


def test_the_fixture_reports_topics_of_failed_tests_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(PLUGIN)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "test_it.py",
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "1 failed, 2 passed, 2 errors" in done.stdout
    assert "TestBroker.__init__() takes 1 positional argument" in done.stdout
    assert "0/0 b'k': b'what was there'" in done.stdout
    assert "0/0 b'k': b'what a fixture saw'" in done.stdout
    left = [line.split()[-1] for line in done.stdout.splitlines() if "AssertionError: " in line]
    assert left
    assert not Path(left[0]).exists()


def test_the_klog_broker_of_a_test_broker_and_its_metrics() -> None:
    with TestBroker(topics=["orders"]) as b:
        assert isinstance(b.broker, klog.Broker) and b.broker.bootstrap_servers == b.bootstrap_servers
        text = klog.metrics.prometheus(b)
        assert "kafka_network_" in text and f'logDirectory="{b.directory}"' in text
