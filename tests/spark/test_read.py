"""Tasks: which rows a range gives, and what happens if the log has changed since the plan."""

from __future__ import annotations

import itertools
import logging
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import types as t

import klog
from klog.clock import ManualClock
from klog.errors import CorruptBatch, CorruptLog
from klog.spark.bounds import DataLoss
from klog.spark.options import Options, Reading, parse
from klog.spark.plan import Range
from klog.spark.pushdown import Pushed
from klog.spark.read import read_ranges
from klog.spark.rows import METADATA, PLAIN, arrow_schema, full_schema
from klog.spark.survey import plan_partitions
from tests.log import test_lost_ends as lost_ends
from tests.support.batches import NOW, batch, marker, transactional
from tests.support.golden import CASES, Partition, all_partitions, copy_logdir

Row = dict[str, Any]


def schema(*names: str) -> pa.Schema:
    known = {field.name: field for field in full_schema().fields}
    return arrow_schema(t.StructType([known[name] for name in names]))


def options(path: Path, **given: str) -> Options:
    return parse({"path": str(path), **given})


def planned(path: Path, **given: str) -> list[Range]:
    return [member for members in plan_partitions(options(path, **given)) for member in members]


def rows(ranges: list[Range], *names: str, reading: Reading | None = None, **more: Any) -> list[Row]:
    wanted = schema(*(names or ("offset",)))
    found = []
    for part in read_ranges(ranges, wanted, reading, **more):
        assert part.schema.equals(wanted, check_metadata=True)
        part.validate(full=True)
        found += part.to_pylist()
    return found


def query(path: Path, *names: str, **given: str) -> list[Row]:
    """Return the rows of a query with these options."""
    reading = replace(options(path, **given).reading, include_control="isControl" in names)
    return rows(planned(path, **given), *names, reading=reading)


def offsets(path: Path, **given: str) -> list[int]:
    return [row["offset"] for row in query(path, "offset", **given)]


# ---- isolation and bounds --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def transactions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write two segments. Producer 1 aborts, commits, and aborts across both. Producer 2 has an open transaction."""
    directory = tmp_path_factory.mktemp("data") / "t-0"
    with klog.Log.open(directory, clock=ManualClock(NOW)) as log:
        log.append_batches(batch(2))
        log.append_batches(transactional(1, 0, 0, 2))
        log.append_batches(marker(1, 0, "abort"), origin="coordinator")  # 4
        log.append_batches(transactional(1, 0, 2, 1))
        log.append_batches(marker(1, 0, "commit"), origin="coordinator")  # 6
        log.append_batches(transactional(1, 0, 3, 2))
        log.roll()
        log.append_batches(marker(1, 0, "abort"), origin="coordinator")  # 9
        log.append_batches(batch(2))
        log.append_batches(transactional(2, 0, 0, 1))  # 12, open
        log.append_batches(batch(2))
    return directory


ALL = [0, 1, 2, 3, 5, 7, 8, 10, 11, 12, 13, 14]
COMMITTED = [0, 1, 5, 10, 11]


@pytest.mark.parametrize(
    ("checkpoint", "given", "expected"),
    [
        (None, {}, ALL),
        (None, {"isolationLevel": "read_uncommitted"}, ALL),
        (None, {"isolationLevel": "read_committed"}, COMMITTED),
        (None, {"kafka.isolation.level": "read_committed"}, COMMITTED),
        (None, {"upTo": "lastStableOffset"}, [offset for offset in ALL if offset < 12]),
        (None, {"upTo": "lastStableOffset", "isolationLevel": "read_committed"}, COMMITTED),
        (None, {"upTo": "logEndOffset"}, ALL),
        (None, {"upTo": "logEndOffset", "isolationLevel": "read_committed"}, COMMITTED),
        (8, {}, [0, 1, 2, 3, 5, 7]),
        (8, {"upTo": "highWatermark"}, [0, 1, 2, 3, 5, 7]),
        # The marker of 7 and 8 is above the high watermark: they are not stable yet.
        (8, {"upTo": "lastStableOffset"}, [0, 1, 2, 3, 5]),
        (8, {"isolationLevel": "read_committed"}, [0, 1, 5]),
        (8, {"upTo": "logEndOffset"}, ALL),
        (8, {"upTo": "logEndOffset", "isolationLevel": "read_committed"}, COMMITTED),
        (8, {"upTo": "logEndOffset", "endingOffsets": '{"t":{"0":11}}'}, [offset for offset in ALL if offset < 11]),
    ],
)
def test_up_to_and_isolation(
    transactions: Path, tmp_path: Path, checkpoint: int | None, given: dict[str, str], expected: list[int]
) -> None:
    directory = Path(shutil.copytree(transactions.parent, tmp_path / "data"))
    if checkpoint is not None:
        (directory / "replication-offset-checkpoint").write_text(f"0\n1\nt 0 {checkpoint}\n")
    before = sorted(path.name for path in directory.rglob("*"))
    assert offsets(directory, **given) == expected
    assert sorted(path.name for path in directory.rglob("*")) == before


