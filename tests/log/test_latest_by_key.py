"""Log.latest_by_key(), Log.as_of() and LogManager.latest_by_key(): the latest record of each key without a
compaction."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pyarrow as pa
import pytest

import klog
from klog.clock import ManualClock
from klog.errors import BadValue, CorruptBatch, LogClosed, OffsetOutOfRange, RecordRemoved
from klog.record import FIELDS, ORIGIN_FIELDS
from tests.support.batches import NOW, batch, marker, old, transactional
from tests.support.patience import PATIENCE

ROWS = [
    (b"pear", b"1", NOW),
    (b"plum", b"2", NOW + 5000),
    (None, b"3", NOW + 1),
    (b"pear", b"4", NOW + 2),
    (b"fig", b"5", -1),
    (b"plum", None, NOW + 3000),
    (b"", b"", NOW + 4),
]


@pytest.fixture
def log(tmp_path: Path) -> Iterator[klog.Log]:
    """A batch for each record, each second one compressed."""
    with klog.Log.open(tmp_path / "t-0", clock=ManualClock(NOW + 3000)) as log:
        for number, row in enumerate(ROWS):
            log.append([row], compression=("none", "lz4")[number % 2])
        yield log


def offsets(latest: Mapping[bytes, klog.Record]) -> dict[bytes, int]:
    return {key: record.offset for key, record in latest.items()}


def test_the_mapping(log: klog.Log) -> None:
    latest = log.latest_by_key()
    log.append([(b"kiwi", b"later")])  # the state is that at the time of the call
    assert offsets(latest) == {b"pear": 3, b"fig": 4, b"": 6} and list(latest) == [b"pear", b"fig", b""]
    assert len(latest) == 3 and b"plum" not in latest and latest.get(b"kiwi") is None and "pear" not in latest
    record = latest[b"pear"]
    assert (record.value, record.topic, record.partition) == (b"4", "t", 0)
    assert list(latest.values()) == [latest[key] for key in latest]
    with pytest.raises(KeyError):
        latest[b"plum"]
    assert log.latest_by_key() != latest and log.as_of(7).latest_by_key() == latest


def test_as_arrow(log: klog.Log) -> None:
    table = log.latest_by_key().to_arrow()
    assert table.schema == log.read().to_arrow().schema
    assert table.to_pylist() == [log.read(n, n + 1).to_arrow().to_pylist()[0] for n in (3, 4, 6)]
    empty = log.as_of(0).latest_by_key()
    assert pa.table(empty).num_rows == len(empty) == 0 and list(empty.items()) == []


@pytest.mark.parametrize(
    ("moment", "expected"),
    [
        (2, {b"pear": 0, b"plum": 1}),
        ("latest", {b"pear": 3, b"fig": 4, b"": 6}),
        ("earliest", {}),
        ("2", {b"pear": 0, b"plum": 1}),
        # By time: the timestamp of record 1 is later than that of record 5.
        (datetime.datetime.fromtimestamp(NOW / 1000, datetime.UTC), {b"pear": 0, b"fig": 4}),
        ("-1s", {b"pear": 3, b"fig": 4, b"": 6}),
        ("now", {b"pear": 3, b"fig": 4, b"": 6}),
        (datetime.date(2023, 11, 14), {b"fig": 4}),
        ("2023-11-15", {b"pear": 3, b"fig": 4, b"": 6}),
    ],
)
def test_as_of(log: klog.Log, moment: int | str | datetime.date, expected: dict[bytes, int]) -> None:
    assert offsets(log.as_of(moment).latest_by_key()) == expected


def test_a_tombstone_after_the_moment_does_not_count(tmp_path: Path) -> None:
    with klog.Log.open(tmp_path / "t-0", clock=ManualClock(NOW)) as log:
        log.append([(b"k", b"1", NOW), (b"k", b"3", NOW + 20), (b"k", b"2", NOW + 10), (b"k", None, NOW + 30)])
        moments = [datetime.datetime.fromtimestamp((NOW + ms) / 1000, datetime.UTC) for ms in (-1, 0, 9, 10, 20, 30)]
        found = [offsets(log.as_of(moment).latest_by_key()).get(b"k") for moment in moments]
    assert found == [None, 0, 0, 2, 2, None]


def test_wrong_moments(log: klog.Log) -> None:
    for moment in (8, -1):
        with pytest.raises(OffsetOutOfRange, match="outside t-0"):
            log.as_of(moment)
    with pytest.raises(ValueError, match="moment='2023-11-14T20:00' names no time zone"):
        log.as_of("2023-11-14T20:00")
    with pytest.raises(ValueError, match="isolation"):
        log.latest_by_key(isolation="committed")  # type: ignore[arg-type]
    view = log.as_of(3)
    log.close()
    for call in (log.latest_by_key, view.latest_by_key, lambda: log.as_of(3)):
        with pytest.raises(LogClosed):
            call()


def test_isolation(tmp_path: Path) -> None:
    with klog.Log.open(tmp_path / "t-0", clock=ManualClock(NOW)) as log:
        log.append([(b"k", b"committed")])
        log.append_batches(transactional(1, 0, 0))
        log.append_batches(marker(1, 0, "abort"), origin="coordinator")
        log.append_batches(transactional(1, 0, 1))  # open
        log.update_high_watermark(2)
        found = [offsets(log.latest_by_key(isolation=i)) for i in ("log_end", "high_watermark", "read_committed")]
        assert found == [{b"k": 3}, {b"k": 1}, {b"k": 0}]
        log.update_high_watermark(4)
        assert offsets(log.latest_by_key()) == {b"k": 3}
        assert log.latest_by_key(isolation="read_committed").to_arrow()["value"].to_pylist() == [b"committed"]


def test_old_formats_and_wide_gaps(tmp_path: Path) -> None:
    """More than a chunk lies between two latest records; messages of magic 0 and 1 have a key and no batch."""
    with klog.Log.open(tmp_path / "t-0", clock=ManualClock(NOW)) as log:
        log.append_batches(old(0, 0, 1), origin="replication")
        log.append_batches(batch([b"first"], key=b"a", base_offset=2), origin="replication")
        for base in range(3, 43):
            log.append_batches(batch([bytes(100_000)], key=b"b", base_offset=base), origin="replication")
        latest = log.latest_by_key()
        assert offsets(latest) == {b"k": 1, b"a": 2, b"b": 42}
        assert latest.to_arrow()["offset"].to_pylist() == [1, 2, 42]


def uses(latest: klog.LatestByKey, key: bytes) -> list[Callable[[], object]]:
    return [lambda: latest[key], latest.to_arrow, lambda: list(latest.values())]


def test_a_record_that_is_removed_meanwhile(tmp_path: Path) -> None:
    with klog.Log.open(tmp_path / "t-0", config={"cleanup.policy": "compact"}, clock=ManualClock(NOW)) as log:
        log.append([(b"a", b"1"), (b"b", b"2"), (b"c", b"3")])
        latest = log.latest_by_key()
        assert len(latest) == 3
        log.append([(b"b", b"4")])
        log.compact(roll=True)
        for use in uses(latest, b"b"):
            with pytest.raises(RecordRemoved, match=r"t-0: the record at offset .* removed"):
                use()
        assert latest[b"c"].value == b"3" and log.latest_by_key()[b"b"].value == b"4"


@pytest.mark.parametrize("beside", [False, True], ids=["writer", "reader"])
def test_a_truncation_gives_no_key_the_record_of_another(tmp_path: Path, beside: bool) -> None:
    with klog.Log.open(tmp_path / "t-0") as log, klog.Log.open(tmp_path / "t-0", read_only=True) as reader:
        for key in (b"a", b"b", b"c"):
            log.append([(key, b"old")])
        latest = (reader if beside else log).latest_by_key()
        assert len(latest) == 3
        log.truncate_to(1)
        log.append([(b"x", b"new")])
        log.append([(b"c", b"new")])
        for use in uses(latest, b"b"):
            with pytest.raises(RecordRemoved, match=r"t-0: the record at offset ., .* removed"):
                use()
        assert set((reader if beside else log).latest_by_key()) == {b"a", b"x", b"c"}


def test_a_reader_that_loads_again_after_a_compaction_keeps_its_result(tmp_path: Path) -> None:
    with (
        klog.Log.open(tmp_path / "t-0", config={"cleanup.policy": "compact"}) as log,
        klog.Log.open(tmp_path / "t-0", read_only=True) as reader,
    ):
        for value in (b"1", b"2"):
            log.append([(b"a", value), (b"b", value)])
        latest = reader.latest_by_key()
        assert len(latest) == 2
        log.compact(roll=True)
        assert latest[b"a"].value == b"2" and [record.value for record in latest.values()] == [b"2", b"2"]
        assert latest.to_arrow()["key"].to_pylist() == [b"a", b"b"]


def test_a_record_that_retention_removes_meanwhile(tmp_path: Path) -> None:
    with klog.Log.open(tmp_path / "t-0") as log:
        log.append([(b"a", b"1"), (b"b", b"2")])
        searched, later = log.latest_by_key(), log.latest_by_key()
        assert len(searched) == 2
        log.delete_records(1)
        for use in (*uses(searched, b"a"), lambda: len(later)):
            with pytest.raises(RecordRemoved, match=r"t-0: the record at offset 0, .* removed"):
                use()
        assert searched[b"b"].value == b"2"


def test_damage_is_reported_with_its_place(tmp_path: Path) -> None:
    with klog.Log.open(tmp_path / "t-0") as log:
        for number in range(3):
            log.append([(b"k", b"%d" % number)])
        path = log.segments[0].path
    with open(path, "r+b") as file:
        file.seek(100)
        file.write(b"?")
    with klog.Log.open(tmp_path / "t-0", read_only=True) as log:
        with pytest.raises(CorruptBatch) as caught:
            len(log.latest_by_key())
        assert (caught.value.offset, caught.value.path, caught.value.next_offset) == (1, path, 2)


def test_beside_a_writer(tmp_path: Path) -> None:
    """A snapshot does not change; a read-only log sees new records."""
    with (
        klog.Log.open(tmp_path / "t-0") as writer,
        klog.Log.open(tmp_path / "t-0", read_only=True) as reader,
        reader.snapshot() as snapshot,
    ):
        writer.append([(b"k", b"v")])
        assert (len(reader.latest_by_key()), len(snapshot.latest_by_key())) == (1, 0)


def test_over_the_partitions_of_a_topic(tmp_path: Path) -> None:
    """The newest timestamp counts, of equal ones the higher partition; a tombstone counts in its partition."""
    with klog.open(tmp_path, create=True) as logs:
        logs.create_topic("t", partitions=2)
        logs.log("t", 0).append([(b"a", b"0a", 7), (b"b", b"0b", 5), (b"c", b"0c", 5), (b"d", b"0d", 5)])
        logs.log("t", 1).append([(b"a", b"1a", 6), (b"b", b"1b", 5), (b"d", None, 9), (b"e", b"1e", 5)])
        latest = logs.latest_by_key("t")
        assert {key: record.value for key, record in latest.items()} == {
            b"a": b"0a", b"c": b"0c", b"d": b"0d", b"b": b"1b", b"e": b"1e",
        }  # fmt: skip
        assert [latest[key].partition for key in latest] == [0, 0, 0, 1, 1] and len(latest) == 5
        table = latest.to_arrow()
        assert table.schema.names == [*FIELDS, *ORIGIN_FIELDS]
        assert table["partition"].to_pylist() == [0, 0, 0, 1, 1] and table["value"].to_pylist()[-1] == b"1e"
        with pytest.raises(klog.errors.UnknownTopicOrPartition):
            logs.latest_by_key("u")


def test_threads_share_one_result(tmp_path: Path) -> None:
    """The partitions are merged once."""
    with klog.open(tmp_path, create=True) as logs:
        logs.create_topic("t", partitions=2)
        for part in range(2):
            logs.log("t", part).append([(b"%d" % number, b"v", NOW + part) for number in range(2000)])
        for _ in range(5):
            latest, together = logs.latest_by_key("t"), Barrier(4)

            def count(_: int, latest: Mapping[bytes, klog.Record] = latest, together: Barrier = together) -> int:
                together.wait(PATIENCE)
                return len(latest)

            with ThreadPoolExecutor(4) as threads:
                assert list(threads.map(count, range(4))) == [2000] * 4


def test_the_latest_values_are_decoded(tmp_path: Path) -> None:
    with klog.open(tmp_path, create=True) as logs:
        logs.create_topic("t", partitions=3)
        logs.append("t", [(b"a", b'{"n": 1}', NOW), (b"b", b'{"n": 2}', NOW)])
        logs.append("t", [(b"a", b'{"n": 3}', NOW + 1)])
        formats = {"key": "utf8", "value": klog.decode.Json("n INT")}
        for latest in (
            logs.latest_by_key("t", decode=formats),
            logs.log("t", klog.partition_for(b"a", 3)).as_of("latest").latest_by_key(decode=formats),
        ):
            found = {key: value for _, key, value in latest.decoded()}
            assert found == {key: {"n": {"a": 3, "b": 2}[key]} for key in found} and found["a"] == {"n": 3}
            table = latest.to_arrow()
            assert table.schema.field("value").type == pa.struct([("n", pa.int32())])
            assert dict(zip(*(table[name].to_pylist() for name in ("key", "value")), strict=True)) == found
            assert len(latest.to_pandas()) == len(latest.to_polars()) == len(found)
        log = logs.log("t", klog.partition_for(b"a", 3))
        log.append([(b"a", b"no")])
        with pytest.raises(BadValue, match="t-., offset .: the value is bad"):
            list(log.latest_by_key(decode="json").decoded())
        (bad,) = (each for each in log.latest_by_key(decode="json", on_bad="null").decoded() if each.key == b"a")
        assert bad.value is None
        with pytest.raises(ValueError, match="latest_by_key\\(decode=...\\)"):
            log.latest_by_key().decoded()
