"""Two brokers over the loopback: klog's beside Kafka's, in processor seconds of the broker's process.

One blocking client sends both the same bytes; broker_peers.py has the brokers and defines "processor seconds". Kafka is
warmed up with the same requests. Each contest first checks what was written and read: offsets, counts, and a checksum
of the values.

    produce 16KiB, 1MiB    Produce, acks=1, one batch of that size in each, five in flight, values of 1 KiB
    fetch 64KiB, 1MiB      Fetch of so many bytes of batches of 16 KiB, one in flight
    request                Produce, acks=1, one record of 100 bytes, one in flight
    session 1, 1000        a session with so many partitions: a record for one of them, then the fetch that gets it
    session idle           a fetch of a session with 1,000 partitions, without anything new
    heartbeat, commit      Heartbeat and OffsetCommit of a member of a group, one in flight

With one request in flight, client and broker wake each other for each request. If they sleep on two processors, most of
the broker's time is the kernel's, which wakes the other processor. "one processor" has both on the same one.
"""

from __future__ import annotations

import os
import random
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

from bench.broker_peers import (
    FETCH_VERSION,
    PRODUCE_VERSION,
    Broker,
    Client,
    KafkaBroker,
    KlogBroker,
    cost,
    fetch_frame,
    produce_frame,
)
from bench.contest import Contest, Contestant, Factory
from klog import record
from klog.protocol import ApiKey, encode_request, messages

_WARM_UP_SECONDS, _WARM_UP_AT_MOST = 15.0, 60.0  # of processor time; of time
_IN_FLIGHT = 5  # max.in.flight.requests.per.connection
_T = 1_700_000_000_000
Work = Callable[[], object]


def batch(records: int, value_bytes: int) -> bytes:
    """One batch of random values."""
    random_bytes = random.Random(records).randbytes
    return record.encode([(None, random_bytes(value_bytes), _T) for _ in range(records)])


def _checksum(values: list[bytes]) -> int:
    found = 0
    for value in values:
        found = zlib.crc32(value, found)
    return found


def _values(batches: bytes) -> list[bytes]:
    return [each.value or b"" for each in record.iter_records(batches)]


class Exchange:
    """Sends the same request again and again. Each response must have the same size."""

    def __init__(
        self,
        client: Client,
        frame: bytes,
        api: ApiKey,
        version: int,
        count: int,
        in_flight: int,
        check: Callable[[Any], None],
    ) -> None:
        self._client = client
        self._frame = frame
        self._count = count
        self._in_flight = in_flight
        self._size, response = client.response_size(frame, api, version)
        check(response)

    def __call__(self) -> None:
        self._client.exchange(self._frame, self._count, self._size, self._in_flight)


def _produce(records: int, value_bytes: int, in_flight: int) -> Callable[[Client, int], Work]:
    def prepare(client: Client, count: int) -> Work:
        made = batch(records, value_bytes)
        topic_id = client.create_topic("t")
        work = Exchange(
            client,
            produce_frame(topic_id, made),
            ApiKey.PRODUCE,
            PRODUCE_VERSION,
            count,
            in_flight,
            lambda response: _appended(response, 0),
        )
        work()
        assert client.end_offsets("t") == [(count + 1) * records]
        last = client.response_size(fetch_frame(topic_id, {0: count * records}, 1 << 21), ApiKey.FETCH, FETCH_VERSION)[
            1
        ]
        stored = _values(bytes(last.responses[0].partitions[0].records))
        assert _checksum(stored) == _checksum(_values(made)), "other values than were sent"
        return work

    return prepare


def _appended(response: Any, offset: int) -> None:
    found = response.responses[0].partition_responses[0]
    assert (found.error_code, found.base_offset) == (0, offset), found