def test_a_start_beyond_the_bound_is_an_error_unless_it_is_relative_to_the_end(transactions: Path) -> None:
    with pytest.raises(klog.KlogError, match="offset 13 is outside t-0"):
        offsets(transactions, isolationLevel="read_committed", startingOffsets='{"t":{"0":13}}')
    assert offsets(transactions, isolationLevel="read_committed", startingOffsets="-3") == [10, 11]


def test_committed_stays_committed_when_the_checkpoint_falls(transactions: Path, tmp_path: Path) -> None:
    """T1: a retry uses the bound of the plan, not the last stable offset at the time of the retry."""
    directory = Path(shutil.copytree(transactions.parent, tmp_path / "data"))
    ranges = planned(directory, isolationLevel="read_committed")
    (directory / "replication-offset-checkpoint").write_text("0\n1\nt 0 2\n")
    assert [row["offset"] for row in rows(ranges, "offset", reading=Reading(committed=True))] == COMMITTED


@pytest.mark.parametrize("fail_on_data_loss", [True, False])
def test_a_transaction_whose_marker_was_truncated_is_not_committed(
    transactions: Path, tmp_path: Path, fail_on_data_loss: bool
) -> None:
    """Of a plan from before the truncation, when other records are where the marker was."""
    directory = Path(shutil.copytree(transactions.parent, tmp_path / "data"))
    ranges = planned(directory, isolationLevel="read_committed")
    with klog.open(directory) as logs:
        logs.log("t").truncate_to(6)  # the commit of 5
        logs.log("t").append_batches(batch(9))
    reading = Reading(committed=True, fail_on_data_loss=fail_on_data_loss)
    if fail_on_data_loss:
        with pytest.raises(DataLoss, match="a transaction is open there from offset 5 on: the log was truncated since"):
            rows(ranges, "offset", reading=reading)
    else:
        assert [row["offset"] for row in rows(ranges, "offset", reading=reading)] == [0, 1]


Step = tuple[int, str, int]


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.sampled_from(["send", "commit", "abort", "roll"]), st.integers(1, 3)),
        max_size=30,
    ),
    st.integers(0, 3),
)
def test_committed_rows_are_those_of_a_model(
    tmp_path_factory: pytest.TempPathFactory, steps: list[Step], cut: int
) -> None:
    """Producer 0 writes without transactions."""
    directory = tmp_path_factory.mktemp("model") / "t-0"
    held: dict[int, list[int]] = {}
    sequences: dict[int, int] = {}
    committed: set[int] = set()
    data: list[int] = []
    with klog.Log.open(directory, clock=ManualClock(NOW)) as log:
        for producer, action, count in steps:
            at = log.log_end_offset
            if action == "roll":
                log.roll()
            elif action == "send" and producer == 0:
                log.append_batches(batch(count))
                committed.update(range(at, at + count))
                data += range(at, at + count)
            elif action == "send":
                log.append_batches(transactional(producer, 0, sequences.get(producer, 0), count))
                sequences[producer] = sequences.get(producer, 0) + count
                held.setdefault(producer, []).extend(range(at, at + count))
                data += range(at, at + count)
            elif producer in held:
                log.append_batches(marker(producer, 0, action), origin="coordinator")
                mine = held.pop(producer)
                if action == "commit":
                    committed.update(mine)
        end = log.log_end_offset
    stable = min((mine[0] for mine in held.values()), default=end)
    expected = [offset for offset in data if offset in committed and offset < stable]
    given_ = (
        {"isolationLevel": "read_committed", "minPartitions": "50"} if cut else {"isolationLevel": "read_committed"}
    )
    assert offsets(directory, **given_) == expected
    assert offsets(directory) == data
    shutil.rmtree(directory)


# ---- golden directories ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    home = tmp_path_factory.mktemp("golden")
    return {case: copy_logdir(case, home) for case in CASES}


def _of(partition: Partition, golden: dict[str, Path], **more: str) -> tuple[Path, dict[str, str]]:
    return golden[partition.case] / partition.name, {"upTo": "logEndOffset", **more}


