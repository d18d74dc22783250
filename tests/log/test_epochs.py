"""Leader epochs: the cache's rules, and that it is rebuilt from the batches when its file is lost."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import klog
from klog.clock import ManualClock
from klog.disk import RealFiles
from klog.errors import CorruptLog, InvalidTxnState, ReadOnly
from klog.log.load import batch_epochs
from klog.log.state.leader_epochs import LeaderEpochCache
from klog.record import encode
from klog.segment import Scan, scan_headers
from tests.support.abandon import abandon
from tests.support.batches import NOW, produced, transactional
from tests.support.damage import flip
from tests.support.logs import one_log


def make(tmp_path: Path, *entries: tuple[int, int]) -> LeaderEpochCache:
    epochs = LeaderEpochCache(str(tmp_path), RealFiles())
    for entry in entries:
        epochs.assign(*entry)
    return epochs


@pytest.mark.parametrize(
    ("assigned", "expected"),
    [
        ([(2, 11), (2, 12)], [(2, 11)]),
        ([(2, 9), (3, 9)], [(3, 9)]),
        ([(2, 6), (3, 5)], [(3, 5)]),
        ([(1, 5), (2, 6), (1, 7)], [(1, 7)]),
        ([(5, 11), (6, 12), (7, 13), (7, 12)], [(5, 11), (7, 12)]),
        ([(0, 0), (1, 0)], [(1, 0)]),
    ],
)
def test_assigning_epochs(tmp_path: Path, assigned: list[tuple[int, int]], expected: list[tuple[int, int]]) -> None:
    """LE2, LE3, LE4, LE5: an epoch's first start offset is kept; a later epoch with a lower start replaces entries."""
    assert make(tmp_path, *assigned).entries == expected


def test_assigning_returns_whether_the_cache_changed(tmp_path: Path) -> None:
    epochs = make(tmp_path)
    assert epochs.latest is None
    assert [epochs.assign(2, 5), epochs.assign(2, 7), epochs.assign(2, 4), epochs.assign(3, 9)] == [
        True,
        False,
        True,
        True,
    ]
    assert epochs.latest == 3


def test_recovery_adds_only_epochs_above_the_latest(tmp_path: Path) -> None:
    epochs = make(tmp_path, (2, 6))
    for epoch, start in ((-1, 7), (1, 8), (2, 9), (4, 11)):
        epochs.learn(epoch, start)
    assert epochs.entries == [(2, 6), (4, 11)]


@pytest.mark.parametrize(
    ("offset", "expected"),
    [(8, [(2, 6)]), (9, [(2, 6), (3, 8)]), (12, [(2, 6), (3, 8), (4, 11)]), (0, []), (-1, [(2, 6), (3, 8), (4, 11)])],
)
def test_truncation_from_the_end(tmp_path: Path, offset: int, expected: list[tuple[int, int]]) -> None:
    """LE9: entries that start at or above the offset are removed."""
    epochs = make(tmp_path, (2, 6), (3, 8), (4, 11))
    epochs.truncate_from_end(offset)
    assert epochs.entries == expected


@pytest.mark.parametrize(
    ("offset", "expected"),
    [
        (8, [(3, 8), (4, 11)]),
        (9, [(3, 9), (4, 11)]),
        (1, [(2, 6), (3, 8), (4, 11)]),
        (6, [(2, 6), (3, 8), (4, 11)]),
        (11, [(4, 11)]),
        (15, [(4, 15)]),
        (-1, [(2, 6), (3, 8), (4, 11)]),
    ],
)
def test_truncation_from_the_start(tmp_path: Path, offset: int, expected: list[tuple[int, int]]) -> None:
    """LE10: the epoch at the new start stays, with that start."""
    epochs = make(tmp_path, (2, 6), (3, 8), (4, 11))
    epochs.truncate_from_start(offset)
    assert epochs.entries == expected


def test_epoch_of_an_offset(tmp_path: Path) -> None:
    """LE13: the entry with the greatest start at or below it."""
    epochs = make(tmp_path, (0, 10), (1, 20), (5, 30))
    assert [epochs.epoch_for_offset(offset) for offset in (25, 20, 30, 50, 5)] == [1, 1, 5, 5, None]
    assert make(tmp_path).epoch_for_offset(0) is None


