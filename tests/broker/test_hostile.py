"""Attacks of hostile peers on a broker in a process of its own. Each attack is refused or served, uses a bounded amount of
memory and logs no error. Other clients are served during and after it."""

from __future__ import annotations

import contextlib
import random
import resource
import select
import socket
import struct
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.broker import Broker
from klog.protocol import ApiKey, ErrorCode, encode_request, messages
from klog.record import encode
from tests.support.hostile import (
    HANG_SECONDS,
    NAMES,
    Victim,
    answered,
    fetch,
    mutated,
    peak_kib,
    produce,
    request,
    victim,
)
from tests.support.patience import until
from tests.support.wire_client import WireClient

VERSIONS = [(api, version) for api in ApiKey for version in range(api.low, api.high + 1)]


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Victim]:
    with victim(
        tmp_path_factory.mktemp("hostile"),
        group_max_size=20,
        group_consumer_max_size=20,
        max_incremental_fetch_session_cache_slots=100,
    ) as found:
        yield found


@pytest.fixture
def attacked(target: Victim) -> Iterator[Victim]:
    """The broker of the module, with the topics that attacks name; checked after the test."""
    target.offer_topics()
    yield target
    target.check()


def ping() -> bytes:
    return b"".join(encode_request(ApiKey.API_VERSIONS, 0, 8, "attacker", messages.ApiVersions.Request()))


def attack(found: Victim, frames: list[bytes]) -> None:
    """Send these frames and wait 20 ms for a response. There may be none, and the broker may close the connection."""
    with found.connect() as sock, contextlib.suppress(ConnectionError):
        sock.sendall(b"".join(frames))
        answered(sock, 0.02)