@pytest.mark.parametrize("partition", all_partitions(), ids=lambda partition: partition.id)
def test_every_column_of_what_kafka_wrote(partition: Partition, golden: dict[str, Path]) -> None:
    """All columns, also of control records, are compared with Kafka's own reader."""
    path, given_ = _of(partition, golden)
    if partition.entry["records_file"] is None:
        pytest.skip("needs: a records file")
    names = (*PLAIN, "headers", *METADATA)
    start, end = partition.entry["log_start_offset"], partition.entry["log_end_offset"]
    found = query(path, *names, **given_)
    expected = [
        (record, codec)
        for record, codec in zip(partition.records, partition.codecs, strict=True)
        if start <= record.offset < end
    ]
    assert [row["offset"] for row in found] == [record.offset for record, _ in expected]
    for row, (record, codec) in zip(found, expected, strict=True):
        assert (row["topic"], row["partition"]) == (partition.topic, partition.number)
        assert (row["key"], row["value"]) == (record.key, record.value)
        assert row["headers"] == ([{"key": k, "value": v} for k, v in record.headers] or None)
        assert {0: "create", 1: "append", -1: "none"}[row["timestampType"]] == record.timestamp_type
        assert (
            row["timestamp"] is None
            if record.timestamp < 0
            else row["timestamp"].timestamp() * 1000 == record.timestamp
        )
        assert row["leaderEpoch"] == record.leader_epoch
        assert (row["producerId"], row["producerEpoch"], row["sequence"]) == (
            record.producer_id,
            record.producer_epoch,
            record.sequence,
        )
        assert (row["isTransactional"], row["isControl"]) == (record.is_transactional, record.control_type is not None)
        assert row["codec"] == codec
        assert row["crcValid"] is True
        assert row["batchBaseOffset"] <= row["offset"]
        with open(path / row["segment"], "rb") as file:
            file.seek(row["batchPosition"])
            assert int.from_bytes(file.read(8)) == row["batchBaseOffset"]


@pytest.mark.parametrize("partition", all_partitions(), ids=lambda partition: partition.id)
def test_committed_rows_of_what_kafka_wrote(partition: Partition, golden: dict[str, Path]) -> None:
    path, given_ = _of(partition, golden, isolationLevel="read_committed")
    if partition.entry["read_committed"] is None or partition.entry["records_file"] is None:
        pytest.skip("needs: a records file")
    given_.pop("upTo")
    data = [record.offset for record in partition.records if record.offset >= partition.entry["log_start_offset"]]
    ranges = partition.entry["read_committed"]
    assert offsets(path, **given_) == [offset for first, last in ranges for offset in data if first <= offset <= last]


# ---- corrupt batches -------------------------------------------------------------------------------------------------

EACH, COUNT = 5, 40  # records of a batch, batches


def write(directory: Path, compression: str | None = None, segment_bytes: int = 1 << 20) -> list[tuple[Path, int, int]]:
    """Write a log of small batches. Return (file, position, base offset) of each."""
    with klog.Log.open(directory, config={"segment.bytes": segment_bytes}) as log:
        for number in range(COUNT):
            log.append([(b"k", b"value %d" % index, 1000 * number) for index in range(EACH)], compression=compression)
        written = []
        for chunk in log.read().chunks():
            for each in klog.record.decode(chunk.buffer, file_position=chunk.file_position):
                written.append((Path(chunk.path), each.position, each.base_offset))
    return written


def damage(path: Path, position: int, bit: int = 1) -> None:
    with open(path, "r+b") as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes([byte ^ bit]))