def _fetch(size: int) -> Callable[[Client, int], Work]:
    def prepare(client: Client, count: int) -> Work:
        made = batch(16, 1000)
        topic_id = client.create_topic("t")
        batches = size // len(made)
        frame = produce_frame(topic_id, made)
        for number in range(batches):
            _appended(client.response_size(frame, ApiKey.PRODUCE, PRODUCE_VERSION)[1], number * 16)

        def check(response: Any) -> None:
            found = bytes(response.responses[0].partitions[0].records)
            assert len(found) == batches * len(made)
            assert _checksum(_values(found)) == _checksum(_values(made) * batches)

        asked = fetch_frame(topic_id, {0: 0}, size)
        return Exchange(client, asked, ApiKey.FETCH, FETCH_VERSION, count, 1, check)

    return prepare


class Session:
    """A consumer that polls `partitions` partitions. step() appends a record to one of them, and polls it."""

    def __init__(self, client: Client, partitions: int) -> None:
        self._client = client
        self._topic_id = client.create_topic("t", partitions)
        self._record = batch(1, 100)
        self._offset = 0
        asked = fetch_frame(self._topic_id, dict.fromkeys(range(partitions), 0), 1 << 20, session=(0, 0))
        created = client.response_size(asked, ApiKey.FETCH, FETCH_VERSION)[1]
        assert created.session_id, "no session"
        self._number, self._epoch = created.session_id, 0

    def poll(self, changed: dict[int, int], *, max_wait_ms: int = 0) -> Any:
        """The next response of the session."""
        self._epoch += 1
        frame = fetch_frame(
            self._topic_id, changed, 1 << 20, session=(self._number, self._epoch), max_wait_ms=max_wait_ms
        )
        response = self._client.response_size(frame, ApiKey.FETCH, FETCH_VERSION)[1]
        assert response.error_code == 0
        return response

    def step(self) -> None:
        """A record, and the poll that gets it."""
        frame = produce_frame(self._topic_id, self._record)
        _appended(self._client.response_size(frame, ApiKey.PRODUCE, PRODUCE_VERSION)[1], self._offset)
        (topic,) = self.poll({0: self._offset}).responses
        (partition,) = topic.partitions
        (value,) = _values(bytes(partition.records))
        assert zlib.crc32(value) == zlib.crc32(_values(self._record)[0])
        self._offset += 1


def _session(partitions: int) -> Callable[[Client, int], Work]:
    def prepare(client: Client, count: int) -> Work:
        session = Session(client, partitions)

        def work() -> None:
            for _ in range(count):
                session.step()

        return work

    return prepare


def _idle_session(client: Client, count: int) -> Work:
    session = Session(client, 1000)
    session.step()
    session.poll({0: 1})

    def work() -> None:
        for _ in range(count):
            assert not session.poll({}).responses

    return work


class Member:
    """Joins a classic group as its only member."""

    def __init__(self, client: Client) -> None:
        client.create_topic("t")
        until = time.monotonic() + 60
        while client.call(ApiKey.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=["g"]).coordinators[0].error_code:
            assert time.monotonic() < until
            time.sleep(0.1)
        Request = messages.JoinGroup.Request
        asked = {
            "group_id": "g",
            "session_timeout_ms": 60_000,
            "rebalance_timeout_ms": 60_000,
            "protocol_type": "consumer",
            "protocols": [Request.Protocol(name="range", metadata=b"")],
        }
        found = client.call(ApiKey.JOIN_GROUP, 5, member_id="", **asked)
        while found.error_code in (14, 15, 16, 79):  # the coordinator loads, or a member id is required
            time.sleep(0.05)
            found = client.call(ApiKey.JOIN_GROUP, 5, member_id=found.member_id, **asked)
        assert found.error_code == 0, found
        self.fields = {"group_id": "g", "member_id": found.member_id}
        self.generation = found.generation_id
        assignment = messages.SyncGroup.Request.Assignment(member_id=found.member_id, assignment=b"a")
        synced = client.call(
            ApiKey.SYNC_GROUP, 3, generation_id=self.generation, assignments=[assignment], **self.fields
        )
        assert synced.error_code == 0, synced


def _heartbeat(client: Client, count: int) -> Work:
    member = Member(client)
    request = messages.Heartbeat.Request(generation_id=member.generation, **member.fields)
    frame = b"".join(encode_request(ApiKey.HEARTBEAT, 4, 1, "bench", request))

    def check(response: Any) -> None:
        assert response.error_code == 0

    return Exchange(client, frame, ApiKey.HEARTBEAT, 4, count, 1, check)


