"""A real broker and klog alternate on one log.dir: each loads, serves and extends the directory that the other has left.

The broker is one node in combined KRaft mode, with aiokafka clients. A directory changes hands after a clean stop,
after SIGKILL of the broker and after SIGKILL of a klog writer.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

import klog
from klog.clock import SystemClock
from klog.log.directory import checkpoint
from tests.interop.broker import Broker
from tests.interop.clients import Pair, create_topics, produce, run
from tests.support.batches import marker, transactional
from tests.support.patience import PATIENCE

pytestmark = [pytest.mark.java, pytest.mark.deep, pytest.mark.timeout(3600)]

KEEP = {"retention.ms": "-1"}
COMPACTED = {"cleanup.policy": "compact", "min.compaction.lag.ms": "86400000", **KEEP}
TOPICS: dict[str, dict[str, str]] = {
    "plain": KEEP,
    "packed": {"compression.type": "zstd", **KEEP},
    "rolled": {"segment.bytes": "1048576", "index.interval.bytes": "512", **KEEP},
    "positions": COMPACTED,  # as __consumer_offsets: keys, tombstones, transactions
    "payments": KEEP,
}
INTERNAL = ["__cluster_metadata", "__consumer_offsets", "__transaction_state"]


# ---- clients ---------------------------------------------------------------------------------------------------------


async def transact(broker: Broker, topic: str, name: str, *rounds: tuple[Sequence[Pair], str]) -> None:
    """Run transactions in sequence, each ended as its second element says: commit, abort, or left open."""
    from aiokafka import AIOKafkaProducer

    producer = AIOKafkaProducer(bootstrap_servers=broker.address, transactional_id=name)
    await producer.start()
    left_open = False
    try:
        for pairs, end in rounds:
            await producer.begin_transaction()
            await asyncio.gather(*[await producer.send(topic, value, key=key) for key, value in pairs])
            left_open = end == "open"
            if end == "commit":
                await producer.commit_transaction()
            elif end == "abort":
                await producer.abort_transaction()
    finally:
        if not left_open:  # its stop() would abort the transaction that must stay open
            await producer.stop()
        else:
            await producer.client.close()
            producer._closed = True


async def consume(
    broker: Broker, topic: str, isolation: str = "read_uncommitted", partition: int = 0
) -> list[tuple[int, Pair]]:
    """(offset, (key, value)) of all records of a partition that a consumer of this isolation gets."""
    from aiokafka import AIOKafkaConsumer, TopicPartition

    consumer = AIOKafkaConsumer(bootstrap_servers=broker.address, isolation_level=isolation)
    await consumer.start()
    try:
        part = TopicPartition(topic, partition)
        consumer.assign([part])
        await consumer.seek_to_beginning(part)
        end = (await consumer.end_offsets([part]))[part]
        got = []
        while await consumer.position(part) < end:
            for records in (await consumer.getmany(timeout_ms=500)).values():
                got += [(record.offset, (record.key, record.value)) for record in records]
        return got
    finally:
        await consumer.stop()


async def consume_some(broker: Broker, topic: str, group: str, count: int) -> list[int]:
    """The next `count` offsets of a consumer group, committed."""
    from aiokafka import AIOKafkaConsumer

    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=broker.address,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    await consumer.start()
    try:
        offsets = [(await consumer.getone()).offset for _ in range(count)]
        await consumer.commit()
        return offsets
    finally:
        await consumer.stop()


# ---- comparisons -----------------------------------------------------------------------------------------------------


def pairs(name: str, count: int, value_bytes: int = 60) -> list[Pair]:
    return [(b"%s-%d" % (name.encode(), i % 13), (b"%d/" % i).ljust(value_bytes, b".")) for i in range(count)]


def stored(log: klog.Log, isolation: str = "log_end") -> list[tuple[int, Pair]]:
    return [(record.offset, (record.key, record.value)) for record in log.read(isolation=isolation)]  # type: ignore[arg-type]


def content(found: list[tuple[int, Pair]]) -> list[Pair]:
    return [pair for _, pair in found]


def serves_what_is_there(broker: Broker, there: dict[str, dict[str, list[tuple[int, Pair]]]]) -> None:
    for topic in TOPICS:
        assert run(consume(broker, topic)) == there[topic]["log_end"], topic
        assert run(consume(broker, topic, "read_committed")) == there[topic]["read_committed"], topic


def everything(logs: klog.LogManager) -> dict[str, dict[str, list[tuple[int, Pair]]]]:
    return {
        topic: {isolation: stored(logs.log(topic), isolation) for isolation in ("log_end", "read_committed")}
        for topic in TOPICS
    }


def assert_sound(directory: Path) -> None:
    assert [str(problem) for problem in klog.verify(directory).problems] == []


# ---- the tests -------------------------------------------------------------------------------------------------------


def first_life(broker: Broker) -> None:
    with broker:
        run(create_topics(broker, TOPICS))
        run(produce(broker, "plain", pairs("first", 300)))
        run(produce(broker, "packed", pairs("first", 300), compression_type="lz4"))
        run(produce(broker, "rolled", pairs("first", 300, 9000)))
        run(transact(broker, "payments", "p", (pairs("paid", 20), "commit"), (pairs("void", 20), "abort")))
        run(transact(broker, "positions", "q", (pairs("at", 20), "commit"), (pairs("no", 5), "abort")))
        assert run(consume_some(broker, "plain", "readers", 100)) == list(range(100))


def test_klog_and_the_broker_alternate_on_one_directory(broker: Broker) -> None:
    first_life(broker)
    data = broker.log_dir
    stop_mark = Path(checkpoint.clean_shutdown_path(str(data)))
    epoch = stop_mark.read_bytes()

    # A reader alone: all of the broker's partitions, including its internal topics.
    with klog.open(data, read_only=True) as logs:
        assert logs.clean_shutdown and sorted(logs.topics()) == sorted([*TOPICS, *INTERNAL])
        assert all(logs.log(topic).log_end_offset > 0 for topic in logs.topics())
        assert all(list(logs.log(topic).read(include_control=True)) for topic in logs.topics())
        assert content(stored(logs.log("plain"))) == pairs("first", 300)
        assert content(stored(logs.log("packed"))) == pairs("first", 300)
        assert content(stored(logs.log("rolled"))) == pairs("first", 300, 9000)
        assert len(logs.log("rolled").segments) > 2
        assert content(stored(logs.log("payments"), "read_committed")) == pairs("paid", 20)
        assert len(stored(logs.log("payments"))) == 40 and len(logs.log("payments").aborted_transactions()) == 1
        assert content(stored(logs.log("positions"), "read_committed")) == pairs("at", 20)
    assert stop_mark.read_bytes() == epoch
    assert_sound(data)

    # klog continues under the broker's topic ids.
    now = SystemClock().wall_ms()
    with klog.open(data) as logs:
        ids = {topic: logs.log(topic).topic_id for topic in TOPICS}
        for topic, config in TOPICS.items():
            logs.alter_topic(topic, config)
        ends = {topic: logs.log(topic).log_end_offset for topic in TOPICS}
        for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
            logs.append("plain", pairs(codec, 200), compression=codec)
        logs.log("plain").roll()
        logs.append("plain", [(None, b"no key"), (b"no value", None), klog.Record(b"h", b"", headers=[("a", b"1")])])
        logs.append("packed", pairs("klog", 500))
        logs.append("rolled", pairs("klog", 400, 9000))
        logs.append("positions", [*pairs("klog", 100), (b"klog-1", None)])
        logs.append("payments", pairs("klog", 100))
        for topic in ("payments", "positions"):
            # A producer that only klog has seen: two transactions, one over two segments.
            log = logs.log(topic)
            log.append_batches(transactional(9_000_000, 3, 0, 4, at=now))
            log.append_batches(transactional(9_000_000, 3, 4, 2, at=now))
            log.append_batches(marker(9_000_000, 3, "commit", at=now), origin="coordinator")
            log.append_batches(transactional(9_000_000, 3, 6, 3, at=now))
            log.roll()
            log.append_batches(transactional(9_000_000, 3, 9, 3, at=now))
            log.append_batches(marker(9_000_000, 3, "abort", at=now), origin="coordinator")
        reader = logs.reader("plain", "billing")  # klog's own file, which the broker must ignore
        assert len(list(reader)) == logs.log("plain").log_end_offset
        reader.commit()
        there = everything(logs)
        assert len(there["payments"]["log_end"]) - len(there["payments"]["read_committed"]) == 20 + 6
    assert all(there[topic]["log_end"][-1][0] >= ends[topic] for topic in TOPICS)
    assert stop_mark.read_bytes() == epoch, "a clean-shutdown file without the broker's epoch means an unclean election"
    assert_sound(data)

    # The broker starts on that, serves all of it, and appends.
    with broker:
        serves_what_is_there(broker, there)
        assert run(consume_some(broker, "plain", "readers", 250)) == list(range(100, 350))
        run(produce(broker, "plain", pairs("second", 100), compression_type="gzip"))
        run(produce(broker, "packed", pairs("second", 100)))
        run(produce(broker, "rolled", pairs("second", 200, 9000), enable_idempotence=True))
        run(transact(broker, "payments", "p", (pairs("later", 10), "abort"), (pairs("paid2", 10), "commit")))
        run(transact(broker, "positions", "q", (pairs("at2", 10), "commit")))
        after = {topic: run(consume(broker, topic)) for topic in TOPICS}
        committed = {topic: run(consume(broker, topic, "read_committed")) for topic in TOPICS}
    assert broker.complaints() == []
    assert "Skipping recovery of 7 logs" in broker.log

    # And klog again.
    with klog.open(data) as logs:
        assert logs.clean_shutdown
        for topic in TOPICS:
            log = logs.log(topic)
            assert log.recovery.reason is None or log.recovery.bytes_truncated == 0
            assert log.topic_id == ids[topic]
            assert stored(log) == after[topic], topic
            assert stored(log, "read_committed") == committed[topic], topic
            assert after[topic][: len(there[topic]["log_end"])] == there[topic]["log_end"]
        assert content(committed["payments"])[-10:] == pairs("paid2", 10)
        assert logs.readers() == {"billing": {"plain": {0: there["plain"]["log_end"][-1][0] + 1}}}
        assert [record.value for record in logs.reader("plain", "billing")] == [v for _, v in pairs("second", 100)]
    assert_sound(data)


def test_klog_recovers_the_log_of_a_killed_broker(broker: Broker) -> None:
    first_life(broker)
    broker.start()
    run(produce(broker, "plain", pairs("late", 500)))
    run(produce(broker, "rolled", pairs("late", 300, 9000)))
    run(transact(broker, "payments", "p", (pairs("paid2", 10), "commit"), (pairs("never", 10), "open")))
    seen = {topic: run(consume(broker, topic)) for topic in TOPICS}
    committed = {topic: run(consume(broker, topic, "read_committed")) for topic in TOPICS}
    broker.kill()

    with klog.open(broker.log_dir) as logs:
        assert not logs.clean_shutdown
        there = everything(logs)
        for topic in TOPICS:
            assert there[topic] == {"log_end": seen[topic], "read_committed": committed[topic]}, topic
        # Records after the start of an open transaction are not committed yet.
        logs.append("payments", pairs("behind", 5))
        logs.append("plain", pairs("klog", 50), compression="lz4")
        assert content(stored(logs.log("payments"), "read_committed"))[-10:] == pairs("paid2", 10)
        for topic in INTERNAL:
            logs.log(topic)  # recovered too, so that all logs stop cleanly
        there = everything(logs)
    assert_sound(broker.log_dir)

    broker.start()
    for topic in TOPICS:
        assert run(consume(broker, topic)) == there[topic]["log_end"], topic
    # The same transactional id initializes again, which aborts its open transaction; klog's records become visible.
    run(transact(broker, "payments", "p", (pairs("paid3", 3), "commit")))
    final = content(run(consume(broker, "payments", "read_committed")))
    broker.stop()
    assert [line for line in broker.complaints() if "unclean election" not in line and "UNCLEAN" not in line] == []
    assert final == [*pairs("paid", 20), *pairs("paid2", 10), *pairs("behind", 5), *pairs("paid3", 3)]
    with klog.open(broker.log_dir, read_only=True) as logs:
        assert content(stored(logs.log("payments"), "read_committed")) == final


KILLED_WRITER = """
import sys, klog
logs = klog.open(sys.argv[1])
number = 0
while True:
    info = logs.log("plain").append([(b"k", b"%d" % (number + i)) for i in range(7)], compression="lz4")
    logs.log("rolled").append([(b"k", b"x" * 3000)] * 7)
    number += 7
    print(info.last_offset, flush=True)
"""


def test_the_broker_recovers_the_log_of_a_killed_klog(broker: Broker) -> None:
    first_life(broker)
    writer = subprocess.Popen(
        [sys.executable, "-c", KILLED_WRITER, str(broker.log_dir)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert writer.stdout is not None
        acknowledged = max(int(writer.stdout.readline()) for _ in range(150))
    finally:
        os.kill(writer.pid, signal.SIGKILL)
        writer.wait(PATIENCE)
        acknowledged = max([acknowledged, *(int(line) for line in writer.stdout.read().split("\n")[:-1])])
        writer.stdout.close()
    assert not Path(checkpoint.clean_shutdown_path(str(broker.log_dir))).exists()

    with broker:
        plain, rolled = run(consume(broker, "plain")), run(consume(broker, "rolled"))
    numbers = [int(value) for offset, (_, value) in plain[300:] if value]
    assert plain[-1][0] >= acknowledged and numbers == list(range(len(numbers)))
    assert len(rolled) >= 300 + (len(numbers) // 7 - 1) * 7
    with klog.open(broker.log_dir, read_only=True) as logs:
        assert stored(logs.log("plain")) == plain and stored(logs.log("rolled")) == rolled
    assert_sound(broker.log_dir)
