"""Requests that no correct client sends, and the check that a broker is unharmed by them.

A Victim is a broker in a process of its own. After an attack it must be alive, have logged no error, be within its
memory limit, and serve a correct client.
"""

from __future__ import annotations

import random
import socket
import struct
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from klog.network import FileSlice
from klog.protocol import ApiKey, encode_request, messages
from klog.protocol.layout import load
from klog.record import decode, encode
from tests.support import wire
from tests.support.broker_process import BrokerProcess
from tests.support.wire_client import WireClient

HANG_SECONDS = 30.0
"""A well-behaved client is served within it, also by a machine that does much else."""
COUNTS = (struct.pack(">i", 2**31 - 1), struct.pack(">i", -(2**31)), b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\x07",
          b"\x7f\xff", b"\x80\x00", b"\xff" * 10)  # fmt: skip
NAMES = ("../x", "/etc/x", "a\0b", "x" * 250, ".", "..", "", "a b", "grüße", "topic-0-delete", "x" * 30_000,
         "__consumer_offsets", "__transaction_state", "__cluster_metadata", "topic-1", "a")  # fmt: skip
_HEADER_BYTES = 19
NUMBERS = (-1, -2, 0, 1, 2**15 - 1, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63))
_LIMITS = {"int8": 7, "int16": 15, "int32": 31, "int64": 63}


class Victim:
    """A running broker with the topics "good", which no attack names, "topic-1" and "a"."""

    def __init__(self, broker: BrokerProcess, rss_growth_max_kib: int) -> None:
        self.broker = broker
        self.rss_growth_max_kib = rss_growth_max_kib
        self._said = 0
        self._produced = 0
        with self.client() as client:
            Topic = messages.CreateTopics.Request.Topic
            good = [Topic(name="good", num_partitions=2, replication_factor=1)]
            created = client.call(ApiKey.CREATE_TOPICS, 7, topics=good, timeout_ms=10_000)
            assert created.topics[0].error_code == 0
        self.topic_ids: list[uuid.UUID] = []
        self.offer_topics()
        self.behave()
        self.rss_before_kib = broker.rss_kib()

    def offer_topics(self) -> None:
        """Create the topics that attacks name and may have deleted. If an unfinished deletion removes one meanwhile,
        create them again."""
        Topic = messages.CreateTopics.Request.Topic
        asked = [Topic(name=name, num_partitions=2, replication_factor=1) for name in ("topic-1", "a")]
        named = [messages.Metadata.Request.Topic(name=each.name) for each in asked]
        deadline = time.monotonic() + HANG_SECONDS
        with self.client() as client:
            codes = None
            while codes != [0, 0]:
                assert time.monotonic() < deadline, codes
                client.call(ApiKey.CREATE_TOPICS, 7, topics=asked, timeout_ms=10_000)
                found = client.call(ApiKey.METADATA, 12, topics=named)
                codes = [each.error_code for each in found.topics]
            self.topic_ids = [each.topic_id for each in found.topics]

    def client(self, client_id: str = "well-behaved") -> WireClient:
        client = WireClient(self.broker.address, client_id)
        client.socket.settimeout(HANG_SECONDS)
        return client

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.broker.port), timeout=HANG_SECONDS)

    def behave(self) -> None:
        """Act as a correct client: connect, request metadata, produce and fetch."""
        with self.client() as client:
            found = client.call(ApiKey.METADATA, 9, topics=[messages.Metadata.Request.Topic(name="good")])
            assert [(each.name, each.error_code, len(each.partitions)) for each in found.topics] == [("good", 0, 2)]
            value = b"value %d" % self._produced
            self._produced += 1
            assert produce(client, "good", 0, encode([(b"k", value)])) == (0, self._produced - 1)
            assert fetch(client, "good", 0, self._produced - 1) == [value]

    def check(self) -> None:
        """Check that the broker is alive, has logged no error and no traceback since the last check, and is within its
        memory limit."""
        self.behave()
        assert self.broker.is_alive()
        said = self.broker.log.read_text()
        new, self._said = said[self._said :], len(said)
        wrong = [line for line in new.splitlines() if "ERROR" in line or "CRITICAL" in line or "Traceback" in line]
        assert not wrong, new[new.index(wrong[0]) :][:5000]
        grown = self.broker.rss_kib() - self.rss_before_kib
        assert grown < self.rss_growth_max_kib, f"the broker has grown by {grown} KiB"


@contextmanager
def victim(path: Path, *, rss_growth_max_mib: int = 256, **config: Any) -> Iterator[Victim]:
    """A broker with these properties; underscores in the names stand for dots."""
    properties = {name.replace("_", "."): value for name, value in config.items()}
    with BrokerProcess(path / "data", properties) as broker:
        found = Victim(broker, rss_growth_max_mib << 10)
        try:
            yield found
            found.check()
        finally:
            if broker.is_alive():
                broker.stop()


def produce(client: WireClient, topic: str, partition: int, records: bytes, **more: Any) -> tuple[int, int]:
    """(error code, base offset)."""
    Request = messages.Produce.Request
    asked = Request.Topic(name=topic, partition_data=[Request.Partition(index=partition, records=records)])
    found = client.call(ApiKey.PRODUCE, 9, **{"acks": 1, "timeout_ms": 1000, "topic_data": [asked], **more})
    result = found.responses[0].partition_responses[0]
    return result.error_code, result.base_offset