@pytest.fixture(params=[None, "lz4"], ids=["plain", "lz4"])
def damaged(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Write three segments. Batches 3, 4 and 20 have a wrong byte in their records."""
    directory = tmp_path / "t-0"
    written = write(directory, request.param, segment_bytes=2400 if request.param is None else 2000)
    for number in (3, 4, 20):
        path, position, _ = written[number]
        damage(path, position + 70)
    return directory


LOST = {3, 4, 20}
SOUND = [offset for offset in range(EACH * COUNT) if offset // EACH not in LOST]


def test_a_corrupt_batch_fails_the_task_after_the_rows_before_it(damaged: Path) -> None:
    seen: list[int] = []
    task = (seen.extend(part.column("offset").to_pylist()) for part in read_ranges(planned(damaged), schema("offset")))
    with pytest.raises(CorruptBatch, match=r"checksum.*position \d+, offset 15") as caught:
        list(task)
    assert seen == list(range(15))
    assert caught.value.__notes__ == [
        "onCorrupt=skipBatch leaves such batches out, onCorrupt=emit returns a row for each"
    ]


@pytest.mark.parametrize("tasks", ["1", "20"])
def test_corrupt_batches_are_left_out(damaged: Path, caplog: pytest.LogCaptureFixture, tasks: str) -> None:
    assert offsets(damaged, onCorrupt="skipBatch", minPartitions=tasks) == SOUND
    warned = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert [line.split()[2] for line in warned] == ["offsets=[15,20)", "offsets=[20,25)", "offsets=[100,105)"]
    assert all("event=corrupt_batch partition=t-0" in line and "position" in line for line in warned)


def test_corrupt_batches_as_rows(damaged: Path) -> None:
    """There is one row for each corrupt batch."""
    found = query(damaged, *PLAIN, "headers", *METADATA, onCorrupt="emit")
    good = [row for row in found if row["crcValid"]]
    bad = [row for row in found if row["crcValid"] is False]
    assert [row["offset"] for row in good] == SOUND
    assert [row["offset"] for row in found] == sorted(row["offset"] for row in found)
    assert [row["offset"] for row in bad] == [15, 20, 100]
    for row in bad:
        position, segment = row.pop("batchPosition"), row.pop("segment")
        with open(damaged / segment, "rb") as file:
            file.seek(position)
            assert int.from_bytes(file.read(8)) == row["offset"]
        known = {"topic": "t", "partition": 0, "offset": row["offset"], "crcValid": False}
        assert row == {name: known.get(name) for name in row}


def test_without_verification_a_wrong_checksum_passes(tmp_path: Path) -> None:
    """crcValid is still computed. Records that cannot be parsed still raise an error."""
    directory = tmp_path / "t-0"
    path, position, _ = write(directory)[3]
    damage(path, position + 17)  # in the checksum
    with pytest.raises(CorruptBatch):
        offsets(directory)
    assert offsets(directory, verifyCrc="false") == list(range(EACH * COUNT))
    found = query(directory, "offset", "crcValid", verifyCrc="false")
    assert [row["offset"] for row in found if not row["crcValid"]] == list(range(15, 20))
    damage(path, position + 61, 0x40)  # the length of the first record
    with pytest.raises(CorruptBatch):
        offsets(directory, verifyCrc="false")
    assert offsets(directory, verifyCrc="false", onCorrupt="skipBatch") == [*range(15), *range(20, EACH * COUNT)]


@pytest.mark.parametrize("at", [8, 11, 16, 3, 0, 23, 26, 57, 60])
def test_damage_in_a_header(tmp_path: Path, at: int) -> None:
    """Damage to length, magic, base offset, last offset or count: all returned rows are correct, also those after it."""
    directory = tmp_path / "t-0"
    path, position, _ = write(directory, segment_bytes=2400)[5]
    damage(path, position + at, 0x20)
    found = query(directory, "offset", "value", onCorrupt="skipBatch")
    for row in found:
        assert row["value"] == b"value %d" % (row["offset"] % EACH)
    left = [row["offset"] for row in found]
    assert left == sorted(left)
    assert set(left) <= set(range(EACH * COUNT))
    assert set(range(25)) <= set(left)
    assert left[-1] == EACH * COUNT - 1
    if at in (0, 3, 16):
        # Outside the checksum: the offset index gives the base offset, and a newer magic is read as 2, as in Kafka.
        assert left == offsets(directory) == list(range(EACH * COUNT))
    else:
        with pytest.raises(CorruptBatch):
            offsets(directory)


def test_a_search_by_time_that_comes_to_a_corrupt_batch(damaged: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Its records are unknown, so it counts as one with the time: a read begins there, or ends there."""
    with pytest.raises(CorruptBatch, match="checksum") as caught:
        offsets(damaged, startingTimestamp="3000")
    assert caught.value.__notes__ == ["onCorrupt=skipBatch begins, or ends, at this batch"]
    assert offsets(damaged, onCorrupt="skipBatch", startingTimestamp="3000") == [each for each in SOUND if each > 15]
    assert offsets(damaged, onCorrupt="skipBatch", endingTimestamp="20000") == [each for each in SOUND if each < 100]
    assert "event=corrupt_batch timestamp=20000" in caplog.text


@pytest.mark.parametrize(("at", "bit"), [(11, 1), (11, 7), (10, 1), (16, 0x80), (23, 1)])
def test_a_search_by_time_that_comes_to_bytes_that_are_no_batch(tmp_path: Path, at: int, bit: int) -> None:
    """Also if a wrong length makes a batch of them: the offset in such bytes means nothing. The search comes to the one
    after the batches before them."""
    directory = tmp_path / "t-0"
    path, position, base = write(directory, segment_bytes=2400)[7]
    damage(path, position + at, bit)
    with pytest.raises(CorruptBatch) as caught:
        offsets(directory, startingTimestamp="9000")
    assert caught.value.__notes__ == ["onCorrupt=skipBatch begins, or ends, at this batch"]
    found = offsets(directory, onCorrupt="skipBatch", startingTimestamp="9000")
    assert base <= found[0] <= base + 2 * EACH and found[-1] == EACH * COUNT - 1
    assert offsets(directory, onCorrupt="skipBatch", endingTimestamp="9000") == list(range(base))


@pytest.mark.parametrize("tasks", ["1", "20"])
@pytest.mark.parametrize(("at", "bit"), [(8, 0x40), (10, 1), (11, 0x20), (16, 2), (23, 0x40)])
def test_damage_after_the_last_index_entry(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, at: int, bit: int, tasks: str
) -> None:
    """Length, magic or last offset of a batch near the end of the last segment: reads go on after it, to the end."""
    directory = tmp_path / "t-0"
    path, position, base = write(directory)[COUNT - 4]
    assert len(list(directory.glob("*.log"))) == 1
    damage(path, position + at, bit)
    with pytest.raises(CorruptLog) as caught:
        offsets(directory, minPartitions=tasks)
    assert caught.value.__notes__ == ["onCorrupt=skipBatch reads the log past the damage"]
    left = [*range(base), *range(base + EACH, EACH * COUNT)]
    assert offsets(directory, onCorrupt="skipBatch", minPartitions=tasks) == left
    assert "event=damaged_log partition=t-0 reason=" in caplog.text
    found = query(tmp_path, "offset", "crcValid", "batchPosition", onCorrupt="emit", minPartitions=tasks)
    assert [row["offset"] for row in found if row["crcValid"]] == left
    assert [row["offset"] for row in found if not row["crcValid"]] == [base]
    end = {"endingOffsets": f'{{"t":{{"0":{base + EACH + 1}}}}}'}
    assert offsets(directory, onCorrupt="skipBatch", **end) == [*range(base), base + EACH]


def test_damage_below_the_high_watermark_does_not_raise_it(tmp_path: Path) -> None:
    """Records after the damage are read up to the high watermark that the checkpoint has."""
    directory = tmp_path / "t-0"
    path, position, base = write(directory)[COUNT - 4]
    damage(path, position + 8, 0x40)
    (tmp_path / "replication-offset-checkpoint").write_text(f"0\n1\nt 0 {base + EACH + 1}\n")
    expected = [*range(base), base + EACH]
    assert offsets(tmp_path, onCorrupt="skipBatch") == expected
    assert offsets(tmp_path, onCorrupt="skipBatch", upTo="logEndOffset") == [*expected, *range(base + EACH + 1, 200)]


# ---- lost segments ---------------------------------------------------------------------------------------------------


def lose(directory: Path, batches: int | None) -> tuple[int, int]:
    """Write a log, and cut a segment in the middle after so many batches of one record each; None: remove its file.
    Returns its base offset and that of the next one."""
    bases = lost_ends.written(directory)
    base, following = bases[lost_ends.LOST], bases[lost_ends.LOST + 1]
    if batches is None:
        (directory / f"{base:020d}.log").unlink()
    else:
        lost_ends.cut(directory, base, batches)
    return base, following


@pytest.mark.parametrize("tasks", ["1", "20"])
def test_the_lost_end_of_a_segment_is_a_corrupt_batch(tmp_path: Path, tasks: str) -> None:
    base, following = lose(tmp_path / "t-0", 1)
    left = [*range(base + 1), *range(following, len(lost_ends.OFFSETS))]
    with pytest.raises(CorruptBatch, match=f"records up to {following - 1} were lost") as caught:
        offsets(tmp_path, minPartitions=tasks)
    assert "onCorrupt=skipBatch leaves such batches out" in caught.value.__notes__[0]
    assert offsets(tmp_path, onCorrupt="skipBatch", minPartitions=tasks) == left
    found = query(tmp_path, "offset", "crcValid", "segment", onCorrupt="emit", minPartitions=tasks)
    assert [row["offset"] for row in found if row["crcValid"]] == left
    assert [(row["offset"], row["segment"]) for row in found if not row["crcValid"]] == [(base + 1, f"{base:020d}.log")]


@pytest.mark.parametrize("batches", [0, None], ids=["empty", "missing"])
@pytest.mark.parametrize("name", [".", "t-0"], ids=["log.dir", "partition"])
def test_a_lost_segment_is_refused_or_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, batches: int | None, name: str
) -> None:
    base, following = lose(tmp_path / "t-0", batches)
    with pytest.raises(CorruptLog, match=f"the segment that begins at {base} is") as caught:
        offsets(tmp_path / name)
    assert caught.value.__notes__ == ["onCorrupt=skipBatch reads the log without that segment"]
    left = [*range(base), *range(following, len(lost_ends.OFFSETS))]
    assert offsets(tmp_path / name, onCorrupt="skipBatch") == left
    assert f"event=lost_segment offset={base}" in caplog.text
    rows_ = [(row["offset"], row["crcValid"]) for row in query(tmp_path / name, "offset", "crcValid", onCorrupt="emit")]
    lost = [] if batches is None else [(base, False)]  # nothing is where the file of a missing one was
    assert rows_ == sorted([*((offset, True) for offset in left), *lost])


