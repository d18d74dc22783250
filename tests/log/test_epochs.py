"""Leader epochs: the cache's rules, and that it is rebuilt from the batches when its file is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

import klog
from klog.disk import RealFiles
from klog.log.epochs import LeaderEpochs
from klog.record import encode
from tests.support.abandon import abandon
from tests.support.logs import one_log


def make(tmp_path: Path, *entries: tuple[int, int]) -> LeaderEpochs:
    epochs = LeaderEpochs(str(tmp_path), RealFiles())
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
def test_assigning(tmp_path: Path, assigned: list[tuple[int, int]], expected: list[tuple[int, int]]) -> None:
    assert make(tmp_path, *assigned).entries == expected


def test_assigning_says_whether_it_was_news(tmp_path: Path) -> None:
    epochs = make(tmp_path)
    assert epochs.latest is None
    assert [epochs.assign(2, 5), epochs.assign(2, 7), epochs.assign(2, 4), epochs.assign(3, 9)] == [
        True,
        False,
        True,
        True,
    ]
    assert epochs.latest == 3


def test_recovery_learns_only_epochs_above_the_latest(tmp_path: Path) -> None:
    epochs = make(tmp_path, (2, 6))
    for epoch, start in ((-1, 7), (1, 8), (2, 9), (4, 11)):
        epochs.learn(epoch, start)
    assert epochs.entries == [(2, 6), (4, 11)]


@pytest.mark.parametrize(
    ("offset", "expected"),
    [(8, [(2, 6)]), (9, [(2, 6), (3, 8)]), (12, [(2, 6), (3, 8), (4, 11)]), (0, []), (-1, [])],
)
def test_truncation_from_the_end(tmp_path: Path, offset: int, expected: list[tuple[int, int]]) -> None:
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
    epochs = make(tmp_path, (2, 6), (3, 8), (4, 11))
    epochs.truncate_from_start(offset)
    assert epochs.entries == expected


def test_epoch_of_an_offset(tmp_path: Path) -> None:
    epochs = make(tmp_path, (0, 10), (1, 20), (5, 30))
    assert [epochs.epoch_at(offset) for offset in (25, 20, 30, 50, 5)] == [1, 1, 5, 5, -1]
    assert make(tmp_path).epoch_at(0) == -1


def test_the_file_says_the_same_to_the_next_one(tmp_path: Path) -> None:
    epochs = make(tmp_path, (2, 6), (4, 11))
    epochs.flush()
    assert (tmp_path / "leader-epoch-checkpoint").read_text() == "0\n2\n2 6\n4 11\n"
    again = make(tmp_path)
    again.load()
    assert again.entries == epochs.entries
    again.clear()
    again.flush()
    assert (tmp_path / "leader-epoch-checkpoint").read_text() == "0\n0\n"


def test_a_file_that_says_the_same_is_not_written_again(tmp_path: Path) -> None:
    make(tmp_path, (2, 6)).flush()
    epochs = make(tmp_path)
    epochs.load()
    before = (tmp_path / "leader-epoch-checkpoint").stat().st_ino
    epochs.flush()
    assert (tmp_path / "leader-epoch-checkpoint").stat().st_ino == before


# ---- as a log uses it -----------------------------------------------------------------------------------------------


def log_with_epochs(tmp_path: Path, interval: int = 100) -> Path:
    """Ten epochs in one segment, with index entries all along."""
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
    assert path.read_text().startswith("0\n10\n0 0\n1 4\n")


def test_an_unclean_open_adds_what_the_file_lacks(tmp_path: Path) -> None:
    directory = log_with_epochs(tmp_path)
    (directory / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n1 4\n")
    with klog.Log.open(directory, clean_shutdown=False, recovery_point=0) as log:
        assert log.leader_epochs == WANTED


def test_a_clean_open_adds_what_the_scan_for_the_end_meets(tmp_path: Path) -> None:
    """Kafka's file may be behind the tail."""
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
