"""Log.read, fetch and count over every range, and every form of position."""

from __future__ import annotations

import datetime
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import klog
from klog.clock import ManualClock
from klog.errors import CorruptBatch, OffsetOutOfRange
from klog.record import decode, encode
from tests.support.batches import batch
from tests.support.logs import NOW, bases, one_log, rows, values

HOUR = 3_600_000


@pytest.fixture
def log(tmp_path: Path):
    """Offsets 0 to 29 in batches of three over several segments, an hour apart by batch, the last of them now."""
    with one_log(tmp_path, ManualClock(NOW), segment_bytes=700, index_interval_bytes=0, segment_ms=10**12) as log:
        for i in range(10):
            codec = ("none", "lz4", "gzip")[i % 3]
            records = [(b"k", b"%02d" % (3 * i + j) * 20, NOW - (9 - i) * HOUR) for j in range(3)]
            log.append(records, compression=codec)
        assert len(bases(log)) >= 3
        yield log


def expected(start: int, stop: int) -> list[bytes]:
    return [b"%02d" % offset * 20 for offset in range(max(start, 0), min(stop, 30))]


# ---- ranges ----------------------------------------------------------------------------------------------------------


def test_every_range(log: klog.Log) -> None:
    for start in range(31):
        for stop in range(start, 33, 3):
            assert values(log, start, stop) == expected(start, stop), (start, stop)
            assert log.count(start, stop) == min(stop, 30) - start, (start, stop)


def test_a_range_that_ends_before_it_begins_is_empty(log: klog.Log) -> None:
    assert values(log, 7, 3) == []
    assert log.count(7, 3) == 0


def test_a_read_without_bounds_returns_everything(log: klog.Log) -> None:
    assert values(log) == expected(0, 30)
    assert log.count() == 30


@pytest.mark.parametrize("offset", [-1, 31, 2**63 - 1, -(2**63)])
def test_a_start_outside_the_log_is_an_error_with_the_range(log: klog.Log, offset: int) -> None:
    for call in (log.read, log.fetch, log.tail):
        with pytest.raises(
            OffsetOutOfRange, match=rf"offset {offset} is outside events-0, which holds \[0, 30\)"
        ) as caught:
            call(offset)
        error = caught.value
        assert (error.offset, error.log_start_offset, error.log_end_offset, error.code) == (offset, 0, 30, 1)
        assert isinstance(error, ValueError)
        again = pickle.loads(pickle.dumps(error))
        assert (str(again), again.log_end_offset) == (str(error), 30)


def test_offsets_below_the_log_start_are_outside(tmp_path: Path) -> None:
    with one_log(tmp_path) as log:
        log.append([(None, b"%d" % i) for i in range(5)])
    with klog.Log.open(tmp_path / "events-0", log_start_offset=3) as log:
        with pytest.raises(OffsetOutOfRange):
            log.read(2)
        assert values(log) == [b"3", b"4"]  # the batch reaches below the start, its first records are not shown
        assert log.count() == 2
        assert log.count(0) == 2
        with pytest.raises(OffsetOutOfRange):
            log.fetch(2)


def test_the_end_is_fixed_when_read_is_called(log: klog.Log) -> None:
    reader = log.read(28)
    log.append([(None, b"later")])
    assert [record.offset for record in reader] == [28, 29]
    assert [record.offset for record in reader] == [28, 29]  # any number of times


def test_two_iterations_of_one_reader_do_not_mix(log: klog.Log) -> None:
    reader = log.read(0, 9)
    pairs = [(a.offset, b.offset) for a, b in zip(reader, reader, strict=True)]
    assert pairs == [(i, i) for i in range(9)]


def test_batches_cover_the_range_and_may_reach_beyond_it(log: klog.Log) -> None:
    assert [(batch.base_offset, batch.last_offset) for batch in log.read(4, 10).batches()] == [(3, 5), (6, 8), (9, 11)]
    assert list(log.read(30).batches()) == []


