"""Snapshots of producer state: their content, which of them are kept, and the state after a reload."""

from __future__ import annotations

from pathlib import Path

import pytest

import klog
from klog.clock import ManualClock
from klog.config import LogConfig
from klog.disk import HandleCache, RealFiles
from klog.errors import CorruptSnapshot, InvalidProducerEpoch, OutOfOrderSequence
from klog.log.load.inputs import Inputs
from klog.log.load.rebuild import producers_at
from klog.log.state.producer_append import ProducerAppend
from klog.log.state.producer_state import ProducerState
from klog.log.state.producers import Producers
from klog.log.state.snapshots import Snapshots, format_snapshot, parse_snapshot
from tests.log.test_producer_state import DAY, NOW, OTHER, PID, data, mark, unstable, write
from tests.support import golden
from tests.support.batches import produced


def name(offset: int) -> str:
    return f"{offset:020}.snapshot"


def files(folder: Path) -> list[int]:
    return sorted(int(path.stem) for path in folder.glob("*.snapshot"))


def opened(folder: Path) -> Producers:
    return Producers(Snapshots(str(folder), RealFiles()))


def reloaded(folder: Path, log_start: int, log_end: int, now: int = NOW, expiration_ms: int = DAY) -> Producers:
    """The state that a load or a truncation takes from the snapshots, of a log without later batches."""
    disk = RealFiles()
    inputs = Inputs(
        str(folder),
        LogConfig(),
        disk,
        HandleCache(),
        ManualClock(now),
        "strict",
        True,
        0,
        log_start,
        expiration_ms,
        True,
    )
    return producers_at(inputs, (), log_start, log_end, snapshots=Snapshots(str(folder), disk))


def test_a_snapshot_is_taken_once(tmp_path: Path) -> None:
    """PS23: named by the next offset; a second one without changes is not written."""
    producers = opened(tmp_path)
    write(producers, PID, 0, 0, 0)
    write(producers, PID, 0, 1, 1)
    producers.take_snapshot()
    assert files(tmp_path) == [2]
    (tmp_path / name(2)).unlink()
    producers.take_snapshot()
    assert files(tmp_path) == []
    write(producers, PID, 0, 2, 2)
    producers.take_snapshot()
    assert files(tmp_path) == [3]


STATES = {
    7: ProducerState(3, 2**31 - 1, 2**40, 2**31 - 1, NOW, 15, 2**33),
    2**62: ProducerState(32767, -1, -1, 0, -1, -1, None),
    0: ProducerState(0, 0, 0, 0, 0, 0, 0),
}