def test_an_empty_cache_has_no_epochs(tmp_path: Path) -> None:
    """LE1: no latest epoch, no end of any epoch, and nothing to truncate."""
    epochs = make(tmp_path)
    assert epochs.latest is None
    assert [epochs.end_offset_for(epoch, 100) for epoch in (-1, 0, 5)] == [(-1, -1)] * 3
    epochs.truncate_from_end(0)
    epochs.truncate_from_start(5)
    assert epochs.entries == []
    assert not Path(epochs.path).exists()


@pytest.mark.parametrize(
    ("entries", "epoch", "log_end", "expected"),
    [
        ([(2, 11), (2, 12)], 2, 14, (2, 14)),
        ([(2, 11)], -1, 14, (-1, -1)),
        ([(1, 5), (2, 6), (1, 7)], 2, 9, (-1, -1)),
        ([(5, 11), (6, 12), (7, 13)], 4, 20, (4, 11)),
        ([(5, 11), (6, 12), (7, 13), (7, 12)], 5, 20, (5, 12)),
        ([(5, 11), (6, 12), (7, 13), (7, 12)], 6, 20, (5, 12)),
        ([(0, 10), (2, 13), (4, 17)], 1, 20, (0, 13)),
        ([(0, 10), (2, 13), (4, 17)], 2, 20, (2, 17)),
        ([(0, 10), (2, 13), (4, 17)], 3, 20, (2, 17)),
        ([(0, 10), (2, 13), (4, 17)], 5, 20, (-1, -1)),
        ([(0, 0), (1, 0)], 1, 5, (1, 5)),
        ([(0, 0), (1, 0)], 0, 5, (0, 0)),
        ([(0, 0), (1, 0), (2, 5)], 2, 10, (2, 10)),
        ([(0, 0), (1, 0), (2, 5)], 1, 10, (1, 5)),
        ([(0, 0), (1, 0), (2, 5)], 0, 10, (0, 0)),
    ],
)
def test_where_an_epoch_ended(
    tmp_path: Path, entries: list[tuple[int, int]], epoch: int, log_end: int, expected: tuple[int, int]
) -> None:
    """LE2, LE4, LE5, LE6, LE8: the epoch at or below the requested one, and where the next one begins."""
    assert make(tmp_path, *entries).end_offset_for(epoch, log_end) == expected


def test_negative_epochs_and_starts_are_refused(tmp_path: Path) -> None:
    for entry in ((-1, 0), (0, -1)):
        with pytest.raises(ValueError, match="negative"):
            make(tmp_path, entry)


def test_truncations_are_written_by_a_flush(tmp_path: Path) -> None:
    """LE14: clear() and flush() empty memory and file."""
    epochs = make(tmp_path, (2, 6), (3, 8), (4, 11))
    epochs.flush()
    epochs.truncate_from_end(11)
    epochs.truncate_from_start(8)
    assert (tmp_path / "leader-epoch-checkpoint").read_text() == "0\n3\n2 6\n3 8\n4 11\n"
    epochs.flush()
    assert (tmp_path / "leader-epoch-checkpoint").read_text() == "0\n1\n3 8\n"
    epochs.clear()
    epochs.flush()
    assert epochs.entries == []
    assert (tmp_path / "leader-epoch-checkpoint").read_text() == "0\n0\n"


