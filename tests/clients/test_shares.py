"""Java's KafkaShareConsumer and confluent-kafka's ShareConsumer on klog: acknowledgements of all kinds, timeouts, several
members on one partition, and a broker that is killed."""

from __future__ import annotations

import json
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from klog.clock import Clock, ManualClock, SystemClock
from klog.testing import TestBroker
from tests.support.broker_process import BrokerProcess
from tests.support.patience import PATIENCE
from tools import kafka_jars

VERSION = "4.3.1"
LOCK_MS = 2_000


class Got(NamedTuple):
    """A record that a member has received."""

    topic: str
    partition: int
    offset: int
    deliveries: int
    value: str


class JavaMember:
    """A member of a share group: a process that runs java/ShareMember.java."""

    def __init__(self, bootstrap: str, group: str, mode: str = "explicit", **properties: object) -> None:
        jars = kafka_jars.get(VERSION)
        classes = jars.compile(Path(__file__).parent / "java", "shares")
        self._process = subprocess.Popen(
            [
                "java",
                "-Xshare:auto",
                "-XX:TieredStopAtLevel=1",
                "-cp",
                f"{classes}:{jars.lib}/*",
                "ShareMember",
                bootstrap,
                group,
                mode,
                "t",
                *(f"{name.replace('_', '.')}={value}" for name, value in properties.items()),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def do(self, *words: object) -> Any:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"the member ended: {self._process.wait(PATIENCE)}"
        return json.loads(line)

    def poll(self, count: int = 1, ms: int = 500) -> list[Got]:
        """Poll until there are records, and return them. With count=0 poll once. ms: the timeout of one poll."""
        until = time.monotonic() + PATIENCE
        while True:
            found = [Got(*each) for each in self.do("poll", ms)]
            if found or not count:
                return found
            assert time.monotonic() < until, "no record arrived"

    def acknowledge(self, kind: str, *records: Got) -> None:
        assert self.do("acknowledge", kind, *(each.offset for each in records)) is None

    def commit(self) -> dict[str, str]:
        found = self.do("commit")
        assert isinstance(found, dict)
        return found

    def close(self) -> None:
        """Leave the group, and end the process."""
        self.do("close")
        assert self._process.wait(PATIENCE) == 0

    def kill(self) -> None:
        """Kill the process."""
        self._process.kill()
        self._process.wait()
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdout.close()
        self._process.stdin.close()


Start = Callable[..., JavaMember]


@pytest.fixture
def lock_ms() -> int:
    """The time after which the acquisition lock of a record times out."""
    return LOCK_MS


@pytest.fixture
def clock() -> Clock:
    return SystemClock()


@pytest.fixture
def broker(lock_ms: int, clock: Clock) -> Iterator[TestBroker]:
    config = {"group.share.record.lock.duration.ms": lock_ms, "group.share.delivery.count.limit": 3}
    with TestBroker(topics={"t": 1}, config=config, clock=clock) as found:
        yield found


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts members, which are killed after the test."""
    with ExitStack() as stack:

        def begin(*arguments: Any, **more: Any) -> JavaMember:
            try:
                found = JavaMember(*arguments, **more)
            except kafka_jars.Unavailable as missing:
                pytest.skip(f"needs: {missing}")
            stack.callback(found.kill)
            return found

        yield begin


def configure(bootstrap: str, group: str, name: str, value: str) -> None:
    """Set a configuration of a group."""
    from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

    admin = AdminClient({"bootstrap.servers": bootstrap})
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    for future in admin.incremental_alter_configs(
        [ConfigResource(ResourceType.GROUP, group, incremental_configs=[entry])]
    ).values():
        future.result(PATIENCE)


def from_the_beginning(bootstrap: str, group: str) -> None:
    """Let a group begin at the log start."""
    configure(bootstrap, group, "share.auto.offset.reset", "earliest")


def produce(bootstrap: str, first: int, stop: int) -> None:
    """Produce the values v<first> to v<stop - 1> in batches of 7. A member gets whole batches."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "batch.num.messages": 7})
    for number in range(first, stop):
        producer.produce("t", f"v{number}".encode())
    assert producer.flush(PATIENCE) == 0


def offsets(records: list[Got]) -> list[tuple[int, int]]:
    return [(each.offset, each.deliveries) for each in records]


@pytest.mark.java
@pytest.mark.deep
def test_accept_release_reject_and_renew(broker: TestBroker, start: Start) -> None:
    from_the_beginning(broker.bootstrap_servers, "g")
    broker.topic("t").append([(None, f"v{number}".encode()) for number in range(5)])
    member = start(broker.bootstrap_servers, "g")
    records = member.poll()
    assert offsets(records) == [(each, 1) for each in range(5)]
    member.acknowledge("ACCEPT", records[0])
    member.acknowledge("RELEASE", records[1])
    member.acknowledge("REJECT", records[2])
    member.acknowledge("RENEW", records[3])
    member.acknowledge("ACCEPT", records[4])
    assert member.commit() == {"t-0": ""}
    seen: set[tuple[int, int]] = set()
    while len(seen) < 2:  # the member gets the renewed record again, and the released one
        again = member.poll()
        seen.update(offsets(again))
        member.acknowledge("ACCEPT", *again)
        assert member.commit() == {"t-0": ""}
    assert seen == {(1, 2), (3, 1)}
    member.close()
    later = start(broker.bootstrap_servers, "g")
    assert later.poll(0, 2000) == []
    assert len(broker.group("g").members) == 1


@pytest.mark.java
@pytest.mark.deep
@pytest.mark.parametrize("clock", [ManualClock()])
def test_a_record_that_no_member_acknowledges_is_delivered_again_until_it_is_archived(
    broker: TestBroker, clock: ManualClock, start: Start
) -> None:
    from_the_beginning(broker.bootstrap_servers, "g")
    broker.topic("t").append([(None, b"poison")])
    for deliveries in (1, 2, 3):
        member = start(broker.bootstrap_servers, "g")
        assert offsets(member.poll()) == [(0, deliveries)]
        if deliveries == 2:
            member.kill()  # its connection is closed: the record is available at once
        else:
            clock.advance(LOCK_MS)
    broker.topic("t").append([(None, b"good")])
    assert offsets(start(broker.bootstrap_servers, "g").poll()) == [(1, 1)]


@pytest.mark.java
@pytest.mark.deep
@pytest.mark.parametrize("lock_ms", [60_000])
def test_members_that_acknowledge_implicitly_share_a_partition(broker: TestBroker, start: Start) -> None:
    """Each record is delivered once, since no member fails."""
    from_the_beginning(broker.bootstrap_servers, "g")
    members = [start(broker.bootstrap_servers, "g", "implicit", max_poll_records=20) for _ in range(3)]
    until = time.monotonic() + PATIENCE
    while sum(bool(each.partitions) for each in broker.group("g").members) < 3:
        assert time.monotonic() < until, broker.group("g")
        for member in members:
            member.poll(0)
    produce(broker.bootstrap_servers, 0, 600)
    found: list[list[Got]] = [[], [], []]
    while sum(map(len, found)) < 600:
        assert time.monotonic() < until, [len(each) for each in found]
        for records, member in zip(found, members, strict=True):
            records += member.poll(0)
    for member in members:
        member.close()
    assert sorted(each.value for records in found for each in records) == sorted(f"v{number}" for number in range(600))
    assert {each.deliveries for records in found for each in records} == {1}
    assert all(found), "a member got no record"


@pytest.mark.java
@pytest.mark.deep
@pytest.mark.parametrize("lock_ms", [60_000])
def test_records_of_transactions_are_delivered_by_isolation_level(broker: TestBroker, start: Start) -> None:
    """Aborted records are delivered only to groups with read_uncommitted. Markers are never delivered."""
    from confluent_kafka import Producer

    for group in ("all", "committed"):
        from_the_beginning(broker.bootstrap_servers, group)
    configure(broker.bootstrap_servers, "committed", "share.isolation.level", "read_committed")
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "x"})
    producer.init_transactions(PATIENCE)
    for value in ("a", "b", "c", "d"):
        producer.begin_transaction()
        producer.produce("t", value.encode())
        producer.flush(PATIENCE)
        if value in "bd":
            producer.abort_transaction(PATIENCE)
        else:
            producer.commit_transaction(PATIENCE)
    for group, expected in (("all", "abcd"), ("committed", "ac")):
        member, values = start(broker.bootstrap_servers, group, "implicit"), ""
        while len(values) < len(expected):
            values += "".join(each.value for each in member.poll())
        assert values == expected and member.poll(0, 1000) == []
        member.close()