def test_every_field_round_trips() -> None:
    """PS23: no other field is stored."""
    written = format_snapshot(STATES)
    assert parse_snapshot(written, "x") == STATES
    for bad in (written[:-1], written + b"\0", written[:1] + b"\2" + written[2:], b"", written[: len(written) // 2]):
        with pytest.raises(CorruptSnapshot):
            parse_snapshot(bad, "x")


def test_kafkas_snapshots_are_written_byte_for_byte() -> None:
    """Equal states are equal bytes, in the order of Kafka's hash map."""
    seen = entries = 0
    for path in golden.HOME.rglob("*.snapshot"):
        read = path.read_bytes()
        try:
            states = parse_snapshot(read, str(path))
        except CorruptSnapshot:
            continue
        assert format_snapshot(dict(sorted(states.items(), reverse=True))) == read, path
        seen += 1
        entries = max(entries, len(states))
    assert seen > 20 and entries >= 3


def test_a_reload_keeps_only_the_last_batch(tmp_path: Path) -> None:
    """PS24: the next sequence is accepted; a batch before the last one is not recognized."""
    producers = opened(tmp_path)
    write(producers, PID, 0, 0, 0)
    write(producers, PID, 0, 1, 1)
    producers.take_snapshot()
    again = reloaded(tmp_path, 0, 2)
    entry = again.entries[PID]
    assert entry.duplicate(0, 0, 0) is None and entry.duplicate(0, 1, 1) is not None
    with pytest.raises(OutOfOrderSequence):
        write(again, PID, 0, 0, 2)
    write(again, PID, 0, 2, 2)


def test_an_open_transaction_survives(tmp_path: Path) -> None:
    """PS25: a finished one leaves nothing; a producer known only by a marker keeps the marker's time."""
    producers = opened(tmp_path)
    write(producers, PID, 0, 0, 0, txn=True)
    producers.take_snapshot()
    mark(producers, PID, 0, 1)
    mark(producers, OTHER, 4, 2, at=NOW + 77)
    producers.take_snapshot()
    finished, open_yet = reloaded(tmp_path, 0, 3), reloaded(tmp_path, 0, 1)
    assert unstable(finished) is None and finished.entries[OTHER].timestamp == NOW + 77
    assert unstable(open_yet) == 0 and open_yet.entries[PID].txn_first_offset == 0


def test_reload_after_the_marker_and_before_it(tmp_path: Path) -> None:
    """PS17: after the marker nothing is unstable; before the marker the transaction is open again."""
    producers = opened(tmp_path)
    write(producers, PID, 0, 0, 99, txn=True)
    assert unstable(producers) == 99
    producers.take_snapshot()
    mark(producers, PID, 0, 105)
    producers.on_high_watermark_updated(106)
    assert unstable(producers) is None
    producers.take_snapshot()
    write(producers, PID, 0, 1, 106)
    assert unstable(reloaded(tmp_path, 0, 106)) is None
    assert unstable(reloaded(tmp_path, 0, 100)) == 99


@pytest.mark.parametrize("origin", ["client", "replication"])
def test_a_reload_drops_expired_producers(tmp_path: Path, origin: str) -> None:
    """PS26: its next batch is accepted as from a new producer."""
    producers = opened(tmp_path)
    write(producers, PID, 5, 0, 0)
    write(producers, PID, 5, 1, 1)
    producers.take_snapshot()
    again = reloaded(tmp_path, 0, 2, NOW + 70_000, expiration_ms=1000)
    assert not again.entries
    write(again, PID, 5, 2, 2, at=NOW + 70_000, origin=origin)
    assert (list(again.entries), again.end_offset) == ([PID], 3)


def test_a_reload_keeps_producers_with_an_open_transaction_however_old(tmp_path: Path) -> None:
    """PS36: this also holds after a reload."""
    producers = opened(tmp_path)
    write(producers, PID, 5, 0, 0, txn=True)
    write(producers, OTHER, 5, 0, 1)
    producers.take_snapshot()
    again = reloaded(tmp_path, 0, 2, NOW + DAY, expiration_ms=1000)
    assert list(again.entries) == [PID] and unstable(again) == 0


def test_a_producer_whose_data_lies_below_the_log_start_is_kept(tmp_path: Path) -> None:
    """PS27: also a producer that wrote only offset 0."""
    producers = opened(tmp_path)
    write(producers, PID, 0, 0, 0)
    write(producers, OTHER, 0, 0, 1)
    producers.take_snapshot()
    assert sorted(reloaded(tmp_path, 1, 2).entries) == [PID, OTHER]


def test_truncate_fully(tmp_path: Path) -> None:
    """PS30: no snapshot is left, the producer begins at 0 again, the next snapshot is 1."""
    producers = opened(tmp_path)
    write(producers, PID, 0, 0, 0)
    producers.take_snapshot()
    write(producers, PID, 0, 1, 1)
    producers.take_snapshot()
    producers.truncate_fully_and_start_at(0)
    assert files(tmp_path) == [] and not producers.entries
    write(producers, PID, 0, 0, 0)
    producers.take_snapshot()
    assert files(tmp_path) == [1]


@pytest.mark.parametrize("damage", ["empty", "half", "flipped"])
def test_an_invalid_snapshot_is_replaced_by_the_one_before(tmp_path: Path, damage: str) -> None:
    """PS32: the invalid snapshot is deleted."""
    producers = opened(tmp_path)
    for offset in (0, 1):
        write(producers, PID, 0, offset, offset)
        producers.take_snapshot()
    newest = tmp_path / name(2)
    good = newest.read_bytes()
    flipped = good[:30] + bytes([good[30] ^ 1]) + good[31:]
    newest.write_bytes({"empty": b"", "half": good[: len(good) // 2], "flipped": flipped}[damage])
    again = reloaded(tmp_path, 0, 20)
    assert files(tmp_path) == [1] and again.entries[PID].last_sequence == 0


@pytest.mark.parametrize(("bases", "kept"), [([5], [5, 42]), ([42], [42]), ([], [42]), ([5, 50], [5])])
def test_stray_snapshots(tmp_path: Path, bases: list[int], kept: list[int]) -> None:
    """PS33, LC8: those of segments stay, and the last of the others if it lies above every segment's base."""
    for offset in (2, 5, 42):
        (tmp_path / name(offset)).write_bytes(format_snapshot({}))
    snapshots = Snapshots(str(tmp_path), RealFiles())
    snapshots.remove_strays(bases)
    assert files(tmp_path) == snapshots.offsets == kept


def test_mark_for_deletion(tmp_path: Path) -> None:
    """PS34: renames the file; if it is missing there is nothing to rename, and the snapshot is forgotten."""
    for offset in (5, 6):
        (tmp_path / name(offset)).write_bytes(format_snapshot({}))
    snapshots = Snapshots(str(tmp_path), RealFiles())
    producers = Producers(snapshots)
    assert producers.remove_and_mark_for_deletion(5) == str(tmp_path / name(5)) + ".deleted"
    assert sorted(path.name for path in tmp_path.iterdir()) == [name(5) + ".deleted", name(6)]
    (tmp_path / name(6)).unlink()
    assert producers.remove_and_mark_for_deletion(6) is None
    assert snapshots.offsets == []
    assert producers.remove_and_mark_for_deletion(7) is None


def test_a_fenced_coordinator_stays_fenced(tmp_path: Path) -> None:
    """PS9, PS6: epochs are restored from a snapshot."""
    producers = opened(tmp_path)
    mark(producers, PID, 3, 0, coordinator=9)
    producers.take_snapshot()
    again = reloaded(tmp_path, 0, 1)
    assert (again.entries[PID].coordinator_epoch, again.entries[PID].epoch) == (9, 3)
    with pytest.raises(InvalidProducerEpoch):
        write(again, PID, 2, 0, 1)


def test_a_failed_append_begins_no_transactions() -> None:
    producers = Producers()
    append = ProducerAppend(PID, producers.entries.get(PID), "client")
    data(append, 0, 0, 0, 5, 5, txn=True)
    assert unstable(producers) is None


def test_a_snapshot_with_another_content_is_replaced(tmp_path: Path) -> None:
    """N1, P4: the state that was computed from the batches is used, not the one on disk."""
    snapshots, producers = Snapshots(str(tmp_path), RealFiles()), opened(tmp_path)
    write(producers, PID, 0, 0, 0)
    snapshots.write(1, {})
    snapshots.write(1, producers.states)
    assert snapshots.read(1) == producers.states != {}


def test_a_close_writes_the_snapshot_of_its_log_end(tmp_path: Path) -> None:
    """PS: the next clean load replays nothing."""
    with klog.Log.open(tmp_path / "t-0", clock=ManualClock(NOW)) as log:
        log.append_batches(produced(PID, 0, 0, 3))
    assert parse_snapshot((tmp_path / "t-0" / name(3)).read_bytes(), "")[PID].last_sequence == 2