def test_what_else_a_log_with_a_lost_segment_leaves_out_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Here an invalid batch of the last segment, with valid ones after it."""
    directory = tmp_path / "t-0"
    base, following = lost_ends.written(directory)[lost_ends.LOST :][:2]
    with klog.Log.open(directory, config={"segment.bytes": 420}) as log:  # no index entry leads past the damage
        end = log.log_end_offset
        for _ in range(3):
            log.append([(b"k", b"v")])
    (directory / f"{base:020d}.log").unlink()
    active = directory / f"{end:020d}.log"
    damage(active, 8, 0x40)  # in the length of the first batch
    assert offsets(tmp_path, onCorrupt="skipBatch") == [*range(base), *range(following, end), end + 1, end + 2]
    assert f"event=damaged_log partition=t-0 reason='{active}" in caplog.text
    assert f"the log goes on at offset {end + 1}" in caplog.text


def test_a_query_does_not_open_what_it_does_not_read(tmp_path: Path) -> None:
    lose(tmp_path / "t-0", 0)
    with klog.open(tmp_path) as logs:
        logs.create_topic("sound")
        logs.append("sound", [(b"k", b"v")] * 3)
    assert offsets(tmp_path, subscribe="sound") == offsets(tmp_path, assign='{"sound":[0]}') == [0, 1, 2]
    assert offsets(tmp_path, subscribePattern="^s") == [0, 1, 2]
    with pytest.raises(CorruptLog):
        offsets(tmp_path)


# ---- data loss -------------------------------------------------------------------------------------------------------


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    with klog.open(tmp_path / "data", create=True) as logs:
        logs.create_topic("t", config={"segment.bytes": 2400})
    write(tmp_path / "data" / "t-0", segment_bytes=2400)
    return tmp_path / "data"


def _recreate(path: Path) -> None:
    with klog.open(path) as logs:
        logs.delete_topic("t")
        logs.create_topic("t")
        logs.log("t").append([(None, b"other")] * 10)


def _remove_first_segment(path: Path) -> None:
    for file in (path / "t-0").glob("0" * 20 + ".*"):
        file.unlink()


def _truncate(path: Path) -> None:
    with klog.open(path) as logs:
        logs.log("t").truncate_to(100)


def _diverge(path: Path) -> None:
    """A later leader wrote other records from offset 100 on."""
    with klog.open(path) as logs:
        log = logs.log("t")
        log.truncate_to(100)
        for _ in range(100):
            log.append_batches(batch(5), leader_epoch=7)


def _delete(path: Path) -> None:
    shutil.rmtree(path / "t-0")


def _lead(path: Path) -> None:
    """A later leader has begun to write other records from offset 100 on, fewer than were there."""
    with klog.open(path) as logs:
        log = logs.log("t")
        log.truncate_to(100)
        log.append_batches(batch(5), leader_epoch=7)


def _tear(path: Path) -> None:
    """The file lost its last bytes: the last batch has five records."""
    last = max((path / "t-0").glob("*.log"))
    with open(last, "r+b") as file:
        file.truncate(last.stat().st_size - 10)


LOSSES = [
    (_remove_first_segment, r"now holds \[\d+, 200\): retention or a delete has removed the beginning", lambda at: range(at, 200)),
    (_truncate, r"now holds \[0, 100\): the log was truncated", lambda _: range(100)),
    (_diverge, r"leader epoch 0 ends at 100, before the planned end: .* later leader", lambda _: range(100)),
    (_lead, r"leader epoch 0 ends at 100, before the planned end: .* later leader", lambda _: range(100)),
    (_tear, r"now holds \[0, 195\): damage was found in it .*a truncated batch at byte \d+", lambda _: range(195)),
    (_recreate, r"now holds the topic with id .*: the topic was deleted and created again", lambda _: range(0)),
    (_delete, r"is gone: the topic was deleted, or moved", lambda _: range(0)),
]  # fmt: skip


@pytest.mark.parametrize(("change", "why", "left"), LOSSES, ids=lambda value: getattr(value, "__name__", ""))
def test_planned_offsets_that_are_gone(
    log_dir: Path, caplog: pytest.LogCaptureFixture, change: Any, why: str, left: Any
) -> None:
    ranges = planned(log_dir)
    with klog.open(log_dir, read_only=True) as logs:
        second = logs.log("t").segments[1].base_offset
    change(log_dir)
    with pytest.raises(DataLoss, match=r"t-0: planned to read \[0, 200\), but .*" + why):
        rows(ranges)
    caplog.clear()
    found = [row["offset"] for row in rows(ranges, "offset", reading=Reading(fail_on_data_loss=False))]
    assert found == list(left(second))
    lost = [record.getMessage() for record in caplog.records if "event=data_loss" in record.getMessage()]
    assert len(lost) == 1
    assert f"lost_offsets={200 - len(found)} " in lost[0]


@pytest.mark.parametrize("fail_on_data_loss", [True, False])
def test_a_log_directory_that_a_task_does_not_see_is_an_error(log_dir: Path, fail_on_data_loss: bool) -> None:
    """As on an executor without the mount: the data is not lost."""
    ranges = planned(log_dir)
    log_dir.rename(log_dir.with_name("elsewhere"))
    with pytest.raises(FileNotFoundError, match=f"{os.uname().nodename}; all executors must have access"):
        rows(ranges, "offset", reading=Reading(fail_on_data_loss=fail_on_data_loss))


def test_offsets_that_do_not_exist(log_dir: Path, caplog: pytest.LogCaptureFixture) -> None:
    with klog.open(log_dir) as logs:
        logs.log("t").delete_records(50)
    given_ = {"startingOffsets": '{"t":{"0":10}}', "endingOffsets": '{"t":{"0":300}}'}
    with pytest.raises(klog.KlogError, match=r"offset 10 is outside t-0, which holds \[50, 200\)") as caught:
        offsets(log_dir, **given_)
    assert "option 'startingOffsets': retention or a delete has removed" in caught.value.__notes__[0]
    assert offsets(log_dir, failOnDataLoss="false", **given_) == list(range(50, 200))
    assert [line.split()[2] for line in caplog.messages if "data_loss" in line] == [
        "option=startingOffsets",
        "option=endingOffsets",
    ]


def test_a_retry_reads_the_same_while_a_writer_appends_rolls_cleans_and_deletes(tmp_path: Path) -> None:
    """A task has read its first batch; the rest comes after the writer's changes. A second task reads the same."""
    with klog.open(tmp_path / "data", create=True) as logs:
        logs.create_topic("t", config={"segment.bytes": 3000, "cleanup.policy": "compact,delete", "retention.ms": -1})
        log = logs.log("t")
        for number in range(60):
            log.append([(b"k%d" % (number * 10 + index), bytes(20)) for index in range(10)])
        assert len(log.segments) > 4
        (whole,) = planned(tmp_path / "data")
        expected = [row["offset"] for row in rows([whole])]
        assert expected == list(range(600))
        middle = replace(whole, start_offset=log.segments[2].base_offset)
        tail = [offset for offset in expected if offset >= middle.start_offset]
        with klog.Log.open(log.path, read_only=True) as other:
            assert other.log_end_offset == 600
        steps = [
            lambda: [log.append([(b"new", b"x")] * 50) for _ in range(8)],
            log.roll,
            lambda: log.compact(roll=True),
            lambda: log.delete_records(middle.start_offset),
            log.apply_retention,
        ]
        for step in steps:
            running = read_ranges([middle], schema("offset"))
            first = next(running).column("offset").to_pylist()
            step()
            rest = [offset for part in running for offset in part.column("offset").to_pylist()]
            assert first + rest == tail
            assert [row["offset"] for row in rows([middle])] == tail
        assert log.log_start_offset == middle.start_offset


