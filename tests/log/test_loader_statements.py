"""Loading a directory after a clean stop or a crash: the statements of Kafka's LogLoaderTest, one by one."""

from __future__ import annotations

import os
import random
import struct
from collections.abc import Sequence
from pathlib import Path

import pytest

import klog
from klog.clock import ManualClock
from klog.log.load import rebuild
from klog.log.load.damage import notable_headers
from klog.log.state.snapshots import parse_snapshot, snapshot_offsets
from klog.record import encode
from klog.record.control import marker
from klog.segment import Header, Segment, names
from tests.support.damage import flip
from tests.support.reseal import reseal

T = 1_700_000_000_000
CONFIG = {"index.interval.bytes": 100, "segment.index.bytes": 4096, "retention.ms": -1}


def data(offset: int, *, producer: int = -1, sequence: int = -1, transactional: bool = False, epoch: int = 0) -> bytes:
    return encode(
        [(b"k%d" % offset, b"v%d" % offset, T + offset)],
        base_offset=offset,
        producer_id=producer,
        producer_epoch=0 if producer >= 0 else -1,
        base_sequence=sequence,
        is_transactional=transactional,
        leader_epoch=epoch,
    )


def end(offset: int, kind: str, producer: int, *, coordinator: int = 0) -> bytes:
    return encode(
        [(*marker(kind, coordinator), T + offset)],
        base_offset=offset,
        producer_id=producer,
        producer_epoch=0,
        is_transactional=True,
        is_control=True,
        leader_epoch=0,
    )


def make(directory: Path, segments: dict[int, Sequence[bytes]]) -> Path:
    directory.mkdir(parents=True)
    for base, batches in segments.items():
        (directory / f"{base:020d}.log").write_bytes(b"".join(batches))
    return directory


def open_log(directory: Path, **options: object) -> klog.Log:
    options = {"clean_shutdown": False, "clock": ManualClock(T + 1000), **options}
    config = {**CONFIG, **options.pop("config", {})}  # type: ignore[dict-item]
    return klog.Log.open(directory, config=config, **options)  # type: ignore[arg-type]


def offsets(log: klog.Log) -> list[int]:
    return [record.offset for record in log.read()]


def closed_cleanly(directory: Path) -> Path:
    open_log(directory).close()
    return directory


def producing(directory: Path, segments: int) -> Path:
    """Two records of an idempotent producer in each segment: bases 0, 2, 4, ..."""
    return make(
        directory,
        {
            2 * n: [data(2 * n, producer=7, sequence=2 * n), data(2 * n + 1, producer=7, sequence=2 * n + 1)]
            for n in range(segments)
        },
    )