def fetch(client: WireClient, topic: str, partition: int, offset: int) -> list[bytes | None]:
    Request = messages.Fetch.Request
    asked = Request.Partition(partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20)
    found = client.call(
        ApiKey.FETCH, 12, max_wait_ms=100, min_bytes=1, max_bytes=1 << 20,
        topics=[Request.Topic(topic=topic, partitions=[asked])],
    )  # fmt: skip
    data = found.responses[0].partitions[0].records
    return [record.value for batch in decode(bytes(data or b"")) for record in batch]


def peak_kib(found: Victim, frame: bytes) -> tuple[int, int]:
    """The cost of a request: the peak growth of the broker's memory in KiB, and the size of the response in bytes."""
    process = Path(f"/proc/{found.broker.pid}")
    before = found.broker.rss_kib()
    (process / "clear_refs").write_text("5")  # forgets the highest so far
    with found.connect() as sock:
        sock.settimeout(10 * HANG_SECONDS)
        sock.sendall(frame)
        stream = sock.makefile("rb")
        (size,) = struct.unpack(">i", stream.read(4))
        for at in range(0, size, 1 << 20):
            stream.read(min(size - at, 1 << 20))
    status = (process / "status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) - before, size


# ---- requests --------------------------------------------------------------------------------------------------------


def request(api: ApiKey, version: int, chance: random.Random, topic_ids: list[uuid.UUID]) -> bytes:
    """The frame of a validly encoded request, including its size: some values are plausible, some at the limits of
    their types."""
    layout = load(api.message)["request"]
    message = wire.make(getattr(messages, api.message).Request, layout, version, chance)
    _season(message, layout.section.top, version, chance, topic_ids)
    parts = encode_request(api, version, 7, "attacker", message)
    assert not any(isinstance(part, FileSlice) for part in parts)
    return b"".join(parts)


def _season(made: Any, struct_: Any, version: int, chance: random.Random, topic_ids: list[uuid.UUID]) -> None:
    for field in struct_.fields:
        if version not in field.versions:
            continue
        value = getattr(made, field.name)
        if field.struct is not None:
            for each in value if isinstance(value, list) else [] if value is None else [value]:
                _season(each, field.struct, version, chance, topic_ids)
        elif field.name == "max_wait_ms" or "timeout_ms" in field.name:
            setattr(made, field.name, chance.choice((0, 1, 6000, 10_000, -1)))
        elif value is not None and chance.random() < 0.6:
            new = [_flavour(field, chance, topic_ids) for _ in value] if isinstance(value, list) else None
            new = _flavour(field, chance, topic_ids) if new is None else new
            if new is not None and None not in (new if isinstance(new, list) else ()):
                setattr(made, field.name, new)


def _flavour(field: Any, chance: random.Random, topic_ids: list[uuid.UUID]) -> Any:
    match field.kind:
        case "string":
            return chance.choice(NAMES)
        case "uuid":
            return chance.choice(topic_ids)
        case "records":
            return chance.choice((b"", encode([(b"k", b"v")]), encode([(b"k", b"v")], producer_id=1, producer_epoch=0,
                                                                    base_sequence=0)))  # fmt: skip
        case kind if kind in _LIMITS:
            return chance.choice([each for each in NUMBERS if -(1 << _LIMITS[kind]) <= each < 1 << _LIMITS[kind]])
    return None


def mutated(frame: bytes, chance: random.Random) -> bytes:
    """The frame with some bits flipped, a count replaced, or its end cut off or extended; its size mostly fits."""
    body = bytearray(frame[4:])
    for _ in range(chance.choice((1, 1, 2, 5))):
        at = chance.randrange(4, max(5, len(body)))
        if at < _HEADER_BYTES and chance.random() < 0.8:
            at = chance.randrange(_HEADER_BYTES, max(_HEADER_BYTES + 1, len(body)))
        match chance.randrange(5):
            case 0 if at < len(body):
                body[at] ^= 1 << chance.randrange(8)
            case 1 if at < len(body):
                body[at] = chance.choice((0, 1, 0x7F, 0x80, 0xFF))
            case 2:
                count = chance.choice(COUNTS)
                body[at : at + len(count)] = count
            case 3:
                del body[at:]
            case _:
                body += chance.randbytes(chance.choice((1, 10, 1000)))
    size = len(body) if chance.random() < 0.95 else chance.choice((0, -1, len(body) - 1, 2**31 - 1, -(2**31)))
    return struct.pack(">i", size) + bytes(body)


def answered(sock: socket.socket, seconds: float) -> bool | None:
    """True if a whole frame arrived, False if the connection was closed, None if neither happened within the time."""
    deadline, data = time.monotonic() + seconds, b""
    while True:
        sock.settimeout(max(0.001, deadline - time.monotonic()))
        try:
            part = sock.recv(1 << 16)
        except TimeoutError:
            return None
        except ConnectionError:
            return False
        if not part:
            return False
        data += part
        if len(data) >= 4 and len(data) >= 4 + struct.unpack(">i", data[:4])[0]:
            return True
