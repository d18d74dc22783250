"""Damage anywhere in a log must not make aborted records visible: each header bit of a small log is flipped once."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import klog
from klog.clock import ManualClock
from klog.errors import CorruptBatch, CorruptLog
from klog.inspect.batches import Found, scan
from klog.inspect.files import ReadOnlyFile
from klog.log.options import Policy
from tests.support.batches import NOW, batch, marker, transactional
from tests.support.damage import flip

BASES = (0, 13)


def send(log: klog.Log, pid: int, sequence: int, count: int) -> None:
    log.append_batches(transactional(pid, 0, sequence, count))


def end(log: klog.Log, pid: int, kind: str) -> None:
    log.append_batches(marker(pid, 0, kind), origin="coordinator")


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two segments. Producer 1 aborts a transaction in each of them and one across both, and commits between; producer
    2 aborts at the end."""
    directory = tmp_path_factory.mktemp("original") / "t-0"
    with klog.Log.open(directory, clock=ManualClock(NOW)) as log:
        log.append_batches(batch(2))
        send(log, 1, 0, 2)
        send(log, 2, 0, 2)
        log.append_batches(batch(1))
        end(log, 1, "abort")  # 7
        send(log, 1, 2, 1)
        end(log, 1, "commit")
        send(log, 1, 3, 2)
        send(log, 2, 2, 1)
        log.roll()
        assert log.segments[-1].base_offset == BASES[1]
        end(log, 1, "abort")  # 13
        log.append_batches(batch(1))
        send(log, 1, 5, 2)
        end(log, 1, "abort")  # 17
        log.append_batches(batch(2))
        end(log, 2, "abort")  # 20
        log.append_batches(batch(1))
        send(log, 3, 0, 1)
        log.append_batches(batch(1))  # not stable
    return directory


def committed(log: klog.Log) -> Iterator[int]:
    """Offsets that a read_committed reader gets, resuming after damage offset by offset; beyond the records of the
    original log, where a wrong header may claim millions of offsets, at the next offset that the error names."""
    start = log.log_start_offset
    while start < log.log_end_offset:
        try:
            for record in log.read(start, isolation="read_committed"):
                assert record.offset is not None
                yield record.offset
                start = record.offset + 1
            return
        except CorruptBatch as error:
            start = start + 1 if start <= OPEN or error.next_offset is None else max(start + 1, error.next_offset)


COMMITTED = {0, 1, 6, 8, 14, 18, 19, 21}
OPEN = 22  # the last transaction's only record


def test_the_undamaged_log_shows_only_committed_records(original: Path) -> None:
    with klog.Log.open(original, read_only=True) as log:
        assert list(committed(log)) == sorted(COMMITTED)


def flips(path: Path, every: int) -> list[tuple[int, int]]:
    """Positions (byte, bit) in the batch headers of a file, up to the last offset delta: one of `every` of them."""
    batches = [item.position for item in walk_file(path)]
    return [(begin + byte, bit) for begin in batches for byte in range(27) for bit in range(8)][::every]


def walk_file(path: Path) -> list[Found]:
    with ReadOnlyFile(str(path)) as file:
        return [item for item in scan(file) if isinstance(item, Found)]


def shows_too_much(directory: Path, policy: Policy, *, read_only: bool) -> set[int]:
    try:
        log = klog.Log.open(
            directory, clean_shutdown=True, recovery=policy, read_only=read_only, clock=ManualClock(NOW)
        )
    except (CorruptLog, CorruptBatch):
        return set()
    with log:
        return set(committed(log)) - COMMITTED


@pytest.mark.parametrize("every", [29, pytest.param(1, marks=pytest.mark.deep)])
@pytest.mark.parametrize(
    ("policy", "lost"),
    [("strict", ""), ("strict", ".txnindex"), ("strict", ".snapshot"), ("kafka", ""), ("kafka", ".snapshot")],
)
@pytest.mark.parametrize("base", BASES)
def test_no_flipped_bit_shows_an_aborted_record(
    original: Path, tmp_path: Path, base: int, policy: Policy, lost: str, every: int
) -> None:
    """The log is opened after a clean stop, so that the damage stays. lost: the files of this kind are missing, too. An
    abort is lost if both its index entry and its marker are missing, because of damage or a cut by recovery="kafka". If
    the snapshots and the only batch of an open transaction are missing, the records after it, which are not aborted,
    are returned."""
    name = f"{base:020d}.log"
    data, directory = (original / name).read_bytes(), tmp_path / "t-0"
    batches = walk_file(original / name)
    markers = [range(item.position, item.end) for item in batches if item.batch.is_control]
    opening = [range(item.position, item.end) for item in batches if item.batch.base_offset == OPEN]
    shown: list[str] = []
    for position, bit in flips(original / name, every):
        if lost == ".txnindex" and any(position in marker for marker in markers):
            continue
        for read_only in (True, False):
            shutil.copytree(original, directory)
            (directory / name).write_bytes(flip(data, position, bit))
            for path in directory.glob(f"*{lost}") if lost else ():
                path.unlink()
            wrong = shows_too_much(directory, policy, read_only=read_only)
            if lost == ".snapshot" and any(position in only for only in opening):
                wrong -= {OPEN + 1}
            if wrong:
                shown.append(f"byte {position}, bit {bit}, read_only={read_only}: {sorted(wrong)}")
            shutil.rmtree(directory)
    assert not shown, f"{len(shown)}: " + "; ".join(shown)


def test_no_wrong_index_entry_leaves_an_aborted_transaction_out_of_a_fetch(tmp_path: Path) -> None:
    """Each bit of the low bytes of an offset index is flipped. A fetch names the transactions whose records are in its
    slice, up to an offset from that index."""
    directory = tmp_path / "t-0"
    with klog.Log.open(directory, config={"index.interval.bytes": 150}, clock=ManualClock(NOW)) as log:
        for pid in range(1, 9):
            log.append_batches(batch(1))
            send(log, pid, 0, 1)
            log.append_batches(batch(1))
        for pid in range(1, 9):
            end(log, pid, "abort")
        log.roll()
        log.append_batches(batch(1))
    path = directory / f"{0:020d}.index"
    data = path.read_bytes()
    assert len(data) >= 8 * 8
    for at, bit in [(at, bit) for at in range(len(data)) if at % 8 in (3, 6, 7) for bit in range(8)]:
        path.write_bytes(flip(data, at, bit))
        with klog.Log.open(directory, read_only=True, clean_shutdown=True, clock=ManualClock(NOW)) as log:
            for size in range(100, log.segments[0].size, 150):
                data_of_slice = log.fetch(0, size, isolation="read_committed")
                aborted = set(data_of_slice.aborted_transactions)
                firsts = {(pid, first) for pid, first, *_ in aborted}
                sent = {
                    (part.producer_id, part.base_offset)
                    for part in klog.record.decode(data_of_slice.memory())
                    if part.is_transactional and not part.is_control
                }
                assert sent <= firsts, (at, bit, size)
