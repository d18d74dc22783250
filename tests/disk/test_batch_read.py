"""Many reads of one file in few system calls return the same bytes as single reads; a failing range fails alone."""

from __future__ import annotations

import errno
import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.disk import AlignedBuffer, LogFile, RealFiles, read_parts
from klog.disk._batch_read import merged
from tests.support.faulty_io import FaultyIo

SIZE = 100_000


@pytest.fixture
def kernel() -> Iterator[FaultyIo]:
    with FaultyIo() as io:
        yield io


def written(folder: Path, table: int = 0) -> tuple[LogFile, bytes]:
    data = bytes((i * i >> 3) & 255 for i in range(SIZE))
    (folder / "f").write_bytes(data)
    return RealFiles(table).open(str(folder / "f")), data


requests = st.lists(st.tuples(st.integers(0, SIZE + 5000), st.integers(0, 30_000)), max_size=40)


@given(requests, st.integers(0, 50_000))
def test_each_result_is_that_of_a_single_read(
    tmp_path_factory: pytest.TempPathFactory, wanted: list[tuple[int, int]], gap: int
) -> None:
    """V1."""
    file, data = written(tmp_path_factory.mktemp("parts"))
    answers = read_parts(file, wanted, gap)
    assert [bytes(answer) for answer in answers if isinstance(answer, AlignedBuffer)] == [
        data[position : position + size] for position, size in wanted
    ]


@given(requests, st.integers(0, 50_000))
def test_runs_hold_every_request_once_and_the_gaps_between(wanted: list[tuple[int, int]], gap: int) -> None:
    runs = merged(wanted, gap)
    assert sorted(number for run in runs for number, _ in run) == list(range(len(wanted)))
    for run in runs:
        assert run[-1][1] == 0
        for (number, after), (following, _) in itertools.pairwise(run):
            assert 0 <= after <= gap
            assert sum(wanted[number]) + after == wanted[following][0]


def test_neighbours_are_read_by_one_call(tmp_path: Path, kernel: FaultyIo) -> None:
    file, data = written(tmp_path, kernel.table)
    answers = read_parts(file, [(5000, 100), (0, 61), (61, 61), (90_000, 100)])
    assert list(map(bytes, answers)) == [data[5000:5100], data[:61], data[61:122], data[90_000:90_100]]
    assert (kernel.calls("preadv2"), kernel.calls("pread")) == (2, 0)


def test_distant_and_large_requests_are_separate_calls(tmp_path: Path) -> None:
    assert [len(run) for run in merged([(0, 61), (61 + 16_384, 61), (2 * (61 + 16_384) + 1, 61)])] == [2, 1]
    assert [len(run) for run in merged([(0, 1 << 19), (1 << 19, 1 << 19), (1 << 20, 1)])] == [2, 1]
    assert [len(run) for run in merged([(number, 1) for number in range(600)])] == [256, 256, 88]


def test_an_unreadable_range_fails_alone(tmp_path: Path, kernel: FaultyIo) -> None:
    """F20: the run fails, each of its requests is read again, and only the one with the bad sector fails."""
    file, data = written(tmp_path, kernel.table)
    kernel.rule("preadv2", error=errno.EIO)
    kernel.rule("pread", error=errno.EIO, nth=2, times=1)
    first, second, third = read_parts(file, [(0, 50), (50, 50), (100, 50)])
    assert bytes(first) == data[:50]
    assert isinstance(second, OSError)
    assert (second.errno, second.filename) == (errno.EIO, file.path)
    assert bytes(third) == data[100:150]


def test_short_and_interrupted_reads_continue(tmp_path: Path, kernel: FaultyIo) -> None:
    """F23."""
    file, data = written(tmp_path, kernel.table)
    kernel.rule("preadv2", error=errno.EINTR, times=2)
    kernel.rule("preadv2", at_most=7, nth=3)
    wanted = [(0, 50), (60, 50), (99_990, 50)]
    assert [bytes(answer) for answer in read_parts(file, wanted)] == [data[:50], data[60:110], data[99_990:]]


def test_uncached_ranges_are_read_from_disk(tmp_path: Path, kernel: FaultyIo) -> None:
    file, data = written(tmp_path, kernel.table)
    kernel.rule("preadv2", error=errno.EAGAIN, times=1)
    assert [bytes(answer) for answer in read_parts(file, [(3, 50), (60, 50)])] == [data[3:53], data[60:110]]
    assert kernel.calls("preadv2") == 2


def test_invalid_requests_raise(tmp_path: Path) -> None:
    file, _ = written(tmp_path)
    assert read_parts(file, []) == []
    for bad in ((-1, 5), (0, -1)):
        with pytest.raises(ValueError, match="a read of"):
            read_parts(file, [bad])
    file.close()
    with pytest.raises(ValueError, match="closed"):
        read_parts(file, [(0, 5)])
