"""klog.record.pairs and LogReader.pairs: the same records as by iteration, as (key, value)."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import pytest

import klog
from klog.errors import CorruptBatch
from klog.record import encode, iter_records, pairs
from tests.support.batches import NOW, batch, marker, transactional
from tests.support.damage import flip

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
RECORDS = [(b"k%d" % n if n % 3 else None, b"v" * n if n % 5 else None, NOW + n, [("h", b"x")]) for n in range(50)]


def as_pairs(records: object) -> list[tuple[bytes | None, bytes | None]]:
    return [(record.key, record.value) for record in records]  # type: ignore[attr-defined]


@pytest.mark.parametrize("compression", CODECS)
def test_they_are_the_records(compression: str) -> None:
    data = encode(RECORDS, compression=compression) + encode(RECORDS[:7], base_offset=50, compression=compression)
    for kind in (bytes, bytearray, memoryview):
        assert list(pairs(kind(data))) == [(key, value) for key, value, *_ in RECORDS + RECORDS[:7]]
    for start, stop in itertools.product((0, 1, 49, 50, 57), repeat=2):
        assert list(pairs(data, start=start, stop=stop)) == as_pairs(iter_records(data, start=start, stop=stop))


def test_a_pair_that_is_held_stays_as_it_is() -> None:
    """The iterator uses a tuple again only if nothing else refers to it."""
    data = encode([(b"k%d" % n, b"v%d" % n) for n in range(9)])
    iterator = pairs(data)
    first, second = next(iterator), next(iterator)
    third = next(iterator)
    assert (first, second, third) == ((b"k0", b"v0"), (b"k1", b"v1"), (b"k2", b"v2"))
    held, keys = [], []
    for number, pair in enumerate(iterator):
        keys.append(pair[0])
        if number % 2:
            held.append(pair)
    assert keys == [b"k%d" % n for n in range(3, 9)]
    assert held == [(b"k%d" % n, b"v%d" % n) for n in (4, 6, 8)]
    before = sys.getallocatedblocks()
    for _ in range(1000):
        for _key, _value in pairs(data):
            pass
    assert sys.getallocatedblocks() - before < 100


def test_a_pair_hashes_as_what_it_holds_now() -> None:
    data = encode([(b"k%d" % n, b"v%d" % n) for n in range(9)])
    assert list(map(hash, pairs(data))) == [hash(pair) for pair in list(pairs(data))]


def test_control_records_and_aborted_transactions() -> None:
    data = b"".join(
        [
            transactional(1, 0, 0, 2, base_offset=0),
            marker(1, 0, "abort", base_offset=2),
            batch(1, base_offset=3),
        ]
    )
    assert len(list(pairs(data))) == 3
    assert len(list(pairs(data, include_control=True))) == 4
    assert list(pairs(data, aborted=[(1, 0, 2)])) == as_pairs(iter_records(data, aborted=[(1, 0, 2)]))


@pytest.mark.parametrize("function", [pairs, iter_records])
def test_on_damage_is_called_with_the_offset_that_would_be_next(function: object) -> None:
    first = encode(RECORDS[:3])
    data = first + flip(encode(RECORDS[:3], base_offset=3), 70)
    called: list[tuple[CorruptBatch, int]] = []
    found: list[object] = []
    with pytest.raises(CorruptBatch) as caught:
        found.extend(function(data, on_damage=lambda *given: called.append(given)))  # type: ignore[operator]
    assert (len(found), called) == (3, [(caught.value, 3)])
    assert list(function(first, on_damage=None))  # type: ignore[operator]
    with pytest.raises(TypeError, match="on_damage"):
        function(first, on_damage=1)  # type: ignore[operator]


def test_of_a_log(tmp_path: Path) -> None:
    with klog.open(tmp_path, create=True) as logs:
        logs.create_topic("t", partitions=2, config={"segment.bytes": 400})
        for compression in CODECS:
            logs.append("t", RECORDS, compression=compression)
        for reader in (logs.log("t").read(), logs.log("t").read(20, 60), logs.read("t")):
            assert list(reader.pairs()) == as_pairs(reader) != []
        assert list(logs.log("t").read().pairs()) == list(logs.log("t").read().pairs())


def test_damage_in_a_log_names_where_reading_goes_on(tmp_path: Path) -> None:
    with klog.Log.open(tmp_path / "t-0") as log:
        for _ in range(3):
            log.append(RECORDS[:10])
        path = Path(log.segments[0].path)
    data = path.read_bytes()
    path.write_bytes(flip(data, len(data) // 2))
    with klog.Log.open(tmp_path / "t-0", read_only=True, clean_shutdown=True) as log:
        for iterate in (lambda at: log.read(at).pairs(), lambda at: iter(log.read(at))):
            found: list[object] = []
            with pytest.raises(CorruptBatch) as caught:
                found.extend(iterate(0))
            assert (len(found), caught.value.next_offset) == (10, 20)
            assert len(list(iterate(20))) == 10
