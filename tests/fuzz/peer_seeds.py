"""Seeds for the Python targets over clients' bytes, klog's own files and texts."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

from klog.internal_topics.decoding import TOPICS
from klog.log.directory import versioned
from klog.protocol import ApiKey, encode_data, encode_request, encode_response, messages
from klog.protocol.layout import load
from klog.record import iter_records
from tests.fuzz.der import certificate, name
from tests.support import wire
from tests.support.batches import batch, marker, produced, transactional

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
_TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
_TEXTS = (
    "retention.ms=5\nsegment.bytes=2048\n",
    "cleanup.policy = compact,delete\r\n# a comment\nmin.cleanable.dirty.ratio:0.5",
    "log.dirs=/a , /b\nlog.retention.hours=3\nlog.retention.ms=7\n",
    "log.dirs=/data/\\ud83d\\ude00\nlog.message.timestamp.type=LogAppendTime\n",
    "a\\ key = one\\\n   two\\u0020\n",
)
_NAMES = ("t-0", "a-b-17", "t-01", ".-0", "t-2147483648", "00000000000000000012.log", "00000000000000000012.timeindex",
          "09223372036854775808.log", f"t-1.{'a' * 32}-delete", f"t-1.{'0' * 32}-stray")  # fmt: skip
_OWN = (
    '{"version":1,"reader":"r","topics":{"t":{"topic_id":null,"positions":{"0":17,"1":4},"truncated":{"0":3}}}}',
    f'{{"version":1,"generation":3,"topics":{{"t":{{"topic_id":"{_TOPIC_ID}","partitions":2,"config":{{"retention.ms":7}},'
    f'"state":""}}}},"deleted":["{_TOPIC_ID}"]}}',
    '{"version":1,"token":"token","state":"applied"}',
    '{"version":1,"query_id":"query","batch_id":4}',
)


def _frames() -> Iterator[bytes]:
    chance = random.Random(31)
    for number, api in enumerate(ApiKey):
        layouts = load(api.message)
        version = chance.randint(api.low, api.high)
        owner = getattr(messages, api.message)
        if number % 2:
            message = wire.make(owner.Request, layouts["request"], version, chance)
            yield b"\0" + b"".join(map(bytes, encode_request(api, version, 7, "client", message)))[4:]
        else:
            message = wire.make(owner.Response, layouts["response"], version, chance)
            frame = b"".join(map(bytes, encode_response(api, version, 7, message)))[4:]
            yield bytes((2, number, version - api.low)) + frame
    for kind, message in ((3, messages.ConsumerProtocolSubscription), (7, messages.ConsumerProtocolAssignment)):
        for version in range(4):
            blob = wire.make(message, load(message.__name__)["data"], version, chance)
            yield bytes((kind,)) + encode_data(blob, version)


def _internal() -> Iterator[bytes]:
    topics = sorted(TOPICS)
    for path in sorted(GOLDEN.glob("*/logdir/__*/*.log")):
        for record in iter_records(path.read_bytes()):
            key = record.key or b""
            topic = path.parent.name.rpartition("-")[0]
            if topic in topics and len(key) < 256:
                yield bytes((topics.index(topic), len(key))) + key + (record.value or b"")


def _scram() -> Iterator[bytes]:
    for first in (b"n,,n=user,r=abc", b"y,a=user,n=user,r=abc,x=1", b"n,,n=a=2Cb=3Dc,r=~", "n,,n=grüße,r=1".encode()):
        for rules in range(8):
            yield bytes((rules, 7 * rules, len(first))) + first + b"c=biws,r=abcserver,p=AAAA"[: 3 * rules + 1]


def _tls() -> Iterator[bytes]:
    yield bytes(1)
    for at in (0, 3, 5, 9, 43, 120, 300, 520, 600, 800, 1000):
        yield b"\0" + struct.pack(">HB", at, 0xFF)
    for garbage in (
        b"GET / HTTP/1.0\r\n\r\n",
        b"\x16\x03\x01\0\x05\x01\0\0\x01\0",
        b"\0\0\0\x0e\0\x12\0\3\0\0\0\1\0\0",
    ):
        yield b"\1" + garbage
        yield b"\x0a" + garbage
    yield b"\2" + certificate(
        name([[("2.5.4.3", 0x0C, b"broker"), ("2.5.4.9", 0x16, b"S 1, +")], [("2.5.4.10", 4, b"k")]])
    )


def _own() -> Iterator[bytes]:
    for number, document in enumerate(_OWN):
        yield bytes((2 * number,)) + document.encode()
        yield bytes((2 * number + 1,)) + versioned.encode(versioned.parse(document.encode(), "seed", 1))


def _texts() -> Iterator[bytes]:
    for text in _TEXTS:
        yield b"\0" + text.encode("latin-1")
        yield b"\1" + text.encode("latin-1")
    yield "\0grüße \U0001f600=\\t".encode()
    for text in _NAMES:
        yield b"\2" + text.encode()


def _txnindex() -> Iterator[bytes]:
    for path in sorted(GOLDEN.glob("*/logdir/*/*.txnindex")):
        data = path.read_bytes()
        yield struct.pack(">qq", 0, 1 << 40) + data
        (first_marker,) = struct.unpack_from(">q", data, 18)
        yield struct.pack(">qq", first_marker + 1, 1 << 40) + data + b"torn"


def packed(rules: int, cut: int, *appends: tuple[int, bytes]) -> bytes:
    """An input of produce.py."""
    return bytes((rules, cut, rules)) + b"".join(struct.pack(">BH", kind, len(data)) + data for kind, data in appends)


def _produce() -> Iterator[bytes]:
    life = [
        *((0, batch(3)), (4, produced(7, 0, 0, 2)), (0, produced(7, 0, 2, 2)), (0, produced(7, 0, 2, 2))),
        *((4, transactional(8, 0, 0)), (2, marker(8, 0, "abort")), (0, batch([b"x" * 300], compression="gzip"))),
    ]
    for rules in range(8):
        for cut in (3, 9, 20, 40, 255):
            yield packed(rules, cut, *life[rules % 3 :])
    for path in sorted(GOLDEN.glob("codecs/logdir/*/*.log"))[:12]:
        yield packed(5, 30, (5, path.read_bytes()[:1500]), (1, path.read_bytes()[:1500]))


SEEDS: dict[str, Callable[[], Iterator[bytes]]] = {
    "frame": _frames,
    "internal": _internal,
    "own": _own,
    "produce": _produce,
    "scram": _scram,
    "texts": _texts,
    "tls": _tls,
    "txnindex": _txnindex,
}