def test_a_gap_is_skipped(tmp_path: Path) -> None:
    """Offsets that compaction has removed, within a segment and at its end."""
    directory = tmp_path / "t-0"
    directory.mkdir()
    (directory / f"{0:020d}.log").write_bytes(encode([(b"a", b"")]) + encode([(b"b", b"")], base_offset=7))
    (directory / f"{20:020d}.log").write_bytes(encode([(b"c", b"")], base_offset=22))
    with klog.Log.open(directory, config={"cleanup.policy": "compact"}) as log:
        for start, keys in ((0, [b"a", b"b", b"c"]), (1, [b"b", b"c"]), (8, [b"c"]), (21, [b"c"]), (23, [])):
            assert [record.key for record in log.read(start)] == keys
            assert log.count(start) == len(keys)
            data = log.fetch(start)
            assert [b.base_offset for b in decode(data.memory())][:1] == [
                {b"a": 0, b"b": 7, b"c": 22}[k] for k in keys[:1]
            ]
        assert log.log_end_offset == 23


# ---- fetch -----------------------------------------------------------------------------------------------------------


def test_fetch_gives_whole_batches_from_the_one_that_holds_the_offset(log: klog.Log) -> None:
    for offset in range(30):
        data = log.fetch(offset, 1 << 20)
        batches = list(decode(data.memory()))
        assert batches[0].base_offset <= offset <= batches[0].last_offset
        assert data.size == sum(batch.size for batch in batches) == len(data.memory())
        assert (data.offset, data.high_watermark, data.log_start_offset) == (offset, 30, 0)
        segment = next(s for s in reversed(log.segments) if s.base_offset <= offset)
        assert batches[-1].next_offset == segment.next_offset  # never across a segment


def test_fetch_is_bounded_but_makes_progress(log: klog.Log) -> None:
    first, second, *_ = decode(log.fetch(0).memory())
    assert log.fetch(0, first.size + second.size).size == first.size + second.size
    assert log.fetch(0, first.size + second.size - 1).size == first.size
    assert log.fetch(0, 1).size == first.size
    assert log.fetch(0, 0).size == first.size
    assert log.fetch(0, first.size - 1, min_one_message=False).size == 0
    assert log.fetch(0, first.size, min_one_message=False).size == first.size
    with pytest.raises(ValueError, match="max_bytes=-1"):
        log.fetch(0, -1)


def test_fetch_at_the_end_is_empty(log: klog.Log) -> None:
    data = log.fetch(30)
    assert (data.size, bytes(data.memory())) == (0, b"")


def test_fetched_bytes_outlive_the_log(tmp_path: Path) -> None:
    with one_log(tmp_path) as log:
        log.append([(None, b"x")])
        view = log.fetch(0).memory()
        for _ in range(50):
            log.fetch(0)
    assert [record.value for batch in decode(view) for record in batch] == [b"x"]
    assert view.readonly


@pytest.mark.parametrize("isolation", ["log_end", "high_watermark", "read_committed"])
def test_isolations_agree_without_transactions(log: klog.Log, isolation: Any) -> None:
    assert values(log, isolation=isolation) == expected(0, 30)
    assert log.fetch(0, isolation=isolation).size == log.fetch(0).size


def test_an_unknown_isolation_is_refused(log: klog.Log) -> None:
    for call in (lambda: log.read(isolation="dirty"), lambda: log.fetch(0, isolation="dirty")):  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="choose 'log_end', 'high_watermark' or 'read_committed'"):
            call()