@pytest.mark.java
@pytest.mark.deep
def test_a_broker_that_is_killed_loses_no_record(tmp_path: Path, start: Start) -> None:
    """Records that are not acknowledged are delivered again. Acknowledged records are not."""
    broker = BrokerProcess(tmp_path / "data", {"group.share.record.lock.duration.ms": LOCK_MS}).start()
    try:
        from confluent_kafka.admin import AdminClient, NewTopic

        admin = AdminClient({"bootstrap.servers": broker.address})
        admin.create_topics([NewTopic("t", 1)])["t"].result(PATIENCE)
        from_the_beginning(broker.address, "g")
        produce(broker.address, 0, 300)
        members = [start(broker.address, "g", max_poll_records=25) for _ in range(2)]
        accepted: Counter[str] = Counter()
        until = time.monotonic() + 2 * PATIENCE
        kills = 0
        while len(accepted) < 300:
            assert time.monotonic() < until, len(accepted)
            for member in members:
                records = member.poll(0)
                member.acknowledge("ACCEPT", *records[1:])
                member.acknowledge("RELEASE", *records[:1] if len(records) > 1 else ())
                member.acknowledge("ACCEPT", *records[:1] if len(records) == 1 else ())
                if records and kills < 3 and len(accepted) > 60 * kills:
                    kills += 1
                    broker.kill()
                    broker.start()
                if records and member.commit() == {"t-0": ""}:
                    accepted.update(each.value for each in (records[1:] or records))
        assert kills == 3
        assert set(accepted) == {f"v{number}" for number in range(300)}
        assert max(accepted.values()) == 1, "an acknowledged record was delivered again"
    finally:
        broker.kill()