def test_entries_are_written_to_a_renamed_directory(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    epochs = make(tmp_path / "t", (2, 6), (4, 11))
    epochs.flush()
    (tmp_path / "t").rename(tmp_path / "moved")
    epochs.move_to(str(tmp_path / "moved"))
    epochs.assign(5, 20)
    epochs.flush()
    assert (tmp_path / "moved" / "leader-epoch-checkpoint").read_text() == "0\n3\n2 6\n4 11\n5 20\n"
    epochs.detach()
    epochs.assign(6, 30)
    epochs.flush()
    assert "6 30" not in (tmp_path / "moved" / "leader-epoch-checkpoint").read_text()


def test_the_entries_are_read_back_from_the_file(tmp_path: Path) -> None:
    """LE7: opened again on the same file, the entries are the same."""
    epochs = make(tmp_path, (2, 6), (4, 11))
    epochs.flush()
    assert (tmp_path / "leader-epoch-checkpoint").read_text() == "0\n2\n2 6\n4 11\n"
    again = make(tmp_path)
    again.load()
    assert again.entries == epochs.entries
    again.clear()
    again.flush()
    assert (tmp_path / "leader-epoch-checkpoint").read_text() == "0\n0\n"


def test_an_unchanged_file_is_not_written_again(tmp_path: Path) -> None:
    make(tmp_path, (2, 6)).flush()
    epochs = make(tmp_path)
    epochs.load()
    before = (tmp_path / "leader-epoch-checkpoint").stat().st_ino
    epochs.flush()
    assert (tmp_path / "leader-epoch-checkpoint").stat().st_ino == before


# ---- as a log uses it -----------------------------------------------------------------------------------------------


def log_with_epochs(tmp_path: Path, interval: int = 100) -> Path:
    """Ten epochs in one segment, with index entries throughout."""
    directory = tmp_path / "t-0"
    directory.mkdir()
    batches = [encode([(b"k", b"v" * 50)] * 2, base_offset=2 * i, leader_epoch=i // 2) for i in range(20)]
    (directory / "00000000000000000000.log").write_bytes(b"".join(batches))
    with klog.Log.open(directory, config={"index.interval.bytes": interval}):
        pass
    return directory


WANTED = [(epoch, 4 * epoch) for epoch in range(10)]


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("file", [None, b"", b"0\n", b"junk", b"0\n5\n0 0\n", b"0\n1\n-1 0\n", b"1\n0\n", b"\xff\xfe"])
def test_a_lost_file_is_rebuilt_from_all_the_batches(tmp_path: Path, file: bytes | None, clean: bool) -> None:
    directory = log_with_epochs(tmp_path)
    path = directory / "leader-epoch-checkpoint"
    if file is None:
        path.unlink()
    else:
        path.write_bytes(file)
    with klog.Log.open(directory, clean_shutdown=clean, recovery_point=0, read_only=True) as log:
        assert log.leader_epochs == WANTED
    with klog.Log.open(directory, clean_shutdown=clean, recovery_point=0) as log:
        assert log.leader_epochs == WANTED
        assert ("leader epochs rebuilt: " in log.recovery.reason) == (file not in (None, b"", b"0\n"))
    assert path.read_text().startswith("0\n10\n0 0\n1 4\n")


def test_an_unclean_open_adds_what_the_file_lacks(tmp_path: Path) -> None:
    directory = log_with_epochs(tmp_path)
    (directory / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n1 4\n")
    with klog.Log.open(directory, clean_shutdown=False, recovery_point=0) as log:
        assert log.leader_epochs == WANTED


def test_a_clean_open_adds_the_epochs_of_the_scanned_tail(tmp_path: Path) -> None:
    """Kafka's file may lack the last epochs."""
    directory = log_with_epochs(tmp_path, interval=10_000)
    (directory / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n1 4\n")
    with klog.Log.open(directory, clean_shutdown=True) as log:
        assert log.leader_epochs == WANTED


def test_a_crash_before_the_first_batch_of_an_epoch_forgets_the_epoch(tmp_path: Path) -> None:
    with one_log(tmp_path):
        pass
    logs = klog.open(tmp_path)
    (tmp_path / "events-0" / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    abandon(logs)
    with one_log(tmp_path) as log:
        assert log.leader_epochs == []


# ---- what a load takes from the file, and what from the batches -------------------------------------------------------

Epochs = list[tuple[int, int]]  # (epoch, offset)
LOADS = [{"clean_shutdown": True}, {"clean_shutdown": False, "recovery_point": 0}, {"read_only": True}]


def stored(directory: Path, segments: Sequence[Epochs], entries: Epochs = ()) -> Path:  # type: ignore[assignment]
    """Segments of batches of one record, as (epoch, offset), and a file of these entries, or none."""
    directory.mkdir()
    for base, batches in zip([0, *(batches[0][1] for batches in segments[1:])], segments, strict=True):
        data = b"".join(encode([(b"k", b"v")], base_offset=offset, leader_epoch=epoch) for epoch, offset in batches)
        (directory / f"{base:020}.log").write_bytes(data)
    if entries:
        lines = [f"{epoch} {start}\n" for epoch, start in entries]
        (directory / "leader-epoch-checkpoint").write_text(f"0\n{len(lines)}\n" + "".join(lines))
    return directory


@pytest.mark.parametrize(
    ("options", "lost", "wanted"),
    [
        *((options, False, []) for options in LOADS),
        ({"clean_shutdown": False, "recovery_point": 4}, False, []),
        ({"clean_shutdown": False, "recovery_point": 0}, True, []),
        ({"clean_shutdown": False, "recovery_point": 4}, True, [0, 2]),
        ({"clean_shutdown": True}, True, [0, 2, 4]),
        ({"clean_shutdown": False, "recovery_point": 6, "log_start_offset": 6}, False, []),
    ],
)
@pytest.mark.parametrize("last", [2, -1])
def test_only_a_lost_file_makes_a_load_search_batches_for_epochs_and_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, last: int, options: dict[str, Any], lost: bool, wanted: list[int]
) -> None:
    """B1 of rebuild.py: recovery has learned those of the batches that it reads. last: the epoch of the last batch."""
    epochs = [(0, 0), (1, 2), (2, 5)] if last > 0 else [(0, 0), (1, 2)]
    if "log_start_offset" in options:
        epochs = [(epochs[-1][0], 6)]
    directory = stored(tmp_path / "t-0", [[(0, 0), (0, 1)], [(1, 2), (1, 3)], [(1, 4), (last, 5)]], epochs)
    with klog.Log.open(directory, log_start_offset=options.get("log_start_offset", 0)) as log:
        if "read_only" in options:
            epochs.append((7, 6))
            log.begin_leader_epoch(7)  # it has no record
    searched: list[int] = []

    def counting(file: Any, position: int, end: int, base: int) -> Scan:
        searched.append(base)
        return scan_headers(file, position, end, base)

    monkeypatch.setattr(batch_epochs, "scan_headers", counting)
    if lost:
        (directory / "leader-epoch-checkpoint").unlink()
    with klog.Log.open(directory, **options) as log:
        assert (log.leader_epochs, searched) == (epochs, wanted)


TWICE = [(1, 0), (1, 1), (3, 2), (3, 3), (2, 4), (2, 5)]  # two batches of an epoch above the next one


@pytest.mark.parametrize("options", LOADS, ids=str)
@pytest.mark.parametrize("first", [1, 9])
@pytest.mark.parametrize(
    ("batches", "entries", "wanted"),
    [
        pytest.param([(0, 0), (0, 1), (1, 2), (2, 3)], [(0, 0), (1, 2), (0, 1), (2, 3)], [(0, 0), (1, 2), (2, 3)], id="fell"),
        pytest.param([(0, 0), (0, 1), (3, 2), (3, 3)], [(0, 0), (3, 1)], [(0, 0), (3, 2)], id="begins too early"),
        pytest.param([(0, 0), (3, 1), (3, 2), (3, 3)], [(0, 0), (3, 2)], [(0, 0), (3, 1)], id="begins too late"),
        pytest.param([(0, 0), (0, 1), (3, 2), (3, 3)], [(0, 0), (3, 4)], [(0, 0), (3, 2)], id="begins at the end"),
        pytest.param([(0, 0), (0, 1), (0, 2)], [(1, 0)], [(0, 0)], id="too high"),
        pytest.param([(0, 0), (0, 1), (4, 2), (5, 3)], [(0, 0), (1, 2), (5, 3)], [(0, 0), (4, 2), (5, 3)], id="too low"),
        pytest.param([(1, 0), (1, 1), (1, 2), (3, 3)], [(1, 0), (3, 2)], [(1, 0), (3, 2)], id="one bit"),
        pytest.param(TWICE, [(1, 0), (2, 4)], [(1, 0), (2, 4)], id="falling batches"),
        pytest.param([(0, 0), (0, 1), (1, 6), (2, 7)], [(0, 0), (1, 4)], [(0, 0), (1, 4), (2, 7)], id="begins in a gap"),
        pytest.param([(0, 0), (2, 4), (5, 9)], [(0, 0), (2, 4), (5, 6)], [(0, 0), (2, 4), (5, 6)], id="begins after a gap"),
        pytest.param([(0, 0), (2, 8)], [(0, 0), (1, 4), (2, 6)], [(0, 0), (1, 4), (2, 6)], id="no batches are left"),
        pytest.param([(1, 0), (-1, 1), (-1, 2), (2, 3)], [(1, 0)], [(1, 0), (2, 3)], id="batches without epochs"),
    ],
)  # fmt: skip
def test_a_file_that_contradicts_batches(
    tmp_path: Path, batches: Epochs, entries: Epochs, wanted: Epochs, first: int, options: dict[str, Any]
) -> None:
    """B2: the batches are right, if more than one bit of one batch differs, and if their epochs never decrease. A start
    in a gap contradicts nothing. first: batches in the first segment."""
    directory = stored(tmp_path / "t-0", list(filter(None, (batches[:first], batches[first:]))), entries)
    with klog.Log.open(directory, config={"cleanup.policy": "compact"}, **options) as log:
        assert log.leader_epochs == wanted


@pytest.mark.parametrize("options", [LOADS[0], LOADS[2]], ids=str)
def test_no_epoch_is_learned_from_batches_with_a_base_offset_that_contradicts_others(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    """B5: here the last batch of a segment ends above the base offset of the next one."""
    segments = [[(0, 0), (0, 3)], [(3, 2), (3, 3)], [(3, 4), (3, 5)]]
    with klog.Log.open(stored(tmp_path / "t-0", segments, [(0, 0)]), **options) as log:
        assert log.leader_epochs == [(0, 0)]


@pytest.mark.parametrize(
    ("segments", "wanted"),
    [
        pytest.param([[(1, 0), (1, 1), (5, 2), (1, 3), (2, 4), (2, 5)]], [(1, 0), (2, 4)], id="within an epoch"),
        pytest.param([[(1, 0), (1, 1), (5, 2), (2, 3), (2, 4)]], [(1, 0), (2, 3)], id="between two epochs"),
        pytest.param([[(5, 0), (1, 1), (1, 2), (2, 3), (2, 4)]], [(1, 0), (2, 3)], id="the first batch"),
        pytest.param([[(5, 0), (1, 1), (2, 2), (2, 3)]], [(5, 0)], id="the first or the second batch"),
        pytest.param([[(-1, 0), (-1, 1)]], [], id="no epochs"),
        pytest.param([TWICE], [(1, 0), (3, 2)], id="two batches"),
        pytest.param([[each] for each in TWICE], [(1, 0), (3, 2)], id="two batches in two segments"),
    ],
)
def test_without_a_file_one_batch_out_of_order_has_a_wrong_epoch(
    tmp_path: Path, segments: list[Epochs], wanted: Epochs
) -> None:
    """B3."""
    with klog.Log.open(stored(tmp_path / "t-0", segments), clean_shutdown=True) as log:
        assert log.leader_epochs == wanted


def test_a_reader_that_skips_damage_opens_a_log_whose_batches_before_it_have_no_epoch(tmp_path: Path) -> None:
    directory = stored(tmp_path / "t-0", [[(0, 0), (3, 1), (3, 2)]], [(0, 0), (9, 1)])
    path = directory / f"{0:020}.log"
    path.write_bytes(flip(path.read_bytes(), 16, 0))  # the magic of the first batch
    with klog.Log.open(directory, read_only=True, recovery="skip") as log:
        assert [record.leader_epoch for record in log.read(1)] == [3, 3]


def test_a_load_leaves_no_closed_segment_open_that_it_has_read_for_epochs(tmp_path: Path) -> None:
    directory = stored(tmp_path / "t-0", [[(0, 0), (1, 1)], [(1, 2), (2, 3)], [(3, 4)]])
    klog.Log.open(directory).close()
    with klog.Log.open(directory, clean_shutdown=True) as log:
        links = (f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd"))
        paths = {os.readlink(link) for link in links if os.path.lexists(link)}
        assert not {segment.path for segment in log.segments[:-1]} & paths


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize(
    ("base", "start", "entries", "wanted"),
    [
        (0, 1, [(0, 0), (1, 2)], [(0, 1), (1, 2)]),
        (0, 3, [(0, 0), (1, 2)], [(1, 3)]),
        (1, 1, [(4, 1)], [(4, 1)]),
        (2, 2, [(0, 2), (5, 3)], [(0, 2)]),
    ],
)
def test_a_load_drops_the_epochs_outside_the_log(
    tmp_path: Path, clean: bool, base: int, start: int, entries: Epochs, wanted: Epochs
) -> None:
    """At its start, and above its end. Without a record, the last epoch begins and ends at the log end."""
    directory = stored(tmp_path / "t-0", [[(0, 0), (0, 1), (1, 2), (1, 3)]], entries)
    if base:
        (directory / f"{0:020}.log").unlink()
        (directory / f"{base:020}.log").touch()
    with klog.Log.open(directory, clean_shutdown=clean, log_start_offset=start) as log:
        assert log.leader_epochs == wanted


# ---- a wrong bit in the epoch of a batch, which no checksum covers ---------------------------------------------------

FLIPPED_EPOCHS = [(1, 0), (1, 2), (1, 4), (2, 6), (4, 8), (4, 10)]  # (epoch, base offset) of each batch


def flipped(tmp_path: Path, batches: Sequence[tuple[int, int]], number: int, byte: int, bit: int) -> Path:
    """A log of these batches, two to a segment, with one bit of the header of one batch flipped."""
    directory = tmp_path / f"t-{number * 1000 + byte * 8 + bit}"
    positions = []
    with klog.Log.open(directory, config={"segment.bytes": 240, "index.interval.bytes": 1}) as log:
        for epoch, base in batches:
            data = encode([(b"k", b"v" * 20)] * 2, base_offset=base, leader_epoch=epoch)
            log.append_batches(data, origin="replication")
            positions.append((Path(log.segments[-1].path), log.segments[-1].size - len(data)))
    path, position = positions[number]
    path.write_bytes(flip(path.read_bytes(), position + byte, bit))
    return directory


def flipped_epoch(tmp_path: Path, number: int, bit: int) -> Path:
    return flipped(tmp_path, FLIPPED_EPOCHS, number, 12 + bit // 8, bit % 8)


@pytest.mark.parametrize("options", [{"clean_shutdown": True}, {"clean_shutdown": False}, {"read_only": True}], ids=str)
@pytest.mark.parametrize("recovery", ["strict", "kafka"])
def test_a_flipped_epoch_is_not_taken_over(tmp_path: Path, recovery: Any, options: dict[str, Any]) -> None:
    wanted = [(1, 0), (2, 6), (4, 8)]
    for number in range(len(FLIPPED_EPOCHS)):
        for bit in range(32):
            directory = flipped_epoch(tmp_path, number, bit)
            with klog.Log.open(directory, recovery=recovery, recovery_point=0, **options) as log:
                assert log.leader_epochs == wanted, (number, bit)
                assert [log.end_offset_for(epoch) for epoch in (1, 2, 4)] == [(1, 6), (2, 8), (4, 12)]
                if not log.read_only:
                    log.append([(b"k", b"v")])
                    assert log.leader_epochs == wanted
                    assert next(iter(log.read(12))).leader_epoch == 4
            shutil.rmtree(directory)


def test_a_flipped_epoch_without_a_checkpoint(tmp_path: Path) -> None:
    """The neighbouring batches show the correct epoch, except for the first and the last batch. An epoch with a single
    batch may be lost."""
    for number in (0, 1, 2, 3):
        for bit in range(32):
            directory = flipped_epoch(tmp_path, number, bit)
            (directory / "leader-epoch-checkpoint").unlink()
            with klog.Log.open(directory, clean_shutdown=True) as log:
                assert max(epoch for epoch, _ in log.leader_epochs) == 4, (number, bit)
                assert number in (0, 3) or log.leader_epochs == [(1, 0), (2, 6), (4, 8)]
            shutil.rmtree(directory)


BOUNDARY = [(1, 0), (1, 2), (1, 4), (3, 6), (3, 8), (3, 10), (3, 12)]  # one bit from epoch to epoch
EPOCH_BYTE = 15


@pytest.mark.parametrize("options", [{"clean_shutdown": True}, {"clean_shutdown": False}, {"read_only": True}], ids=str)
@pytest.mark.parametrize("byte", [*range(8), EPOCH_BYTE])
def test_a_flip_beside_the_start_of_an_epoch_does_not_move_it(
    tmp_path: Path, byte: int, options: dict[str, Any]
) -> None:
    """A base offset or an epoch: both lie outside the checksum, and the checkpoint is right (B1)."""
    for number in range(len(BOUNDARY) - 1):  # nothing contradicts the base offset of the last batch
        for bit in range(8):
            directory = flipped(tmp_path, BOUNDARY, number, byte, bit)
            try:
                with klog.Log.open(directory, recovery_point=0, **options) as log:
                    assert log.leader_epochs == [(1, 0), (3, 6)], (number, bit)
            except CorruptLog:
                assert byte != EPOCH_BYTE
            shutil.rmtree(directory)


# ---- a new leader ----------------------------------------------------------------------------------------------------


def test_the_records_of_a_new_leader_have_its_epoch(tmp_path: Path) -> None:
    with one_log(tmp_path) as log:
        assert (log.leader_epoch, log.leader_epochs) == (0, [])
        log.begin_leader_epoch(2)
        assert (log.leader_epoch, log.leader_epochs) == (2, [(2, 0)])
        log.append([(None, b"a"), (None, b"b")])
        log.begin_leader_epoch(3)
        log.begin_leader_epoch(3)
        assert (log.end_offset_for(2), log.end_offset_for(3)) == ((2, 2), (3, 2))
        log.begin_leader_epoch(5)
        assert (log.leader_epoch, log.leader_epochs) == (5, [(2, 0), (5, 2)])  # 3 has no record
        assert (tmp_path / "events-0" / "leader-epoch-checkpoint").read_text() == "0\n2\n2 0\n5 2\n"
        log.append([(None, b"c")])
        log.append_batches(encode([(None, b"d")]))
        assert [record.leader_epoch for record in log.read()] == [2, 2, 5, 5]
        with pytest.raises(ValueError, match="epoch=4: at least 5 expected, the leader epoch of events-0"):
            log.begin_leader_epoch(4)
    with one_log(tmp_path) as log:
        assert (log.leader_epoch, log.leader_epochs) == (5, [(2, 0), (5, 2)])
    with klog.Log.open(tmp_path / "events-0", read_only=True) as log, pytest.raises(ReadOnly):
        log.begin_leader_epoch(6)


def test_a_truncation_leaves_the_leader_its_epoch(tmp_path: Path) -> None:
    with one_log(tmp_path) as log:
        log.append([(None, b"a")])
        log.begin_leader_epoch(5)
        log.truncate_fully_and_start_at(10)
        assert log.leader_epoch == 5
        log.append([(None, b"b")])
        assert [record.leader_epoch for record in log.read()] == [5]


def test_a_truncation_leaves_the_leader_the_epoch_of_the_records_that_it_removes(tmp_path: Path) -> None:
    with one_log(tmp_path) as log:
        for base in (0, 1):
            log.append_batches(encode([(None, b"a")], base_offset=base, leader_epoch=3 + base), origin="replication")
        log.truncate_to(1)
        assert (log.leader_epoch, log.leader_epochs) == (4, [(3, 0)])
        log.append([(None, b"b")])
        log.truncate_fully_and_start_at(0)
        log.append([(None, b"c")])
        assert [record.leader_epoch for record in log.read()] == [4]


@pytest.mark.parametrize("clean", [True, False])
def test_a_load_that_deletes_every_segment_leaves_the_leader_its_epoch(tmp_path: Path, clean: bool) -> None:
    directory = tmp_path / "t-0"
    with klog.Log.open(directory) as log:
        log.append_batches(encode([(None, b"a")]), leader_epoch=7)
    with klog.Log.open(directory, clean_shutdown=clean, recovery="kafka", log_start_offset=5) as log:
        assert (log.leader_epoch, log.log_start_offset, log.log_end_offset) == (7, 5, 5)
        log.append([(None, b"b")])
        assert [record.leader_epoch for record in log.read()] == [7]


@pytest.mark.parametrize("clean", [True, False])
def test_a_load_knows_the_epoch_of_a_leader_without_a_record(tmp_path: Path, clean: bool) -> None:
    directory = tmp_path / "t-0"
    with klog.Log.open(directory) as log:
        log.append([(None, b"a")])
        log.begin_leader_epoch(4)
    with klog.Log.open(directory, clean_shutdown=clean) as log:
        assert (log.leader_epoch, log.leader_epochs) == (4, [(0, 0)])
        log.begin_leader_epoch(4)
        assert log.leader_epochs == [(0, 0), (4, 1)]
    with klog.Log.open(directory, read_only=True) as log:
        assert log.leader_epoch == 4


def test_a_load_knows_the_epoch_of_records_that_a_crash_has_lost(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    with klog.Log.open(directory) as log:
        for epoch in range(3):
            log.begin_leader_epoch(epoch)
            log.append([(None, b"a")])
        size = log.segments[-1].size
    os.truncate(directory / f"{0:020}.log", size - 1)
    with klog.Log.open(directory, clean_shutdown=False, recovery="kafka") as log:
        assert (log.leader_epoch, log.leader_epochs, log.log_end_offset) == (2, [(0, 0), (1, 1)], 2)


@pytest.mark.parametrize("start", [5, 12])
def test_a_reader_knows_the_epoch_that_a_truncation_inside_a_gap_leaves_without_a_record(
    tmp_path: Path, start: int
) -> None:
    with one_log(tmp_path) as log:
        for base, epoch in ((0, 1), (start, 2)):
            records = [(None, b"a")] * 4
            log.append_batches(encode(records, base_offset=base, leader_epoch=epoch), origin="replication")
        log.truncate_to(start + 2)
        with klog.Log.open(log.path, read_only=True) as reader:
            assert reader.leader_epochs == [(1, 0)]
            assert (reader.leader_epoch, reader.log_end_offset) == (log.leader_epoch, 4) == (2, 4)
            log.append([(None, b"b")])
            assert [record.leader_epoch for record in reader.read()] == [1, 1, 1, 1, 2]


@pytest.mark.parametrize("clean", [True, False])
def test_loads_keep_the_epoch_of_a_leader_without_a_record(tmp_path: Path, clean: bool) -> None:
    directory = tmp_path / "t-0"
    with klog.Log.open(directory) as log:
        log.append([(None, b"a")])
        log.begin_leader_epoch(4)
    for _ in range(3):
        with klog.Log.open(directory, clean_shutdown=clean) as log:
            assert (log.leader_epoch, log.leader_epochs) == (4, [(0, 0)])
    with klog.Log.open(directory, clean_shutdown=clean) as log:
        log.append([(None, b"b")])
        log.append_batches(encode([(None, b"c")]))
        assert [record.leader_epoch for record in log.read()] == [0, 4, 4]
        assert log.leader_epochs == [(0, 0), (4, 1)]


def test_a_truncation_keeps_the_epoch_of_the_leader_above_those_of_older_records(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    with klog.Log.open(directory) as log:
        log.append([(None, b"a")])
        log.begin_leader_epoch(5)
        log.append([(None, b"b"), (None, b"c")])
        log.truncate_to(1)
        assert (log.leader_epoch, log.leader_epochs) == (5, [(0, 0)])
    for _ in range(2):
        with klog.Log.open(directory) as log:
            assert (log.leader_epoch, log.leader_epochs) == (5, [(0, 0)])
    with klog.Log.open(directory) as log:
        log.append_batches(encode([(None, b"d")]))
        log.append([(None, b"e")])
        assert [record.leader_epoch for record in log.read()] == [0, 5, 5]


@pytest.mark.parametrize("origin", ["client", "replication"])
def test_a_batch_of_an_earlier_epoch_takes_the_place_of_a_leader_without_a_record(tmp_path: Path, origin: Any) -> None:
    """Else the file would give the batch an epoch that it does not have."""
    directory = tmp_path / "t-0"
    with klog.Log.open(directory) as log:
        log.append([(None, b"a")])
        log.begin_leader_epoch(1)
    with klog.Log.open(directory) as log:
        given = {"leader_epoch": 0} if origin == "client" else {}
        batch = encode([(None, b"b")], base_offset=1 if origin == "replication" else 0, leader_epoch=0)
        log.append_batches(batch, origin=origin, **given)
        assert log.leader_epochs == [(0, 0)]
        assert (directory / "leader-epoch-checkpoint").read_text() == "0\n1\n0 0\n"
    with klog.Log.open(directory, clean_shutdown=False) as log:
        assert (log.leader_epoch, log.leader_epochs) == (0, [(0, 0)])


def test_the_log_start_leaves_the_leader_its_epoch(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    with klog.Log.open(directory) as log:
        log.append([(None, b"a"), (None, b"b")])
        log.begin_leader_epoch(3)
    for start in (1, 2):
        with klog.Log.open(directory) as log:
            log.delete_records(start)
            assert (log.leader_epoch, log.leader_epochs) == (3, [(0, start)])
    with klog.Log.open(directory) as log:
        assert log.leader_epoch == 3
        log.append([(None, b"c")])
        assert [record.leader_epoch for record in log.read()] == [3]


def test_a_refused_batch_leaves_the_epoch_of_the_leader_in_the_file(tmp_path: Path) -> None:
    directory, clock = tmp_path / "t-0", ManualClock(NOW)
    with klog.Log.open(directory, clock=clock) as log:
        log.append_batches(transactional(1, 0, 0, 1, base_offset=0, leader_epoch=1), origin="replication")
        log.begin_leader_epoch(4)
    with klog.Log.open(directory, clock=clock) as log:
        with pytest.raises(InvalidTxnState):
            log.append_batches(produced(1, 0, 1, 1, base_offset=1, leader_epoch=6), origin="replication")
        assert log.leader_epoch == 4
    with klog.Log.open(directory, clock=clock) as log:
        assert (log.leader_epoch, log.leader_epochs) == (4, [(1, 0)])
