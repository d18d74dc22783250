"""Batch headers as columns: they equal the fields of the opened batches, and the counts of records are exact."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import klog
from klog.clock import ManualClock
from klog.errors import CorruptBatch
from tests.log.test_old_formats import make, new_batch, old_log
from tests.support import golden
from tests.support.dirty_logs import DirtyLog
from tests.support.logs import NOW, one_log

pyarrow = pytest.importorskip("pyarrow", reason="needs: pyarrow")

BEFORE_TIMES = ["position", "size", "base_offset", "last_offset", "count"]
TIMES = ["base_timestamp", "max_timestamp"]
AFTER_TIMES = ["timestamp_type", "compression", "leader_epoch", "producer_id", "producer_epoch", "base_sequence"]
FLAGS = ["is_transactional", "is_control"]
FIELDS = [*BEFORE_TIMES, *TIMES, *AFTER_TIMES, *FLAGS, "delete_horizon", "magic", "segment_base_offset"]


def headers(log: klog.Log, *bounds: Any, **options: Any) -> list[dict[str, Any]]:
    """The rows, with times in ms: not every one is a datetime."""
    table = log.read(*bounds, **options).batch_headers().to_arrow()
    times = pyarrow.types.is_timestamp
    schema = [(field.name, pyarrow.int64() if times(field.type) else field.type) for field in table.schema]
    rows: list[dict[str, Any]] = table.cast(pyarrow.schema(schema)).to_pylist()
    return rows


def expected(batch: klog.RecordBatch, path: str) -> dict[str, Any]:
    """The row of a batch that was opened."""
    horizon = batch.delete_horizon_ms
    shared = [name for name in FIELDS if name not in (*TIMES, "delete_horizon")]
    special = {"timestamp_type": int(batch.timestamp_type), "segment_base_offset": int(Path(path).stem)}
    return {
        **{name: special[name] if name in special else getattr(batch, name) for name in shared},
        "base_timestamp": None if horizon is not None or batch.base_timestamp == -1 else batch.base_timestamp,
        "max_timestamp": None if batch.max_timestamp == -1 else batch.max_timestamp,
        "delete_horizon": horizon,
    }


def opened(log: klog.Log) -> list[dict[str, Any]]:
    """The rows of all batches, by opening them."""
    rows = []
    for chunk in log.read().chunks():
        for batch in klog.record.decode(chunk.buffer, path=chunk.path, file_position=chunk.file_position):
            if batch.last_offset >= chunk.start and batch.base_offset < chunk.stop:
                row = expected(batch, chunk.path)
                row["count"] = sum(chunk.start <= record.offset < chunk.stop for record in batch)
                rows.append(row)
    return rows


def outcome(read: Callable[[klog.Log], Any], log: klog.Log) -> Any:
    """The result of read(log), or the CorruptBatch that it raises."""
    try:
        return read(log)
    except CorruptBatch as error:
        return error


def check_counts(log: klog.Log, chance: random.Random, rounds: int = 12) -> None:
    """Check in random ranges that the sum of the counts is the number of records."""
    start, end = log.log_start_offset, log.high_watermark
    for _ in range(rounds):
        low, high = sorted(chance.randint(start, end) for _ in range(2))
        rows = headers(log, low, high)
        assert sum(row["count"] for row in rows if not row["is_control"]) == sum(1 for _ in log.read(low, high))
        assert sum(row["count"] for row in rows) == sum(1 for _ in log.read(low, high, include_control=True))
        assert all(row["last_offset"] >= low and row["base_offset"] < high for row in rows)


@pytest.mark.parametrize("partition", golden.all_partitions(), ids=lambda partition: partition.id)
def test_logs_written_by_kafka(partition: golden.Partition, tmp_path: Path) -> None:
    home = golden.copy_logdir(partition.case, tmp_path)
    with klog.Log.open(home / partition.name, read_only=True) as log:
        assert headers(log) == opened(log)
        check_counts(log, random.Random(partition.id))


@pytest.mark.parametrize("seed", range(24))
def test_dirty_logs_before_and_after_cleaning(seed: int, tmp_path: Path) -> None:
    """Transactions, empty batches, delete horizons, old formats, gaps, a log start inside a batch."""
    dirty = DirtyLog(seed)
    directory = dirty.directory(tmp_path)
    dirty.write(directory)
    config = {**dirty.config, "min.compaction.lag.ms": 0}
    with klog.Log.open(
        directory,
        config=config,
        clean_shutdown=True,
        recovery_point=dirty.end,
        log_start_offset=dirty.log_start,
        clock=ManualClock(dirty.now_ms),
    ) as log:
        for _ in range(2):
            assert headers(log) == opened(log)
            check_counts(log, random.Random(seed))
            log.compact(roll=True)


@pytest.mark.parametrize("magic", [0, 1])
def test_wrappers_of_old_formats(magic: int, tmp_path: Path) -> None:
    data = old_log(magic, 0, 60)
    with klog.Log.open(make(tmp_path / "t-0", {0: data, 60: new_batch(60, 3)}), read_only=True) as log:
        assert headers(log) == opened(log)
        assert sum(row["count"] for row in headers(log)) == 63
        check_counts(log, random.Random(magic), 60)


def test_a_truncated_log(tmp_path: Path) -> None:
    with one_log(tmp_path, segment_bytes=1000) as log:
        for number in range(40):
            log.append([(b"k", b"v" * 30)] * (number % 4 + 1), compression=("lz4", "none")[number % 2])
        log.truncate_to(70)
        log.delete_records(13)
        assert headers(log) == opened(log)
        check_counts(log, random.Random(1), 30)


def test_fields_are_selected_in_order(tmp_path: Path) -> None:
    with one_log(tmp_path) as log:
        log.append([(b"k", b"v", NOW)])
        found = log.read().batch_headers(["count", "compression"])
        assert found.fields == ("count", "compression")
        assert found.to_arrow().to_pylist() == [{"count": 1, "compression": "none"}]
        assert log.read().batch_headers().fields == tuple(FIELDS)
        for wrong, why in [(["cuont"], "'cuont', which is unknown"), ([], "one or more"), (["count"] * 2, "different")]:
            with pytest.raises(ValueError, match=why):
                log.read().batch_headers(wrong)
        with pytest.raises(TypeError, match="fields"):
            log.read().batch_headers("count")


def test_an_empty_range_has_the_schema(tmp_path: Path) -> None:
    with one_log(tmp_path) as log:
        table = log.read().batch_headers(["position", "max_timestamp"]).to_arrow()
        assert (table.num_rows, table.schema.names) == (0, ["position", "max_timestamp"])


def test_many_batches_are_several_arrays_of_one_stream(tmp_path: Path) -> None:
    with one_log(tmp_path) as log:
        one = klog.record.encode([(b"k", b"v")])
        for number in range(0, 70_000, 500):
            group = b"".join((number + n).to_bytes(8, "big") + one[8:] for n in range(500))
            log.append_batches(group, origin="replication")
        found = log.read().batch_headers()
        assert [columns.num_rows for columns in found] == [65_536, 70_000 - 65_536]
        assert found.to_arrow()["base_offset"].to_pylist() == list(range(70_000))


def test_a_topic_of_several_partitions(tmp_path: Path) -> None:
    with klog.open(tmp_path, create=True) as logs:
        logs.create_topic("t", partitions=3)
        logs.append("t", [(b"%d" % n, b"v") for n in range(90)])
        assert sum(logs.read("t").batch_headers(["count"]).to_arrow()["count"].to_pylist()) == 90


def test_polars_and_duckdb_take_it(tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb", reason="needs: duckdb")
    with one_log(tmp_path) as log:
        for codec in ("lz4", "none", "lz4"):
            log.append([(b"k", b"v")] * 5, compression=codec)
        found = log.read().batch_headers()  # noqa: F841 - duckdb finds it by its name
        query = "SELECT compression, sum(count) FROM found GROUP BY compression ORDER BY compression"
        assert duckdb.sql(query).fetchall() == [("lz4", 10), ("none", 5)]


class TestDamage:
    def log(self, path: Path) -> Path:
        with one_log(path, segment_bytes=1200) as log:
            for number in range(24):
                log.append([(b"k", b"%d" % number * 15, NOW + number)] * (1 + number % 3))
        return path / "events-0"

    def test_a_wrong_bit_in_any_header(self, tmp_path: Path) -> None:
        """If a reader that opens the batches reads all of them, headers() returns the same fields. If headers() raises,
        the reader raises, too, and the error has file, position and offset."""
        directory = self.log(tmp_path)
        file = sorted(directory.glob("*.log"))[1]
        good = file.read_bytes()
        raised = mended = 0
        for batch in list(klog.record.decode(good)):
            for byte in range(61):
                at = batch.position + byte
                file.write_bytes(good[:at] + bytes([good[at] ^ 1 << (at * 5 % 8)]) + good[at + 1 :])
                with klog.Log.open(directory, read_only=True, clean_shutdown=True) as log:
                    found, other = outcome(headers, log), outcome(opened, log)
                if isinstance(found, CorruptBatch):
                    raised += 1
                    assert isinstance(other, CorruptBatch), (byte, found, other)
                    assert (found.path, found.position is None, found.next_offset is None) == (str(file), False, False)
                elif not isinstance(other, CorruptBatch):
                    assert found == other
                    mended += byte < 8
        assert raised
        assert mended

    def test_the_batches_before_the_damage_are_returned(self, tmp_path: Path) -> None:
        directory = self.log(tmp_path)
        file = sorted(directory.glob("*.log"))[1]
        data = bytearray(file.read_bytes())
        batches = list(klog.record.decode(bytes(data)))
        data[batches[3].position + 8] = 0x70  # its length
        file.write_bytes(data)
        with klog.Log.open(directory, read_only=True, clean_shutdown=True) as log:
            found: list[int] = []
            with pytest.raises(CorruptBatch) as caught:
                found.extend(columns.num_rows for columns in log.read().batch_headers())
            before = sum(1 for _ in log.read(0, int(file.stem)).batches())
        assert sum(found) == before + 3
        assert (caught.value.path, caught.value.position) == (str(file), batches[3].position)
        assert caught.value.offset == batches[3].base_offset

    @pytest.mark.parametrize(
        ("byte", "value", "why"),
        [(22, 7, "codec bits 7"), (57, 0x7F, "records cannot be in")],
    )
    def test_impossible_fields(self, tmp_path: Path, byte: int, value: int, why: str) -> None:
        directory = self.log(tmp_path)
        file = sorted(directory.glob("*.log"))[0]
        data = bytearray(file.read_bytes())
        at = list(klog.record.decode(bytes(data)))[2].position
        data[at + byte] = value
        file.write_bytes(data)
        with klog.Log.open(directory, read_only=True, clean_shutdown=True) as log:
            with pytest.raises(CorruptBatch, match=why) as caught:
                headers(log)
            assert caught.value.position == at


def test_a_reader_beside_a_writer_that_truncates_and_rolls(tmp_path: Path) -> None:
    with one_log(tmp_path, segment_bytes=1500) as log, klog.Log.open(tmp_path / "events-0", read_only=True) as reader:
        for number in range(60):
            log.append([(b"k", b"v" * 40)] * 3)
            if number % 7 == 6:
                log.truncate_to(log.log_end_offset - 6)
            if number % 20 == 19:
                log.delete_records(log.log_start_offset + 20)
                log.apply_retention()
            rows = reader.read(isolation="log_end").batch_headers().to_arrow().to_pylist()
            assert sum(row["count"] for row in rows) == sum(1 for _ in reader.read(isolation="log_end"))
            assert rows[-1]["last_offset"] == log.log_end_offset - 1


def test_damage_after_the_range_does_not_matter(tmp_path: Path) -> None:
    """H1: whatever bit of the header after it is flipped, a reader of records returns the range."""
    with one_log(tmp_path) as log:
        for _ in range(3):
            log.append([(None, b"value", NOW)] * 5)
        path, size = Path(log.segments[0].path), log.size // 3
        whole = path.read_bytes()
        for bit in range(8 * 17):
            damaged = bytearray(whole)
            damaged[2 * size + bit // 8] ^= 1 << bit % 8
            path.write_bytes(damaged)
            assert sum(log.read(3, 10).batch_headers(["count"]).to_arrow()["count"].to_pylist()) == 7, bit
        path.write_bytes(whole)