@pytest.mark.parametrize("lock_ms", [60_000])
def test_members_of_confluent_kafka_acknowledge_records(broker: TestBroker) -> None:
    confluent = pytest.importorskip("confluent_kafka", reason="needs: confluent-kafka")
    if not hasattr(confluent, "ShareConsumer"):
        pytest.skip("needs: confluent-kafka with a ShareConsumer")
    from_the_beginning(broker.bootstrap_servers, "g")
    broker.topic("t").append([(None, b"v%d" % number) for number in range(10)])

    def member() -> Any:
        made = confluent.ShareConsumer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "group.id": "g",
                "share.acknowledgement.mode": "explicit",
            }
        )
        made.subscribe(["t"])
        return made

    def poll(of: Any) -> list[Any]:
        until = time.monotonic() + PATIENCE
        while True:
            found = list(of.poll(timeout=0.5))
            if found:
                assert all(each.error() is None for each in found)
                return found
            assert time.monotonic() < until, "no record arrived"

    first = member()
    records = poll(first)
    assert [each.value() for each in records] == [b"v%d" % number for number in range(10)]
    kinds = confluent.AcknowledgeType if hasattr(confluent, "AcknowledgeType") else None
    accept, release, reject = (kinds.ACCEPT, kinds.RELEASE, kinds.REJECT) if kinds else (1, 2, 3)
    for number, each in enumerate(records):
        first.acknowledge(each, (accept, release, reject)[number % 3])
    first.commit_sync()
    again = poll(first)
    assert [each.offset() for each in again] == [1, 4, 7]
    for each in again:
        first.acknowledge(each, accept)
    first.commit_sync()
    first.close()
    broker.topic("t").append([(None, b"later")])
    second = member()
    records = poll(second)
    assert [each.offset() for each in records] == [10]
    second.acknowledge(records[0], accept)
    second.close()


def test_a_member_reads_from_several_brokers(tmp_path: Path) -> None:
    confluent = pytest.importorskip("confluent_kafka", reason="needs: confluent-kafka")
    if not hasattr(confluent, "ShareConsumer"):
        pytest.skip("needs: confluent-kafka with a ShareConsumer")
    with TestBroker(topics={"t": 6}, brokers=3) as broker:
        from_the_beginning(broker.bootstrap_servers, "g")
        for partition in range(6):
            broker.topic("t").append([(None, b"%d" % partition)], partition=partition)
        member = confluent.ShareConsumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g"})
        member.subscribe(["t"])
        values: list[bytes] = []
        until = time.monotonic() + PATIENCE
        while len(values) < 6:
            assert time.monotonic() < until, values
            values += [each.value() for each in member.poll(timeout=0.5)]
        member.close()
        assert sorted(values) == [b"%d" % partition for partition in range(6)]
