"""Readers as frames and Parquet files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pandas
import pyarrow.parquet as pq
import pytest

import klog
from klog.errors import CorruptBatch
from klog.progress import Event

ROWS: list[Any] = [(b"k", b"v%d" % n, 1_360_299_600_000 + n) for n in range(50)] + [(None, None, -1, [("h", b"1")])]


@pytest.fixture
def log(tmp_path: Path) -> Any:
    with klog.Log.open(tmp_path / "t-0", config={"max.message.bytes": 300}) as log:
        log.append(ROWS)
        yield log


def damage(log: klog.Log) -> None:
    """Damage the last batch."""
    with open(log.segments[0].path, "r+b") as file:
        file.seek(-30, os.SEEK_END)
        file.write(b"\xff\xff\xff")


def test_pandas_has_nullable_types(log: klog.Log) -> None:
    frame = log.read().to_pandas()
    assert {name: str(kind) for name, kind in frame.dtypes.items()} == {
        "offset": "Int64",
        "timestamp": "datetime64[ms, UTC]",
        "timestamp_type": "Int8",
        "key": "object",
        "value": "object",
        "headers": "object",
    }
    assert frame["value"].tolist() == [row[1] for row in ROWS]
    assert frame["timestamp"].isna().tolist() == [False] * 50 + [True]
    assert frame["timestamp"][49] == pandas.Timestamp(ROWS[49][2], unit="ms", tz="UTC")
    assert list(frame["headers"][50]) == [{"key": "h", "value": b"1"}] and log.read(51).to_pandas().empty


def test_parquet_has_the_same_rows_in_row_groups(log: klog.Log, tmp_path: Path) -> None:
    events: list[Event] = []
    path = tmp_path / "out.parquet"
    assert log.read().to_parquet(path, row_group_rows=20, progress=events.append) == 51
    assert pq.read_table(path) == log.read().to_arrow()
    file = pq.ParquetFile(path)
    assert [file.metadata.row_group(n).num_rows for n in range(file.num_row_groups)] == [20, 20, 11]
    assert file.metadata.row_group(0).column(0).compression == "ZSTD"
    assert (
        events[-1] == Event("export", 51, 51) and [entry.name for entry in tmp_path.iterdir()].count("out.parquet") == 1
    )

    before = path.read_bytes()
    with pytest.raises(FileExistsError, match="overwrite=True") as caught:
        log.read().to_parquet(path)
    assert caught.value.filename == str(path) and path.read_bytes() == before
    assert log.read(50).to_parquet(path, overwrite=True, compression="none") == 1
    assert log.read(51).to_parquet(tmp_path / "empty.parquet") == 0
    assert pq.read_table(tmp_path / "empty.parquet").schema == log.read().to_arrow().schema


def test_row_groups_end_at_a_size_in_memory(log: klog.Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is written while it is read: at most one chunk is gathered beyond the size."""
    monkeypatch.setattr("klog.log.read.reader.CHUNK_BYTES", 300)
    monkeypatch.setattr("klog.log.read.tables.ROW_GROUP_BYTES", 1)
    done: list[int] = []
    log.read().to_parquet(tmp_path / "out", progress=lambda event: done.append(event.done))
    batches = [batch.count for batch in log.read().batches()]
    assert done == [*(sum(batches[: n + 1]) for n in range(len(batches))), 51]


@pytest.fixture
def small_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """More than one batch is too large for a set of columns, as 2 GiB of keys or values are."""
    make = klog.record.columns

    def small(buffer: Any, **request: Any) -> Any:
        if len(list(klog.record.decode(buffer, verify_crc=False, lazy=True))) > 1:
            raise OverflowError("one set of columns holds less than 2 GiB")
        return make(buffer, **request)

    monkeypatch.setattr(klog.record, "columns", small)


@pytest.mark.usefixtures("small_columns")
def test_a_chunk_too_large_for_one_set_of_columns_is_read_batch_by_batch(log: klog.Log) -> None:
    found = list(log.read(3, 49).columns(["offset", "value"]))
    assert len(found) == len(list(log.read(3, 49).batches())) == 3
    assert log.read(3, 49).to_arrow()["value"].to_pylist() == [row[1] for row in ROWS[3:49]]
    assert log.read(decode="utf8").to_polars()["value"].to_list()[:50] == [f"v{n}" for n in range(50)]
    log.append([(b"%d" % n, b"new") for n in range(40)])
    latest = log.latest_by_key()
    assert dict(zip(*(latest.to_arrow()[name].to_pylist() for name in ("key", "value")), strict=True)) == {
        b"k": b"v49",
        **{b"%d" % n: b"new" for n in range(40)},
    }


@pytest.mark.usefixtures("small_columns")
def test_a_named_reader_goes_on_after_each_of_these_batches(tmp_path: Path) -> None:
    with klog.open(tmp_path, create=True) as logs:
        logs.create_topic("t", config={"max.message.bytes": 300})
        logs.append("t", ROWS[:50])
        position = 0
        with logs.reader("t", "name") as reader:
            for columns in reader.columns(["offset"]):
                position += columns.num_rows
                assert reader.position == {0: position}
        assert position == 50


@pytest.mark.usefixtures("small_columns")
def test_the_rows_before_damage_in_such_a_chunk(log: klog.Log) -> None:
    batches = list(log.read().batches())
    damage(log)
    sets = log.read().columns(["offset"])
    assert [next(sets).num_rows for _ in batches[:-1]] == [each.count for each in batches[:-1]]
    with pytest.raises(CorruptBatch) as caught:
        next(sets)
    assert caught.value.position == batches[-1].position and caught.value.next_offset == len(ROWS)


@pytest.mark.parametrize("method", ["to_arrow", "to_pandas", "to_polars"])
def test_damage_is_the_error_of_klog(log: klog.Log, method: str) -> None:
    damage(log)
    with pytest.raises(CorruptBatch) as caught:
        getattr(log.read(), method)()
    assert caught.value.path == log.segments[0].path and caught.value.position is not None


def test_a_failure_leaves_no_file_and_keeps_the_old_one(log: klog.Log, tmp_path: Path) -> None:
    path = tmp_path / "out.parquet"
    log.read(0, 5).to_parquet(path)
    before = path.read_bytes()
    damage(log)
    with pytest.raises(CorruptBatch):
        log.read().to_parquet(path, overwrite=True, row_group_rows=10)
    assert path.read_bytes() == before and sorted(os.listdir(tmp_path)) == [".lock", "out.parquet", "t-0"]

    def stop(event: Event) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        log.read(0, 5).to_parquet(tmp_path / "other", progress=stop)
    with pytest.raises(FileNotFoundError, match="create it first"):
        log.read().to_parquet(tmp_path / "missing" / "out")
    with pytest.raises(ValueError, match="compression='zip': choose 'zstd'"):
        log.read().to_parquet(tmp_path / "other", compression="zip")
    assert sorted(os.listdir(tmp_path)) == [".lock", "out.parquet", "t-0"]