@pytest.mark.parametrize("fail_on_data_loss", [True, False])
def test_a_task_does_not_join_records_from_before_and_after_a_truncation(
    log_dir: Path, caplog: pytest.LogCaptureFixture, fail_on_data_loss: bool
) -> None:
    (whole,) = planned(log_dir)
    running = read_ranges([whole], schema("offset"), Reading(fail_on_data_loss=fail_on_data_loss))
    at = next(running).num_rows
    assert 5 < at < 190
    with klog.open(log_dir) as logs:
        log = logs.log("t")
        log.truncate_to(5)
        for _ in range(39):
            log.append_batches(batch(5))
    if fail_on_data_loss:
        with pytest.raises(DataLoss, match=rf"t-0 was truncated below offset {at}"):
            next(running)
    else:
        assert at + sum(part.num_rows for part in running) == 200
        assert sum("data_loss lost_offsets=0" in line for line in caplog.messages) == 1


# ---- Arrow contract, limits, metrics -------------------------------------------------------------------------------


def test_rows_after_two_gib_of_one_chunk_come_batch_by_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrow's binary has int32 offsets: a chunk with more bytes than that is decoded batch by batch."""
    directory = tmp_path / "t-0"
    write(directory)
    decode = klog.record.columns

    def small(buffer: Any, **request: Any) -> Any:
        columns = decode(buffer, **request)
        if columns.num_rows > EACH:
            raise OverflowError("one set of columns holds less than 2 GiB")
        return columns

    monkeypatch.setattr(klog.record, "columns", small)
    found = [part.column("offset").to_pylist() for part in read_ranges(planned(directory), schema("offset", "value"))]
    assert [len(part) for part in found] == [EACH] * COUNT
    assert list(itertools.chain(*found)) == list(range(EACH * COUNT))