@pytest.mark.parametrize("api", list(ApiKey), ids=lambda api: api.message)
def test_valid_encodings_of_every_api(attacked: Victim, api: ApiKey) -> None:
    """Sends values at the limits of their types, in every version."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    for version in range(api.low, api.high + 1):
        attack(attacked, [request(api, version, chance, attacked.topic_ids) for _ in range(4)])


@given(case=st.sampled_from(VERSIONS), seed=st.integers(0, 2**32 - 1), number=st.integers(1, 5))
def test_mutated_requests(target: Victim, case: Any, seed: int, number: int) -> None:
    (api, version), chance = case, random.Random(seed)
    attack(target, [mutated(request(api, version, chance, target.topic_ids), chance) for _ in range(number)])
    if seed % 16 == 0:
        target.check()
        target.offer_topics()


def test_the_broker_serves_after_the_mutated_requests(attacked: Victim) -> None:
    attacked.check()


def test_log_lines_about_peers_are_limited(attacked: Victim) -> None:
    before, began = attacked.broker.log.read_text().count("corrupt_request"), time.monotonic()
    for _ in range(300):
        attack(attacked, [struct.pack(">ihhi", 10, ApiKey.METADATA, 9, 1) + b"\x7f\xff"])
    after = attacked.broker.log.read_text().count("corrupt_request")
    assert after - before <= time.monotonic() - began + 2


def test_wrong_counts_allocate_nothing(attacked: Victim) -> None:
    """Sends a request of each API many times, each time with the count 2^31 - 1 at another position: as the first
    versions have it, and as the last ones."""
    chance = random.Random(5)
    for api in ApiKey:
        for version, count in ((api.low, b"\x7f\xff\xff\xff"), (api.high, b"\xff\xff\xff\xff\x07")):
            frame = request(api, version, chance, attacked.topic_ids)
            for at in range(14, min(len(frame), 100), 7):
                damaged = frame[4:at] + count + frame[at + len(count) :]
                attack_quickly(attacked, struct.pack(">i", len(damaged)) + damaged)


def attack_quickly(found: Victim, data: bytes) -> None:
    with found.connect() as sock, contextlib.suppress(ConnectionError):
        sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("topic-1", "a")], ids=lambda name: name[:20])
def test_names_of_topics(attacked: Victim, name: str) -> None:
    with attacked.client() as client:
        Topic = messages.CreateTopics.Request.Topic
        created = client.call(
            ApiKey.CREATE_TOPICS, 5, topics=[Topic(name=name, num_partitions=1, replication_factor=1)], timeout_ms=1000
        )
        code = created.topics[0].error_code
        if name == "topic-0-delete":
            assert code in (0, ErrorCode.TOPIC_ALREADY_EXISTS)  # Kafka allows it, too
        elif not name.startswith("__"):
            assert code == ErrorCode.INVALID_TOPIC_EXCEPTION
        error, _ = produce(client, name, 0, encode([(b"k", b"v")]))
        assert name == "topic-0-delete" or error in (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.INVALID_TOPIC_EXCEPTION,
        )
        found = client.call(ApiKey.METADATA, 9, topics=[messages.Metadata.Request.Topic(name=name)],
                            allow_auto_topic_creation=True)  # fmt: skip
        assert len(found.topics) == 1
    outside = attacked.broker.directory.parent
    assert sorted(each.name for each in outside.iterdir()) == ["data", "data.stderr"]


@pytest.mark.parametrize("partition", [-1, 2, 2**31 - 1, -(2**31)])
def test_numbers_of_partitions(attacked: Victim, partition: int) -> None:
    with attacked.client() as client:
        code = produce(client, "good", partition, encode([(b"k", b"v")]))[0]
        assert code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert fetch(client, "good", partition, 0) == []
        Request = messages.OffsetCommit.Request
        asked = Request.Partition(partition_index=partition, committed_offset=1, committed_metadata="")
        found = client.call(
            ApiKey.OFFSET_COMMIT, 8, group_id="numbers", topics=[Request.Topic(name="good", partitions=[asked])]
        )
        assert found.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("partitions", [0, -2, 2**31 - 1, -(2**31)])
def test_topics_with_too_many_partitions(attacked: Victim, partitions: int) -> None:
    Topic = messages.CreateTopics.Request.Topic
    with attacked.client() as client:
        created = client.call(
            ApiKey.CREATE_TOPICS, 5, topics=[Topic(name="many", num_partitions=partitions, replication_factor=1)],
            timeout_ms=1000,
        )  # fmt: skip
    assert created.topics[0].error_code in (ErrorCode.INVALID_PARTITIONS, ErrorCode.POLICY_VIOLATION)


REPEATED: dict[str, tuple[ApiKey, int, Any, int]] = {
    "Fetch": (ApiKey.FETCH, 12, lambda m, n: m.Fetch.Request(session_epoch=-1, topics=[m.Fetch.Request.Topic(
        topic="a", partitions=[m.Fetch.Request.Partition(partition=0, partition_max_bytes=1)] * n)] * 2), 20_000),
    "Metadata": (ApiKey.METADATA, 0, lambda m, n: m.Metadata.Request(
        topics=[m.Metadata.Request.Topic(name="a")] * n), 300_000),
    "DescribeConfigs": (ApiKey.DESCRIBE_CONFIGS, 4, lambda m, n: m.DescribeConfigs.Request(
        resources=[m.DescribeConfigs.Request.Resource(resource_type=2, resource_name="a", configuration_keys=None)] * n),
        100_000),
    "DescribeGroups": (ApiKey.DESCRIBE_GROUPS, 5, lambda m, n: m.DescribeGroups.Request(groups=["g"] * n), 300_000),
    "ConsumerGroupDescribe": (ApiKey.CONSUMER_GROUP_DESCRIBE, 1, lambda m, n: m.ConsumerGroupDescribe.Request(
        group_ids=["g"] * n), 300_000),
    "OffsetFetch": (ApiKey.OFFSET_FETCH, 7, lambda m, n: m.OffsetFetch.Request(group_id="g", topics=[
        m.OffsetFetch.Request.Topic(name="a", partition_indexes=[0] * n)] * 2), 100_000),
    "OffsetFetch of groups": (ApiKey.OFFSET_FETCH, 8, lambda m, n: m.OffsetFetch.Request(groups=[
        m.OffsetFetch.Request.Group(group_id="g", topics=None)] * n), 100_000),
    "DescribeProducers": (ApiKey.DESCRIBE_PRODUCERS, 0, lambda m, n: m.DescribeProducers.Request(topics=[
        m.DescribeProducers.Request.Topic(name="a", partition_indexes=[0] * n)] * 2), 100_000),
    "DescribeTransactions": (ApiKey.DESCRIBE_TRANSACTIONS, 0, lambda m, n: m.DescribeTransactions.Request(
        transactional_ids=["t"] * n), 300_000),
    "ShareGroupDescribe": (ApiKey.SHARE_GROUP_DESCRIBE, 1, lambda m, n: m.ShareGroupDescribe.Request(
        group_ids=["g"] * n), 300_000),
    "DescribeShareGroupOffsets": (ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, 1, lambda m, n: m.DescribeShareGroupOffsets.Request(
        groups=[m.DescribeShareGroupOffsets.Request.Group(group_id="g", topics=None)] * n), 100_000),
    "AlterShareGroupOffsets": (ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0, lambda m, n: m.AlterShareGroupOffsets.Request(
        group_id="s", topics=[m.AlterShareGroupOffsets.Request.Topic(topic_name="a", partitions=[
            m.AlterShareGroupOffsets.Request.Partition(partition_index=0, start_offset=1)] * n)]), 30_000),
    "DescribeShareGroupOffsets of partitions": (ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, 1, lambda m, n:
        m.DescribeShareGroupOffsets.Request(groups=[m.DescribeShareGroupOffsets.Request.Group(group_id="s", topics=[
            m.DescribeShareGroupOffsets.Request.Topic(topic_name="a", partitions=[0] * n)] * 2)]), 100_000),
    "DescribeTopicPartitions": (ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, lambda m, n: m.DescribeTopicPartitions.Request(
        topics=[m.DescribeTopicPartitions.Request.Topic(name="a")] * n), 200_000),
}  # fmt: skip


@pytest.mark.parametrize("case", REPEATED)
def test_repetitions_in_a_request_get_one_result(attacked: Victim, case: str) -> None:
    """Otherwise a few bytes of a request would ask for hundreds of bytes, and one frame for more memory than the machine
    has."""
    api, version, make, number = REPEATED[case]
    frame = b"".join(encode_request(api, version, 1, "repeats", make(messages, number)))
    assert 300_000 < len(frame) < 2 << 20
    grown, size = peak_kib(attacked, frame)
    assert size < 10_000
    assert grown < 100 << 10


@pytest.mark.deep
def test_a_large_request_does_not_stop_other_clients(attacked: Victim) -> None:
    Topic = messages.Metadata.Request.Topic
    topics = [Topic(name=f"unknown-{number}") for number in range(60_000)]
    large = b"".join(encode_request(ApiKey.METADATA, 5, 1, "large", messages.Metadata.Request(topics=topics)))
    with attacked.connect() as sock, attacked.connect() as other:
        sock.sendall(large)
        served, response = 0, None
        while response is None:
            other.sendall(ping())
            assert answered(other, 30)
            served += 1
            response = answered(sock, 0.001)
        assert response
        assert served > 3


# ---- time, connections and memory ------------------------------------------------------------------------------------


@pytest.mark.deep
def test_slow_and_half_open_peers_are_closed(tmp_path: Path) -> None:
    with victim(tmp_path, klog_frame_ms=500, connections_max_idle_ms=1000) as found:
        slow, half, silent, large = (found.connect() for _ in range(4))
        half.sendall(ping()[:9])
        large.sendall(struct.pack(">i", 16 << 20) + bytes(1000))
        slow.sendall(struct.pack(">i", 9000))
        slow.settimeout(0.05)
        closed, left = False, 9000
        while not closed and left > 1:  # never the whole frame
            try:
                slow.sendall(b"\0")
                left -= 1
                closed = slow.recv(1) == b""
            except TimeoutError:
                pass
            except ConnectionError:
                closed = True
            found.behave()
        assert closed
        for sock in (half, silent, large):
            assert answered(sock, 20) is False
            sock.close()
        slow.close()


def connections(wanted: int) -> int:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + 500
    if hard != resource.RLIM_INFINITY and hard < needed:
        pytest.skip(f"needs: RLIMIT_NOFILE of {needed}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, needed), hard))
    return wanted


@pytest.mark.deep
@pytest.mark.parametrize("number", [2000, 10_000])
def test_idle_connections(tmp_path: Path, number: int) -> None:
    number = connections(number)
    with victim(tmp_path, rss_growth_max_mib=20 + number // 100) as found, contextlib.ExitStack() as stack:
        socks = []
        for at in range(number):
            socks.append(stack.enter_context(found.connect()))
            if at % 200 == 0:
                found.behave()
        found.check()
        for sock in socks[::97]:
            sock.sendall(ping())
            assert answered(sock, 20)


@pytest.mark.deep
def test_pipelined_floods_of_peers_that_do_not_read(tmp_path: Path) -> None:
    """The broker fills the socket buffers of such a peer, and then reads no more of its requests."""
    with victim(tmp_path, rss_growth_max_mib=100) as found, contextlib.ExitStack() as stack:
        Request = messages.Metadata.Request
        metadata = b"".join(encode_request(ApiKey.METADATA, 9, 1, "flood", Request(topics=None)))
        Fetch = messages.Fetch.Request
        wait = Fetch(max_wait_ms=2**31 - 1, min_bytes=2**31 - 1, max_bytes=2**31 - 1, topics=[
            Fetch.Topic(topic="a", partitions=[Fetch.Partition(partition=0, partition_max_bytes=2**31 - 1)])])  # fmt: skip
        waiting = b"".join(encode_request(ApiKey.FETCH, 12, 1, "flood", wait))
        sent = 0
        for at in range(30):
            sock = stack.enter_context(found.connect())
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.settimeout(0.05)
            data = (ping(), metadata, waiting)[at % 3] * 10_000
            with contextlib.suppress(TimeoutError, ConnectionError):
                while data:
                    size = sock.send(data)
                    data, sent = data[size:], sent + size
            found.behave()
        assert sent > 100_000


@pytest.mark.deep
def test_the_queue_and_the_pool_of_requests_run_out(tmp_path: Path) -> None:
    """Many peers send whole and half frames at the same time. The frames wait for memory, and good clients are served."""
    with victim(
        tmp_path, rss_growth_max_mib=150, queued_max_request_bytes=4 << 20, queued_max_requests=3, num_io_threads=2,
        klog_frame_ms=1000,
    ) as found, contextlib.ExitStack() as stack:  # fmt: skip
        chance = random.Random(8)
        Request = messages.Produce.Request
        topic = Request.Topic(
            name="topic-1",
            partition_data=[Request.Partition(index=0, records=encode([(b"k", chance.randbytes(900_000))]))],
        )
        produced = b"".join(
            encode_request(ApiKey.PRODUCE, 9, 1, "pool", Request(acks=1, timeout_ms=1000, topic_data=[topic]))
        )
        ids = b"".join(
            encode_request(ApiKey.INIT_PRODUCER_ID, 4, 1, "pool", messages.InitProducerId.Request(
                transactional_id=None, transaction_timeout_ms=1000))) * 300  # fmt: skip
        half = struct.pack(">i", 8 << 20) + bytes(3 << 20)

        def send(data: bytes) -> None:
            sock = stack.enter_context(found.connect())
            with contextlib.suppress(OSError):
                sock.sendall(data)

        threads = [threading.Thread(target=send, args=(each,)) for each in [produced * 2, ids, half] * 8]
        for thread in threads:
            thread.start()
        for _ in range(5):
            found.behave()
        for thread in threads:
            thread.join()


def test_requests_that_wait_do_not_keep_others_from_being_read(tmp_path: Path) -> None:
    """The second member waits for the first one, which may take as long as it likes."""
    Request = messages.JoinGroup.Request
    with (
        Broker(tmp_path, listeners=["127.0.0.1:0"], config={"queued.max.request.bytes": 20_000}) as broker,
        WireClient(broker.bootstrap_servers) as one,
        WireClient(broker.bootstrap_servers) as other,
        WireClient(broker.bootstrap_servers) as good,
    ):

        def asks(client: WireClient, metadata: bytes) -> None:
            protocols = [Request.Protocol(name="range", metadata=metadata)]
            asked = Request(
                group_id="g", member_id="", protocol_type="consumer", protocols=protocols,
                session_timeout_ms=1_800_000, rebalance_timeout_ms=2**31 - 1,
            )  # fmt: skip
            client.send(ApiKey.JOIN_GROUP, 3, asked)

        asks(one, b"small")
        assert one.receive(ApiKey.JOIN_GROUP, 3).error_code == 0
        asks(other, bytes(30_000))
        until(lambda: broker.group("g").state == "PreparingRebalance")
        assert good.call(ApiKey.METADATA, 12, topics=[]).brokers
        assert broker.metrics()["MemoryPoolUsed"] == 0


# ---- what the broker stores about its clients ------------------------------------------------------------------------


@pytest.mark.deep
def test_a_flood_of_fetch_sessions(attacked: Victim) -> None:
    Request = messages.Fetch.Request
    partitions = [Request.Partition(partition=each, partition_max_bytes=1) for each in range(2000)]
    asked = Request(
        max_wait_ms=0, session_id=0, session_epoch=0, topics=[Request.Topic(topic="a", partitions=partitions)]
    )
    numbers = []
    with attacked.client("flood") as client:
        for _ in range(150):
            client.send(ApiKey.FETCH, 12, asked)
            numbers.append(client.receive(ApiKey.FETCH, 12).session_id)
    assert numbers.count(0) >= 50


def init_producer(client: WireClient) -> Any:
    return client.call(ApiKey.INIT_PRODUCER_ID, 4, transactional_id=None, transaction_timeout_ms=60_000)


@pytest.mark.deep
def test_a_flood_of_producer_ids(attacked: Victim) -> None:
    """An id costs the broker no memory. The state of a producer begins with a batch, which first takes space in a log."""
    with attacked.client("flood") as client:
        assert len({init_producer(client).producer_id for _ in range(5000)}) == 5000


@pytest.mark.deep
def test_a_flood_of_producers(tmp_path: Path) -> None:
    with victim(tmp_path, rss_growth_max_mib=64) as found, found.client("flood") as client:
        for first in range(0, 10_000, 100):
            for number in range(first, first + 100):
                batch = encode([(None, b"")], producer_id=number, producer_epoch=0, base_sequence=0)
                assert produce(client, "a", 0, batch)[0] == 0
            found.behave()


def join(client: WireClient, group: str, *, version: int = 3, member: str = "", metadata: bytes = b"") -> int:
    Request = messages.JoinGroup.Request
    return client.send(
        ApiKey.JOIN_GROUP,
        version,
        Request(
            group_id=group,
            session_timeout_ms=6000,
            rebalance_timeout_ms=60_000,
            member_id=member,
            protocol_type="consumer",
            protocols=[Request.Protocol(name="p", metadata=metadata)],
        ),
    )


def test_a_group_is_never_larger_than_its_limit(attacked: Victim) -> None:
    codes = Counter[int]()
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(attacked.client(f"member {each}")) for each in range(60)]
        for client in clients:
            join(client, "full")
        waiting = {client.socket: client for client in clients}
        while codes[ErrorCode.GROUP_MAX_SIZE_REACHED] < 40:
            readable, _, _ = select.select([*waiting], [], [], HANG_SECONDS)
            assert readable, codes
            for one in readable:
                codes[waiting.pop(one).receive(ApiKey.JOIN_GROUP, 3).error_code] += 1
        assert codes[ErrorCode.NONE] <= 20
        attacked.behave()


@pytest.mark.deep
def test_a_flood_of_members_that_only_ask_for_their_id(tmp_path: Path) -> None:
    with victim(tmp_path, rss_growth_max_mib=64) as found, found.client("x" * 20_000) as client:
        for _ in range(1000):
            join(client, "pending", version=4)
            assert client.receive(ApiKey.JOIN_GROUP, 4).error_code == ErrorCode.MEMBER_ID_REQUIRED


@pytest.mark.deep
def test_a_flood_of_groups_and_of_their_offsets(tmp_path: Path) -> None:
    Request = messages.OffsetCommit.Request
    partition = Request.Partition(partition_index=0, committed_offset=1, committed_metadata="x" * 4096)
    with victim(tmp_path, rss_growth_max_mib=128) as found, found.client("flood") as client:
        for number in range(3000):
            committed = client.call(ApiKey.OFFSET_COMMIT, 8, group_id=f"group {number}",
                                    topics=[Request.Topic(name="a", partitions=[partition])])  # fmt: skip
            assert committed.topics[0].partitions[0].error_code == 0
        partition.committed_metadata = "x" * 4097
        committed = client.call(ApiKey.OFFSET_COMMIT, 8, group_id="too large",
                                topics=[Request.Topic(name="a", partitions=[partition])])  # fmt: skip
        assert committed.topics[0].partitions[0].error_code == ErrorCode.OFFSET_METADATA_TOO_LARGE


@pytest.mark.deep
def test_members_with_large_metadata(tmp_path: Path) -> None:
    """The metadata of a member is kept in memory, written to a log and sent to the leader of the group. If it is too
    large, the requests of the group fail, and the broker keeps running."""
    with victim(tmp_path, rss_growth_max_mib=400) as found:
        codes = []
        for number in range(6):
            with found.client(f"large {number}") as client:
                join(client, f"large {number}", metadata=bytes(8 << 20))
                joined = client.receive(ApiKey.JOIN_GROUP, 3)
                Given = messages.SyncGroup.Request.Assignment
                synced = client.call(
                    ApiKey.SYNC_GROUP, 3, group_id=f"large {number}", generation_id=joined.generation_id,
                    member_id=joined.member_id, assignments=[Given(member_id=joined.member_id, assignment=b"x")],
                )  # fmt: skip
                codes.append(synced.error_code)
            found.behave()
        assert set(codes) <= {0, ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.GROUP_MAX_SIZE_REACHED}


@pytest.mark.deep
def test_a_flood_of_members_of_consumer_groups(attacked: Victim) -> None:
    codes = Counter[int]()
    with attacked.client("flood") as client:
        for _ in range(100):
            found = client.call(
                ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, group_id="consumers", member_id=str(uuid.uuid4()), member_epoch=0,
                rebalance_timeout_ms=1000, subscribed_topic_names=["a"], topic_partitions=[],
            )  # fmt: skip
            codes[found.error_code] += 1
    assert codes == {0: 20, ErrorCode.GROUP_MAX_SIZE_REACHED: 80}


@pytest.mark.parametrize("pattern", ["(" * 1000, "a{1000}{1000}", "(a*)*b" * 20, "[", "\\", "(?P<x", "a" * 30_000])
def test_patterns_of_topics(attacked: Victim, pattern: str) -> None:
    with attacked.client("flood") as client:
        found = client.call(
            ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, group_id="patterns", member_id=str(uuid.uuid4()), member_epoch=0,
            rebalance_timeout_ms=1000, subscribed_topic_regex=pattern, topic_partitions=[],
        )  # fmt: skip
        assert found.error_code in (0, ErrorCode.INVALID_REGULAR_EXPRESSION, ErrorCode.GROUP_MAX_SIZE_REACHED)