def test_a_reader_sees_up_to_the_checkpointed_high_watermark(tmp_path: Path) -> None:
    with one_log(tmp_path) as log:
        log.append([(None, b"%d" % i) for i in range(3)])
        log.append([(None, b"%d" % i) for i in range(3, 6)])
    with klog.Log.open(tmp_path / "events-0", read_only=True, high_watermark=4) as log:
        assert (log.high_watermark, log.log_end_offset) == (4, 6)
        assert values(log) == [b"0", b"1", b"2", b"3"]
        assert values(log, isolation="log_end") == [b"%d" % i for i in range(6)]
        assert rows(log, 5) == []  # above the bound, no error
        assert log.fetch(0, isolation="high_watermark").size == log.fetch(0, 1).size  # only whole batches below it
        assert log.fetch(4, isolation="high_watermark").size == 0
        assert log.fetch(4, isolation="log_end").size > 0
    for beyond in (-5, 100):
        with klog.Log.open(tmp_path / "events-0", read_only=True, high_watermark=beyond) as log:
            assert log.high_watermark == min(max(beyond, 0), 6)
    with klog.Log.open(tmp_path / "events-0") as log:
        assert log.high_watermark == 6  # a writable single copy


# ---- damage met while reading ----------------------------------------------------------------------------------------


def test_a_flipped_bit_is_named_with_its_position(tmp_path: Path) -> None:
    with one_log(tmp_path) as log:
        log.append([(None, b"a")])
        size = log.size
        log.append([(None, b"b")])
    path = tmp_path / "events-0" / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[size + 65] ^= 1
    path.write_bytes(data)
    with klog.Log.open(tmp_path / "events-0", read_only=True) as log:
        seen = []
        with pytest.raises(CorruptBatch) as caught:
            seen.extend(record.value for record in log.read())
        assert (caught.value.path, caught.value.position, caught.value.kind) == (str(path), size, "crc")
        assert caught.value.offset == 1
        with pytest.raises(CorruptBatch, match="the checksum of a batch of 69 bytes"):
            log.read().to_arrow()
        with pytest.raises(OSError, match="the checksum of a batch of 69 bytes"):  # all that an Arrow stream can report
            pa.table(log.read())


# ---- Arrow -----------------------------------------------------------------------------------------------------------


def test_columns_of_views_are_the_same_and_outlive_the_log(tmp_path: Path) -> None:
    with one_log(tmp_path, ManualClock(NOW), segment_bytes=700, index_interval_bytes=0) as log:
        for i in range(30):
            log.append([(b"k" * i, b"%02d" % i * 20, NOW)], compression=("none", "lz4")[i % 2])
        batches = [pa.record_batch(columns) for columns in log.read(5, 17).columns(["key", "value"], views=True)]
    assert len(batches) > 1
    table = pa.Table.from_batches(batches)
    table.validate(full=True)
    assert table.schema.field("value").type == pa.binary_view()
    assert table["value"].to_pylist() == expected(5, 17)
    assert table["key"].to_pylist() == [b"k" * i for i in range(5, 17)]


def test_to_arrow_is_the_same_range(log: klog.Log) -> None:
    table = log.read(5, 17).to_arrow()
    assert table.column_names == ["offset", "timestamp", "timestamp_type", "key", "value", "headers"]
    assert table["offset"].to_pylist() == list(range(5, 17))
    assert table["value"].to_pylist() == expected(5, 17)
    assert [t.timestamp() * 1000 for t in table["timestamp"].to_pylist()] == [row[3] for row in rows(log, 5, 17)]
    assert log.read(30).to_arrow().num_rows == 0
    assert pa.table(log.read(0, 3)).num_rows == 3


# ---- positions -------------------------------------------------------------------------------------------------------

UTC = datetime.UTC
AT = datetime.datetime.fromtimestamp(NOW / 1000, UTC)