@pytest.mark.deep
def test_two_gib_of_values_in_one_chunk(tmp_path: Path) -> None:
    """Zeros compress to almost nothing: a chunk of 1 MiB holds gigabytes."""
    size, count = 60 << 20, 37
    with klog.Log.open(tmp_path / "t-0", config={"max.message.bytes": 1 << 30}) as log:
        for _ in range(count):
            log.append([(b"k", bytes(size))], compression="zstd")
    wanted = schema("value", "offset")
    total = 0
    for number, part in enumerate(read_ranges(planned(tmp_path), wanted)):
        assert part.schema.equals(wanted)
        assert part.column("offset").to_pylist() == [number]
        total += part.column("value").nbytes
    assert total >= size * count > 1 << 31


def test_batches_handed_to_spark_are_of_limited_size(tmp_path: Path) -> None:
    with klog.Log.open(tmp_path / "t-0", config={"max.message.bytes": 1 << 30}) as log:
        log.append([(b"k", bytes(10_000))] * 10_000, compression="zstd")
    parts = list(read_ranges(planned(tmp_path), schema("value", "offset")))
    assert sum(part.num_rows for part in parts) == 10_000
    assert max(part.nbytes for part in parts) <= 17 << 20
    assert len({str(part.schema) for part in parts}) == 1