@pytest.fixture
def read_whole(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Bases of the segments that loading reads for producers and epochs, without the recovered ones."""
    bases: list[int] = []

    def counting(segment: Segment, position: int = 0) -> tuple[list[Header], bool]:
        bases.append(segment.base_offset)
        return notable_headers(segment, position)

    monkeypatch.setattr(rebuild, "notable_headers", counting)
    return bases


# ---- producers and their snapshots -----------------------------------------------------------------------------------


def test_producers_are_rebuilt_from_all_segments_before_the_recovery_point(
    tmp_path: Path, read_whole: list[int]
) -> None:
    """LC3: snapshots above the recovery point are not used; with one at the recovery point's segment no other segment
    is read. Then there are snapshots at the last four bases and the log end."""
    directory = closed_cleanly(producing(tmp_path / "t-0", 8))
    for offset in snapshot_offsets(str(directory)):
        if offset < 12:
            (directory / names.file_name(offset, ".snapshot")).unlink()
    for offset in (12, 14):  # from another log: their state is wrong
        path = directory / names.file_name(offset, ".snapshot")
        path.write_bytes((directory / names.file_name(16, ".snapshot")).read_bytes())
    read_whole.clear()
    with open_log(directory, recovery_point=8) as log:
        assert read_whole == [0, 8 - 6, 8 - 4, 8 - 2]
        assert (log.recovery.segments_scanned, log.recovery_point) == (4, 8)
        assert snapshot_offsets(str(directory)) == [6, 8, 10, 12, 14, 16][-5:]
        assert log.producers[7].last_sequence == 15
        path = str(directory / names.file_name(12, ".snapshot"))
        assert parse_snapshot(Path(path).read_bytes(), path)[7].last_sequence == 11
    read_whole.clear()
    with open_log(directory, recovery_point=14) as log:
        assert read_whole == []
        assert log.recovery.segments_scanned == 1
        assert log.producers[7].last_sequence == 15


def test_no_segment_is_read_with_a_snapshot_at_the_log_end(tmp_path: Path, read_whole: list[int]) -> None:
    """LC4: with an empty snapshot at the log end the state is empty; strays are deleted, nothing is read."""
    directory = closed_cleanly(make(tmp_path / "t-0", {0: [data(0), data(1)], 2: [data(2)]}))
    stray = directory / names.file_name(1, ".snapshot")
    stray.write_bytes((directory / names.file_name(3, ".snapshot")).read_bytes())
    read_whole.clear()
    with open_log(directory, clean_shutdown=True) as log:
        assert (read_whole, log.producers, log.recovery.segments_scanned) == ([], {}, 0)
        assert snapshot_offsets(str(directory)) == [2, 3]


@pytest.mark.parametrize(
    ("clean", "point", "kept"), [(True, 0, [2, 4, 5]), (False, 5, [2, 4, 5]), (False, 0, [1, 2, 4, 5])]
)
def test_snapshots_that_are_missing_are_written_at_the_last_bases(
    tmp_path: Path, clean: bool, point: int, kept: list[int]
) -> None:
    """UL55: after a clean stop, or with all of it flushed, at the last two bases and the log end; else at all bases."""
    directory = make(tmp_path / "t-0", {0: [data(0)], 1: [data(1)], 2: [data(2), data(3)], 4: [data(4)]})
    with open_log(directory, clean_shutdown=clean, recovery_point=point):
        assert snapshot_offsets(str(directory)) == kept


@pytest.mark.parametrize("clean", [True, False])
def test_stray_snapshots_are_deleted(tmp_path: Path, clean: bool) -> None:
    """LC8, UL54: one at which no segment begins, and one beyond the log end."""
    directory = closed_cleanly(make(tmp_path / "t-0", {0: [data(0)], 1: [data(1)], 2: [data(2), data(3)], 4: []}))
    assert snapshot_offsets(str(directory)) == [1, 2, 4]
    for stray in (3, 9):
        path = directory / names.file_name(stray, ".snapshot")
        path.write_bytes((directory / names.file_name(4, ".snapshot")).read_bytes())
    with open_log(directory, clean_shutdown=clean):
        assert snapshot_offsets(str(directory)) == [1, 2, 4]


def without(directory: Path, *snapshots: int) -> Path:
    for offset in snapshots:
        (directory / names.file_name(offset, ".snapshot")).unlink()
    return directory


def test_a_load_replays_from_the_newest_snapshot_on(tmp_path: Path, read_whole: list[int]) -> None:
    """B3: no segment before it, and with it the batch that begins at its offset."""
    directory = closed_cleanly(make(tmp_path / "t-0", {n: [data(n, producer=0, sequence=n)] for n in range(4)}))
    without(directory, 4)
    read_whole.clear()
    with open_log(directory, clean_shutdown=True) as log:
        assert (read_whole, log.producers[0].last_sequence) == ([3], 3)


def test_a_load_reads_no_empty_segment(tmp_path: Path, read_whole: list[int]) -> None:
    directory = make(tmp_path / "t-0", {0: [data(0, producer=7, sequence=0), data(1)], 2: [], 4: [data(4)]})
    with open_log(directory, clean_shutdown=True, config={"cleanup.policy": "compact"}, recovery="kafka") as log:
        assert (read_whole, sorted(log.producers)) == ([0, 4], [7])


def test_snapshots_after_a_gap_are_at_base_offsets(tmp_path: Path) -> None:
    """B2."""
    directory = make(tmp_path / "t-0", {0: [data(0), data(1)], 5: [data(5)], 9: [data(9)]})
    with open_log(directory, config={"cleanup.policy": "compact"}):
        assert snapshot_offsets(str(directory)) == [5, 9, 10]


def test_recovery_knows_the_last_five_batches_of_a_producer_in_any_segment(tmp_path: Path) -> None:
    """A snapshot has only the last one."""
    with open_log(producing(tmp_path / "t-0", 3)) as log:
        assert log.append_batches(data(0, producer=7, sequence=1)).first_offset == 1
        assert log.log_end_offset == 6


@pytest.mark.parametrize("clean", [True, False])
def test_a_load_forgets_expired_producers_that_it_has_replayed(tmp_path: Path, clean: bool) -> None:
    directory = without(closed_cleanly(producing(tmp_path / "t-0", 2)), 4)
    with open_log(directory, clean_shutdown=clean, clock=ManualClock(T + 2 * 86_400_000)) as log:
        assert log.producers == {}


def test_a_cut_at_the_base_offset_of_a_removed_segment(tmp_path: Path) -> None:
    """The snapshot there went with the segment."""
    directory = closed_cleanly(make(tmp_path / "t-0", {0: [data(0), data(1)], 2: [data(2)], 3: [data(3)]}))
    with open(directory / names.file_name(0, ".log"), "ab") as file:
        file.write(b"junk")
    with open_log(directory, recovery="kafka", recovery_point=0) as log:
        assert (log.log_end_offset, snapshot_offsets(str(directory))) == (2, [2])


@pytest.mark.parametrize("kind", ["truncated", "link"])
def test_an_unusable_snapshot_that_no_load_reads_is_removed(tmp_path: Path, kind: str) -> None:
    directory = closed_cleanly(make(tmp_path / "t-0", {0: [data(0)], 1: [data(1)], 2: [data(2)]}))
    path = without(directory, 2) / names.file_name(2, ".snapshot")
    path.write_bytes(b"\0" * 13) if kind == "truncated" else path.symlink_to("nowhere")
    with open_log(directory, clean_shutdown=True):
        assert snapshot_offsets(str(directory)) == [1, 3]


# ---- recovery point, indexes -----------------------------------------------------------------------------------------


def index_entries(log: klog.Log) -> list[list[tuple[int, int]]]:
    return [
        [segment.index.entry(i) for i in range(segment.index.entries)]
        + [segment.index.time_entry(i) for i in range(segment.index.time_entries)]
        for segment in log.segments
    ]


def test_reopening_changes_neither_the_log_end_nor_the_indexes(tmp_path: Path) -> None:
    """LC9: with a recovery point at the log end or far below; it stays until a flush."""
    directory = make(tmp_path / "t-0", {base: [data(n) for n in range(base, base + 20)] for base in range(0, 100, 20)})
    with open_log(directory) as log:
        before, log_end = index_entries(log), log.log_end_offset
        assert any(before)
    for point in (log_end, 10):
        with open_log(directory, recovery_point=point) as log:
            assert (log.log_end_offset, index_entries(log), log.recovery_point) == (log_end, before, point)
            log.flush()
            assert log.recovery_point == log_end


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("damage", ["deleted", "garbage", "emptied"])
def test_missing_indexes_are_rebuilt(tmp_path: Path, damage: str, clean: bool) -> None:
    """LC10: every offset and every time of 200 records is found."""
    directory = make(tmp_path / "t-0", {base: [data(n) for n in range(base, base + 40)] for base in range(0, 200, 40)})
    with open_log(directory) as log:
        expected = index_entries(log)
    rng = random.Random(10)
    for path in sorted(directory.glob("*.*index")):
        size = path.stat().st_size
        path.unlink()
        if damage != "deleted":
            path.write_bytes(rng.randbytes(size) if damage == "garbage" else b"")
    with open_log(directory, clean_shutdown=clean) as log:
        for offset in range(200):
            assert next(iter(log.read(offset))).offset == offset
            assert log.offset_for_timestamp(T + offset) == (T + offset, offset)
        assert index_entries(log) == expected


def test_indexes_without_a_log_are_deleted(tmp_path: Path) -> None:
    """LC11: they are deleted; those of a segment that takes appends grow to their full size."""
    directory = closed_cleanly(make(tmp_path / "t-0", {0: [data(0), data(1)]}))
    for suffix in (".index", ".timeindex", ".txnindex"):
        (directory / f"{5:020d}{suffix}").write_bytes(b"")
    with open_log(directory) as log:
        assert not list(directory.glob(f"{5:020d}.*"))
        log.append([(b"k", b"v")])
        sizes = [(directory / f"{0:020d}{suffix}").stat().st_size for suffix in (".index", ".timeindex")]
        assert sizes == [4096 // 8 * 8, 4096 // 12 * 12]


def test_random_bytes_at_the_end_are_cut(tmp_path: Path) -> None:
    """LC12: after the log and in its indexes, ten times; a recovery point of 50 is used."""
    rng = random.Random(12)
    for run in range(10):
        records = rng.randrange(50, 100)
        directory = make(tmp_path / str(run) / "t-0", {0: [data(n) for n in range(records)]})
        closed_cleanly(directory)
        for suffix in (".log", ".index", ".timeindex"):
            with open(directory / f"{0:020d}{suffix}", "ab") as file:
                file.write(rng.randbytes(rng.randrange(1, 500)))
        with open_log(directory, recovery_point=50) as log:
            assert offsets(log) == list(range(records))
            assert log.recovery_point == 50


def test_files_marked_for_deletion_are_unlinked(tmp_path: Path) -> None:
    """LC13: a crash during a deletion left them; they are unlinked and the log is unchanged."""
    directory = make(tmp_path / "t-0", {0: [data(n) for n in range(10)]})
    for name in (f"{0:020d}.index", f"{20:020d}.log", f"{20:020d}.timeindex"):
        (directory / f"{name}.deleted").write_bytes(b"old")
    with open_log(directory) as log:
        assert not list(directory.glob("*.deleted"))
        assert [segment.base_offset for segment in log.segments] == [0]
        log.truncate_to(3)
        assert offsets(log) == [0, 1, 2]


def test_a_clean_start_recovers_nothing(tmp_path: Path) -> None:
    """LC23: also where no recovery point was ever written."""
    directory = closed_cleanly(make(tmp_path / "t-0", {0: [data(0)], 1: [data(1)], 2: [data(2)]}))
    for read_only in (False, True):
        with open_log(directory, clean_shutdown=True, recovery_point=0, read_only=read_only) as log:
            found = log.recovery
            assert (log.recovery_point, log.log_end_offset) == (0 if read_only else 3, 3)
        assert (found.segments_scanned, found.bytes_scanned, found.bytes_truncated, found.seconds) == (0, 0, 0, 0)
        assert found.reason == ""


@pytest.mark.parametrize("policy", ["strict", "kafka"])
def test_a_wrong_base_offset_is_noted_and_left(tmp_path: Path, policy: str) -> None:
    """C4: the batch after it shows that it is invalid."""
    batches = [data(n) for n in range(4)]
    batches[1] = flip(batches[1], 6)
    directory = make(tmp_path / "t-0", {0: batches})
    config = {"index.interval.bytes": 4096}
    with open_log(directory, clean_shutdown=True, config=config, recovery=policy) as log:
        assert f"at byte {len(batches[0])}, left as it is" in log.recovery.reason
        assert log.log_end_offset == 4
    assert (directory / f"{0:020d}.log").read_bytes() == b"".join(batches)


def test_an_empty_last_segment(tmp_path: Path) -> None:
    """LC21: it has no indexes until they are needed. Log end and recovery point stay."""
    directory = closed_cleanly(make(tmp_path / "t-0", {0: [data(0), data(1)], 2: []}))
    for path in directory.glob(f"{2:020d}.*index"):
        path.unlink()
    for clean in (True, False):
        with open_log(directory, clean_shutdown=clean, recovery_point=2) as log:
            assert (log.log_end_offset, log.recovery_point) == (2, 2)
            log.flush()
            log.append([(b"k", b"v")]) if not clean else None
    assert {path.suffix for path in directory.glob(f"{2:020d}.*")} >= {".log", ".index", ".timeindex"}


def test_a_log_begins_with_its_first_segment(tmp_path: Path) -> None:
    """LC22: also with a lower offset in the checkpoint. (For a tiered log the checkpoint's offset is used.)"""
    directory = make(tmp_path / "t-0", {5: [data(5), data(6)], 7: [data(7)]})
    with open_log(directory, log_start_offset=0) as log:
        assert log.log_start_offset == 5


# ---- epochs, transactions --------------------------------------------------------------------------------------------


def test_epochs_removed_by_hand_are_recovered(tmp_path: Path) -> None:
    """LC17: recovery reads them from the batches."""
    batches = [data(0, epoch=1), data(1, epoch=2), data(2, epoch=2), data(3, epoch=3)]
    directory = closed_cleanly(make(tmp_path / "t-0", {0: batches}))
    (directory / "leader-epoch-checkpoint").write_bytes(b"0\n1\n1 0\n")
    with open_log(directory) as log:
        assert log.leader_epochs == [(1, 0), (2, 1), (3, 3)]


def transactions() -> dict[int, list[bytes]]:
    """Three segments. Producer 7 aborts its records at 0 and 3, 8 commits, 9 aborts its record at 6."""
    return {
        0: [data(0, producer=7, sequence=0, transactional=True), data(1, producer=8, sequence=0, transactional=True)],
        2: [data(2), data(3, producer=7, sequence=1, transactional=True), end(4, "abort", 7), end(5, "commit", 8)],
        6: [data(6, producer=9, sequence=0, transactional=True), data(7), end(8, "abort", 9), data(9)],
    }


ABORTED = [(7, 0, 4, 1), (9, 6, 8, 9)]


@pytest.mark.parametrize("how", ["torn marker", "stray entry", "damaged"])
def test_a_transaction_index_ends_with_the_log(tmp_path: Path, how: str) -> None:
    """Else an entry would abort records that are appended later."""
    directory = make(tmp_path / "t-0", {0: [*transactions()[0], data(2), end(3, "abort", 7)]})
    closed_cleanly(directory)
    file, index = directory / f"{0:020d}.log", directory / f"{0:020d}.txnindex"
    size = file.stat().st_size - 1
    if how == "torn marker":
        os.truncate(file, size)
    elif how == "damaged":
        index.write_bytes(b"\1" * 34)
    else:
        index.write_bytes(index.read_bytes() + struct.pack(">hqqqq", 0, 8, 1, 7, 8))
    with open_log(directory, clean_shutdown=True, recovery_point=0) as log:
        kept = [] if how == "torn marker" else [(7, 0, 3, 1)]
        assert log.recovery.bytes_truncated == (size - file.stat().st_size if how == "torn marker" else 0)
        assert ("a truncated batch at byte" in log.recovery.reason) == (how == "torn marker")
        assert ("transaction index rebuilt" in log.recovery.reason) == (how == "damaged")
        assert index.stat().st_size == 34 * len(kept)  # before a read corrects it
        assert [tuple(entry) for entry in log.aborted_transactions()] == kept


@pytest.mark.parametrize("how", ["all", "the last", "the last, without snapshots"])
def test_transaction_indexes_are_recovered(tmp_path: Path, how: str) -> None:
    """LC18: of all segments, or only of the last one, with snapshots or without."""
    directory = closed_cleanly(make(tmp_path / "t-0", transactions()))
    assert len(list(directory.glob("*.txnindex"))) == 2
    for path in directory.glob("*.txnindex") if how == "all" else [directory / f"{6:020d}.txnindex"]:
        path.unlink()
    for path in directory.glob("*.snapshot") if how.endswith("without snapshots") else ():
        path.unlink()
    with open_log(directory, recovery_point=0 if how == "all" else 10) as log:
        assert [tuple(entry) for entry in log.aborted_transactions()] == ABORTED
        assert [record.offset for record in log.read(isolation="read_committed")] == [1, 2, 7, 9]
    assert len(list(directory.glob("*.txnindex"))) == 2


def test_recovered_transaction_indexes_are_not_compared_again(tmp_path: Path, read_whole: list[int]) -> None:
    with open_log(make(tmp_path / "t-0", transactions())) as log:
        assert (log.aborted_transactions(), read_whole) == (ABORTED, [])


def entry(*fields: int) -> bytes:
    return struct.pack(">hqqqq", 0, *fields)


@pytest.mark.parametrize("read_only", [True, False])
@pytest.mark.parametrize(
    "stored",
    [
        pytest.param(b"", id="empty"),
        pytest.param(entry(7, 0, 3, 0) + entry(7, 0, 4, 1), id="at a batch of data"),
        pytest.param(entry(7, 0, 4, 1) + entry(8, 1, 5, 6), id="at a commit"),
        pytest.param(entry(9, 0, 4, 1), id="of another producer"),
        pytest.param(entry(7, 0, 4, 1) + entry(9, 6, 8, 9), id="in another segment"),
    ],
)
def test_batches_correct_a_transaction_index(tmp_path: Path, stored: bytes, read_only: bool) -> None:
    directory = closed_cleanly(make(tmp_path / "t-0", transactions()))
    (directory / names.file_name(2, ".txnindex")).write_bytes(stored)
    with open_log(directory, clean_shutdown=True, read_only=read_only) as log:
        assert log.aborted_transactions() == ABORTED


@pytest.mark.parametrize("byte", [8, 61, 70, None])
def test_no_damaged_marker_takes_its_index_entry_away(tmp_path: Path, byte: int | None) -> None:
    """Nor does one with a valid checksum that cannot be read, nor a missing one in an emptied segment."""
    directory = closed_cleanly(make(tmp_path / "t-0", transactions()))
    path = directory / names.file_name(2, ".log")
    marker = end(4, "abort", 7)
    damaged = flip(marker, byte or 0, 6)
    damaged = reseal(damaged) if byte == 61 else damaged
    path.write_bytes(b"" if byte is None else path.read_bytes().replace(marker, damaged))
    with open_log(directory, clean_shutdown=True, recovery="kafka", config={"cleanup.policy": "compact"}) as log:
        assert log.aborted_transactions() == ABORTED


@pytest.mark.parametrize(("kind", "kept"), [("abort", [(0, 0, 1, 2)]), ("commit", [])])
def test_an_entry_whose_records_the_cleaner_has_removed_needs_an_abort_marker(
    tmp_path: Path, kind: str, kept: list[tuple[int, ...]]
) -> None:
    directory = closed_cleanly(make(tmp_path / "t-0", {0: [end(1, kind, 0), data(2)], 3: [data(3)]}))
    (directory / names.file_name(0, ".txnindex")).write_bytes(entry(0, 0, 1, 2))
    with open_log(directory, clean_shutdown=True) as log:
        assert log.aborted_transactions() == kept


def test_a_transaction_begins_where_its_entry_says_if_a_marker_before_it_is_damaged(tmp_path: Path) -> None:
    """Else the records of the transaction that this marker committed would be hidden."""
    commit = end(1, "commit", 7)
    batches = [
        *(data(0, producer=7, sequence=0, transactional=True), commit),
        *(data(2, producer=7, sequence=1, transactional=True), end(3, "abort", 7)),
    ]
    directory = closed_cleanly(make(tmp_path / "t-0", {0: batches, 4: [data(4)]}))
    path = directory / names.file_name(0, ".log")
    path.write_bytes(path.read_bytes().replace(commit, commit[:-1] + b"\xff"))
    with open_log(directory, clean_shutdown=True) as log:
        assert log.aborted_transactions() == [(7, 2, 3, 4)]


def test_a_load_rewrites_a_transaction_index_with_an_invalid_format(tmp_path: Path) -> None:
    directory = closed_cleanly(make(tmp_path / "t-0", transactions()))
    path = directory / names.file_name(2, ".txnindex")
    sound = path.read_bytes()
    path.write_bytes(b"\1" + sound[1:])
    with open_log(directory, clean_shutdown=True) as log:
        assert path.read_bytes() == sound
        assert [text.partition(":")[0] for text in log.recovery.details] == ["transaction index rebuilt"]


def test_the_state_before_a_segment_has_no_batch_that_claims_to_be_in_it(tmp_path: Path) -> None:
    """R1 of producers.py. The base offset of the first marker, 2, has a wrong bit."""
    batches = [data(0, producer=7, sequence=0, transactional=True), data(1), end(3, "abort", 7)]
    later = [data(3, producer=7, sequence=1, transactional=True), end(4, "abort", 7)]
    with open_log(make(tmp_path / "t-0", {0: batches, 3: later}), clean_shutdown=True, read_only=True) as log:
        assert log.aborted_transactions(3) == [(7, 0, 4, 5)]


def test_a_transaction_index_at_the_log_start_is_rebuilt_without_the_snapshot_there(tmp_path: Path) -> None:
    """B5: where the transactions below the log start began is not known any more."""
    directory = closed_cleanly(make(tmp_path / "t-0", transactions()))
    for suffix in (".log", ".index", ".timeindex"):
        (directory / names.file_name(0, suffix)).unlink()
    (directory / names.file_name(2, ".txnindex")).unlink()
    with open_log(directory, clean_shutdown=True, read_only=True, log_start_offset=2) as log:
        assert log.aborted_transactions() == [(7, 3, 4, 5), ABORTED[1]]


# ---- below the log start ---------------------------------------------------------------------------------------------


def restart_at_four(directory: Path, **options: object) -> klog.Log:
    """Nine segments of a record each, the first one damaged, and a log start of 4."""
    make(directory, {n: [data(n)] for n in range(9)})
    closed_cleanly(directory)
    path = directory / f"{0:020d}.log"
    path.write_bytes(b"\1" * path.stat().st_size)
    return open_log(directory, log_start_offset=4, recovery_point=0, recovery="kafka", **options)


def test_a_log_that_ends_below_its_start_restarts_there(tmp_path: Path) -> None:
    """LC19: one segment at the log start, with indexes, and no earlier snapshot."""
    directory = tmp_path / "t-0"
    with restart_at_four(directory) as log:
        assert [segment.base_offset for segment in log.segments] == [4]
        assert (log.log_start_offset, log.log_end_offset) == (4, 4)
        assert snapshot_offsets(str(directory)) == []
        assert log.append([(b"k", b"v")]).first_offset == 4
        assert (directory / f"{4:020d}.index").exists()
        assert (directory / f"{4:020d}.timeindex").exists()


def test_new_files_survive_the_deletion_of_old_ones(tmp_path: Path) -> None:
    """LC20: files of the old segments are deleted after file.delete.delay.ms, snapshots of the new ones are not."""
    directory, clock = tmp_path / "t-0", ManualClock(T + 1000)
    with restart_at_four(directory, clock=clock) as log:
        for _ in range(5):
            log.append([(b"k", b"v")])
            log.roll()
        assert snapshot_offsets(str(directory)) == [5, 6, 7, 8, 9]
        assert list(directory.glob("*.deleted"))
        clock.advance(log.config.file_delete_delay_ms + 1)
        assert not list(directory.glob("*.deleted"))
        assert snapshot_offsets(str(directory)) == [5, 6, 7, 8, 9]
        assert [segment.base_offset for segment in log.segments] == [4, 5, 6, 7, 8, 9]


# ---- the cost --------------------------------------------------------------------------------------------------------


def test_the_cost_of_a_load_is_linear_in_the_number_of_segments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand segments with transactions, no snapshot, no index, no epoch file: the number of disk operations grows
    linearly with the number of segments."""
    calls = [0]

    def counted(function):  # type: ignore[no-untyped-def]
        def call(*args: object, **options: object) -> object:
            calls[0] += 1
            return function(*args, **options)

        return call

    def cost(segments: int) -> tuple[int, int]:
        steps = {
            4 * n: [
                data(4 * n, producer=7, sequence=2 * n, transactional=True),
                data(4 * n + 1, epoch=n),
                end(4 * n + 2, "abort", 7),
                data(4 * n + 3),
            ]
            for n in range(segments)
        }
        directory = make(tmp_path / f"{segments}-0", steps)
        calls[0] = 0
        with monkeypatch.context() as patch:
            for name in ("open", "listdir", "scandir", "stat", "rename", "unlink"):
                patch.setattr(os, name, counted(getattr(os, name)))
            patch.setattr(rebuild, "notable_headers", counted(notable_headers))
            patch.setattr(rebuild, "replay", counted(rebuild.replay))
            log = open_log(directory)
        opened = calls[0]
        assert len(log.aborted_transactions()) == segments
        log.close()
        return opened, calls[0]

    few, many = cost(20), cost(120)
    assert many[0] <= 6.5 * few[0]