@pytest.mark.parametrize(
    ("position", "offset"),
    [
        (None, 0),
        (12, 12),
        ("12", 12),
        ("earliest", 0),
        (" Latest ", 30),
        ("-3h", 18),
        ("-2.5h", 21),
        ("-180m", 18),
        ("- 3 h", 18),
        ("-0ms", 27),
        ("-1d", 0),
        ("-9w", 0),
        (AT - datetime.timedelta(hours=3), 18),
        (AT - datetime.timedelta(hours=3, microseconds=-1), 18),  # below a millisecond: truncated
        (AT - datetime.timedelta(hours=3, milliseconds=-1), 21),
        ((AT - datetime.timedelta(hours=3)).astimezone(datetime.timezone(datetime.timedelta(hours=-5))), 18),
        (AT + datetime.timedelta(days=1), 30),  # after the last record: the log end
        ("2023-11-14T22:13:20Z", 27),
        ("now", 27),
        (" NOW", 27),
        ("2023-11-14T23:13:20+01:00", 27),
        ("2023-11-14", 0),
        ("2023-11-14T20:00Z", 21),
        (datetime.date(2023, 11, 14), 0),
        (datetime.date(2023, 11, 15), 30),
        ("1999-01-01", 0),
    ],
)
def test_positions(log: klog.Log, position: Any, offset: int) -> None:
    got = [record.offset for record in log.read(position)]
    assert got == list(range(offset, 30))
    assert log.count(position) == 30 - offset
    if position is not None:
        assert [record.offset for record in log.read(0, position)] == list(range(offset))


@pytest.mark.parametrize(
    ("position", "error", "match"),
    [
        (
            "yesterday",
            ValueError,
            "'yesterday' is not a position: give an offset, 'earliest', 'latest', 'now', ISO time",
        ),
        ("-3", ValueError, "is not a position"),
        ("-3y", ValueError, "is not a position"),
        ("", ValueError, "is not a position"),
        (datetime.datetime(2023, 11, 14), ValueError, "names no time zone"),
        ("2023-11-14T20:00", ValueError, "names no time zone; for UTC give '2023-11-14T20:00Z'"),
        ("2023-11-14 20", ValueError, "names no time zone"),
        (1.5, TypeError, "not float"),
        (True, TypeError, "not bool"),
        (datetime.time(20), TypeError, "not time"),
        (b"earliest", TypeError, "not bytes"),
    ],
)
def test_invalid_positions_are_refused(log: klog.Log, position: Any, error: type[Exception], match: str) -> None:
    for call in (
        lambda: log.read(position),
        lambda: log.read(0, position),
        lambda: log.count(position),
        lambda: log.tail(position),
    ):
        with pytest.raises(error, match=match):
            call()


def test_ago_follows_the_clock(tmp_path: Path) -> None:
    clock = ManualClock(NOW)
    with one_log(tmp_path, clock) as log:
        log.append([(None, b"a")])
        clock.advance(2 * HOUR)
        log.append([(None, b"b")])
        assert values(log, "-1h") == [b"b"]
        clock.advance(HOUR)
        assert values(log, "-1h") == [b"b"]
        clock.advance(1)
        assert values(log, "-1h") == []


def offsets_of(log: klog.Log, method: str) -> Iterator[int]:
    reader = log.read()
    if method == "records":
        return (record.offset for record in reader)
    if method == "batches":
        return (found.base_offset for found in reader.batches())
    return (chunk.start for chunk in reader.chunks())


@pytest.mark.parametrize("method", ["records", "batches", "chunks"])
@pytest.mark.parametrize("before", [6, 9])
def test_a_reader_overtaken_by_retention_raises(tmp_path: Path, method: str, before: int) -> None:
    """Deleted records are never skipped without an error, nor treated as the end of the log."""
    with klog.Log.open(tmp_path / "t-0", config={"retention.ms": -1}) as log:
        for _ in range(3):
            log.append_batches(batch(3))
            log.roll()
        found = offsets_of(log, method)
        assert next(found) == 0
        log.delete_records(before)
        assert log.apply_retention() == before // 3
        with pytest.raises(OffsetOutOfRange, match="offset 3"):
            list(found)


@pytest.mark.parametrize("size", [1, 5, 11, 12, 60, 61, 62])
def test_chunks_smaller_than_a_header(tmp_path: Path, size: int) -> None:
    with klog.Log.open(tmp_path / "t-0") as log:
        for _ in range(3):
            log.append_batches(batch(2))
        assert [(chunk.start, chunk.stop) for chunk in log.chunks(0, 6, max_bytes=size)] == [(0, 2), (2, 4), (4, 6)]