@pytest.mark.parametrize("limit", [0, 1, 7, 15, 200, 201])
def test_a_limit(tmp_path: Path, limit: int) -> None:
    write(tmp_path / "t-0")
    found = rows(planned(tmp_path), pushed=Pushed(limit=limit))
    assert [row["offset"] for row in found] == list(range(min(limit, EACH * COUNT)))


@pytest.mark.parametrize(("metrics", "level"), [("true", logging.WARNING), ("false", logging.INFO)])
def test_metrics_of_a_task(tmp_path: Path, caplog: pytest.LogCaptureFixture, metrics: str, level: int) -> None:
    write(tmp_path / "t-0")
    caplog.set_level(logging.INFO, "klog.spark")
    assert len(query(tmp_path, "offset", metrics=metrics)) == EACH * COUNT
    (line,) = [record for record in caplog.records if "event=task_read" in record.getMessage()]
    assert line.levelno == level
    size = sum(path.stat().st_size for path in (tmp_path / "t-0").glob("*.log"))
    assert f"ranges=1 rows=200 stored_bytes={size} arrow_bytes=" in line.getMessage()


def _consumed(parts: Iterator[Any]) -> int:
    return sum(part.num_rows for part in parts)


def test_without_columns_of_records_rows_are_counted(tmp_path: Path) -> None:
    write(tmp_path / "t-0")
    assert _consumed(read_ranges(planned(tmp_path), schema("codec", "topic"))) == EACH * COUNT


@pytest.mark.parametrize("keep", [1, 2])
def test_a_truncation_between_two_chunks(tmp_path: Path, keep: int) -> None:
    """One of the truncations ends the log exactly at the reader's offset."""
    directory = tmp_path / "t-0"
    with klog.Log.open(directory) as log:
        for _ in range(4):
            log.append([(b"k", bytes(700_000))])
        ranges = planned(directory)
        for fail in (True, False):
            running = read_ranges(ranges, schema("offset"), Reading(fail_on_data_loss=fail))
            assert next(running).column("offset").to_pylist() == [0]
            log.truncate_to(keep)
            if fail:
                with pytest.raises(DataLoss, match=rf"now holds \[0, {keep}\): the log was truncated"):
                    list(running)
                while log.log_end_offset < 4:
                    log.append([(b"k", bytes(700_000))])
            else:
                left = [offset for part in running for offset in part.column("offset").to_pylist()]
                assert left == list(range(1, keep))


@pytest.mark.parametrize("fail", [True, False])
def test_a_topic_that_is_created_again_between_two_chunks(tmp_path: Path, fail: bool) -> None:
    """The new log has all of the planned offsets, too."""

    def fill(value: bytes) -> None:
        logs.create_topic("t", config={"segment.bytes": 1 << 20, "file.delete.delay.ms": 0})
        for _ in range(30):
            logs.append("t", [(None, value * 100_000)])

    with klog.open(tmp_path / "data", create=True) as logs:
        fill(b"a")
        ranges = planned(tmp_path / "data")
        parts = read_ranges(ranges, schema("value"), Reading(fail_on_data_loss=fail))
        found = [next(parts)]
        logs.delete_topic("t")
        fill(b"b")
        if fail:
            with pytest.raises(DataLoss, match="the topic was deleted and created again"):
                found += parts
        else:
            found += parts
    assert {value[:1] for part in found for value in part["value"].to_pylist()} == {b"a"}


def test_several_log_directories(tmp_path: Path) -> None:
    """Partitions of one topic in two log.dirs, as a broker with two disks has them."""
    for number, home in enumerate(("a", "b")):
        (tmp_path / home).mkdir()
        with klog.Log.open(tmp_path / home / f"t-{number}") as log:
            log.append([(b"k", home.encode())] * 3)
    paths = f'["{tmp_path}/a","{tmp_path}/b"]'
    both = [member for members in plan_partitions(parse({"paths": paths})) for member in members]
    assert [(row["partition"], row["offset"], row["value"]) for row in rows(both, "partition", "offset", "value")] == [
        (number, offset, home) for number, home in enumerate((b"a", b"b")) for offset in range(3)
    ]


def test_times_that_spark_cannot_hold_are_null(tmp_path: Path) -> None:
    """Spark's timestamps are 64-bit microseconds, which cannot hold all 64-bit milliseconds."""
    times = [5, 9223372036854775, 9223372036854776, 2**62, 7]
    with klog.open(tmp_path, create=True) as logs:
        logs.create_topic("t", config={"message.timestamp.after.max.ms": 2**63 - 1})
        logs.log("t", 0).append([klog.Record(key=None, value=b"", timestamp=time) for time in times])
    (batch,) = read_ranges(planned(tmp_path), schema("timestamp", "offset"))
    expected = [5000, 9223372036854775000, None, None, 7000]
    assert batch.column("timestamp").cast(pa.int64()).to_pylist() == expected