def _commit(client: Client, count: int) -> Work:
    member = Member(client)
    Request = messages.OffsetCommit.Request
    topic = Request.Topic(name="t", partitions=[Request.Partition(partition_index=0, committed_offset=7)])
    request = Request(generation_id_or_member_epoch=member.generation, topics=[topic], **member.fields)
    frame = b"".join(encode_request(ApiKey.OFFSET_COMMIT, 8, 1, "bench", request))

    def check(response: Any) -> None:
        assert response.topics[0].partitions[0].error_code == 0, response

    return Exchange(client, frame, ApiKey.OFFSET_COMMIT, 8, count, 1, check)


# name: (how to prepare it, requests in a run, bytes of a request or response, klog's goal in speed)
SCENARIOS: dict[str, tuple[Callable[[Client, int], Work], int, int, float | None]] = {
    "produce 16KiB": (_produce(16, 1000, _IN_FLIGHT), 2000, 16 * 1000, 4.0),
    "produce 1MiB": (_produce(1000, 1000, _IN_FLIGHT), 60, 1000 * 1000, 2.0),
    "fetch 64KiB": (_fetch(1 << 16), 2000, 1 << 16, 1.5),
    "fetch 1MiB": (_fetch(1 << 20), 200, 1 << 20, 1.5),
    "request": (_produce(1, 100, 1), 2000, 100, 2.5),
    "session 1": (_session(1), 500, 100, 2.5),
    "session 1000": (_session(1000), 200, 100, 2.5),
    "session idle": (_idle_session, 200, 0, 2.5),
    "heartbeat": (_heartbeat, 2000, 0, 2.5),
    "commit": (_commit, 2000, 0, 2.5),
}


def _contest(name: str, *, one_processor: bool = False) -> Factory:
    prepare, count, size, goal = SCENARIOS[name]

    def make(tiny: bool, folder: Path) -> Contest:
        runs = 5 if tiny else count
        kafka = KafkaBroker(folder)  # first: it may be missing
        brokers: list[Broker] = [KlogBroker(folder), kafka]
        clients = [Client(broker.address) for broker in brokers]
        works: dict[str, Work] = {}

        def check() -> None:
            for broker, client in zip(brokers, clients, strict=True):
                works[broker.name] = prepare(client, runs)
            until, warmed = time.monotonic() + _WARM_UP_AT_MOST, 0.0
            while not tiny and warmed < _WARM_UP_SECONDS and time.monotonic() < until:
                warmed += cost(kafka, works[kafka.name])

        def close() -> None:
            for client in clients:
                client.socket.close()
            for broker in brokers:
                broker.close()

        def contestant(broker: Broker) -> Contestant:
            def measured() -> float:
                with on_one_processor(broker.pid) if one_processor else nullcontext():
                    return cost(broker, works[broker.name])

            return Contestant(
                broker.name,
                measured,
                goal=goal if broker is not kafka else None,
                own_clock=True,
            )

        return Contest(_title(name, one_processor), runs, runs * size, tuple(map(contestant, brokers)), check, close)

    return make


def _title(name: str, one_processor: bool) -> str:
    return f"kafka broker {name}" + ", one processor" * one_processor


@contextmanager
def on_one_processor(pid: int) -> Iterator[None]:
    """This thread, and every thread of the process `pid`, run on one processor until the end of the block."""
    allowed = os.sched_getaffinity(0)
    threads = [0, *map(int, os.listdir(f"/proc/{pid}/task"))]
    try:
        for thread in threads:
            os.sched_setaffinity(thread, {max(allowed)})
        yield
    finally:
        for thread in threads:
            with suppress(ProcessLookupError):  # it has ended
                os.sched_setaffinity(thread, allowed)


FACTORIES: dict[str, Factory] = {_title(name, False): _contest(name) for name in SCENARIOS} | {
    _title(name, True): _contest(name, one_processor=True) for name in ("request", "session 1", "heartbeat", "commit")
}
