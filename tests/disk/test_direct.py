"""Files written and read with O_DIRECT have the same bytes as through the page cache, for any reader and any splits."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klog.disk import DirectFile, DirectReader, DirectWriter, LogFile, RealFiles, view_of
from tests.support.examples import OF_FIXTURES
from tests.support.faulty_io import FaultyIo
from tests.support.patience import PATIENCE, until

PAGE, CHUNK = 4096, 1 << 20
DATA = random.Random(7).randbytes(3 * CHUNK)


@pytest.fixture
def kernel() -> Iterator[FaultyIo]:
    with FaultyIo() as io:
        yield io


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A file on a file system with O_DIRECT."""
    name = str(tmp_path / "a")
    try:
        os.close(os.open(name, os.O_RDWR | os.O_CREAT | os.O_DIRECT))
    except OSError:
        pytest.skip("needs: a file system with O_DIRECT for the temporary folder")
    return name


def opened(path: str, table: int = 0) -> DirectFile:
    file = RealFiles(table).open_direct(path, write=True, create=True)
    assert isinstance(file, DirectFile)
    return file


def content(path: str) -> bytes:
    return Path(path).read_bytes()


def test_whole_pages_bypass_the_cache_and_the_rest_uses_it(path: str) -> None:
    """The file ends where the write ends, to the byte."""
    file = opened(path)
    file.write(DATA[:100], 0)
    assert file.direct_bytes_written == 0
    file.write(DATA[100:300_000], 100)
    assert file.direct_bytes_written == 300_000 // PAGE * PAGE - PAGE
    assert content(path) == DATA[:300_000]
    assert not file.fallback


@settings(max_examples=40, deadline=None, suppress_health_check=OF_FIXTURES)
@given(
    st.lists(
        st.integers(0, 300_000) | st.sampled_from([PAGE, 16 * PAGE, CHUNK, CHUNK + PAGE, 2 * CHUNK + 5]), max_size=8
    ),
    st.booleans(),
)
def test_any_sequence_of_appends_equals_a_plain_file(path: str, sizes: list[int], gather: bool) -> None:
    """D1, D2; each write is read back at once with every kind of reader."""
    Path(path).write_bytes(b"")
    file, reader, end = opened(path), RealFiles().open(path), 0
    for number, size in enumerate(sizes):
        data = (DATA[number:] + DATA)[:size]
        if gather:
            cuts = sorted({0, size // 3, size // 2, size})
            file.write_parts([data[low:high] for low, high in itertools.pairwise(cuts)], end)
        else:
            file.write(bytearray(data), end)
        assert os.stat(path).st_size == end + size
        assert bytes(reader.read(end, size)) == data
        assert bytes(file.read(max(0, end - 9), size + 20)) == content(path)[max(0, end - 9) :]
        view = view_of(reader, end, size)
        assert view is not None
        assert view == data
        end += size
    assert content(path) == b"".join((DATA[number:] + DATA)[:size] for number, size in enumerate(sizes))


@pytest.mark.parametrize("position", [0, 1, PAGE - 1, PAGE, 100_001])
@pytest.mark.parametrize("size", [0, 1, 65_535, 65_536, 200_000, CHUNK, CHUNK + 1, 3 * CHUNK])
def test_reads_equal_those_of_a_plain_file(path: str, position: int, size: int) -> None:
    """Unaligned, across the end, and beyond it."""
    Path(path).write_bytes(DATA[: 2 * CHUNK + 77])
    file = opened(path)
    assert bytes(file.read(position, size)) == DATA[: 2 * CHUNK + 77][position : position + size]
    assert bytes(file.read(2 * CHUNK + 77, size)) == b""
    assert bytes(file.read(4 * CHUNK, size)) == b""
    assert (file.direct_bytes_read > 0) == (size >= 65_536)


def test_a_direct_read_sees_dirty_cached_pages(path: str) -> None:
    plain, file = RealFiles().open(path, write=True), opened(path)
    plain.write(DATA[:500_000], 0)
    assert bytes(file.read(3, 400_000)) == DATA[3:400_003]
    plain.write(b"new" * 10, 5)
    assert bytes(file.read(0, 100_000)) == DATA[:5] + b"new" * 10 + DATA[35:100_000]


def test_a_view_stays_valid_during_direct_writes(path: str) -> None:
    """D1: the page of the old tail is the first page of the next write, and goes through the cache."""
    file = opened(path)
    file.write(DATA[:70_000], 0)
    view = view_of(RealFiles().open(path), 0, 70_000)
    assert view == DATA[:70_000]
    file.write(DATA[70_000:900_000], 70_000)
    assert view == DATA[:70_000]
    assert view_of(RealFiles().open(path), 0, 900_000) == DATA[:900_000]


def test_without_direct_access_writes_use_the_cache(tmp_path: Path, kernel: FaultyIo) -> None:
    """The first write gets EINVAL; direct access is disabled from then on, and logged."""
    path = str(tmp_path / "a")
    file = opened(path, kernel.table)
    file.write(b"x" * PAGE, 0)
    kernel.rule("pwrite", error=errno.EINVAL, times=1)
    file.write(DATA[:200_000], PAGE)
    assert file.fallback
    calls = kernel.calls("pwrite")
    file.write(DATA[200_000:400_000], PAGE + 200_000)
    assert kernel.calls("pwrite") == calls + 1
    assert content(path)[PAGE:] == DATA[:400_000]


@pytest.mark.parametrize(("position", "size"), [(0, CHUNK), (1, 2 * CHUNK - 1)], ids=["aligned", "staged"])
def test_a_read_goes_on_when_a_write_ends_direct_access(path: str, kernel: FaultyIo, position: int, size: int) -> None:
    """The descriptor of the read is not closed meanwhile: its number would soon be another file's."""
    Path(path).write_bytes(DATA[: 2 * CHUNK])
    file, other = opened(path, kernel.table), f"{path}.other"
    Path(other).write_bytes(bytes(CHUNK))
    kernel.rule("pread", at_most=16 * PAGE, times=1)
    second = kernel.rule("pread", delay_ms=PATIENCE * 1000, nth=2, times=1)
    opens: list[int] = []
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(file.read, position, size)
        try:
            until(lambda: kernel.hits(second))
            kernel.rule("pwrite", error=errno.EINVAL, times=1)
            file.write(DATA[2 * CHUNK :], 2 * CHUNK)
            assert file.fallback
            opens = [os.open(other, os.O_RDONLY | os.O_DIRECT) for _ in range(10)]
        finally:
            kernel.release(second)
        assert bytes(reading.result()) == DATA[position : position + size]
    for fd in opens:
        os.close(fd)
    assert content(path) == DATA


@pytest.mark.parametrize("short", [1, 1000, PAGE, 10 * PAGE + 1])
def test_interrupted_and_short_direct_calls_continue(path: str, kernel: FaultyIo, short: int) -> None:
    """A short count that ends inside a page continues through the cache."""
    file = opened(path, kernel.table)
    kernel.rule("pwrite", error=errno.EINTR, times=2)
    kernel.rule("pwrite", at_most=short, nth=3, times=1)
    file.write(DATA[:400_000], 0)
    assert content(path) == DATA[:400_000]
    kernel.heal()
    kernel.rule("pread", error=errno.EINTR, times=2)
    kernel.rule("pread", at_most=short, nth=3, times=1)
    assert bytes(file.read(0, 300_000)) == DATA[:300_000]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EFBIG])
def test_other_errors_raise_with_the_path(path: str, kernel: FaultyIo, code: int) -> None:
    """F15, F19: no retry through the cache."""
    file = opened(path, kernel.table)
    kernel.rule("pwrite", error=code)
    with pytest.raises(OSError, match=os.strerror(code)) as caught:
        file.write(DATA[:200_000], 0)
    assert caught.value.filename == path
    assert kernel.calls("pwrite") == 1
    kernel.heal()
    kernel.rule("pread", error=code)
    with pytest.raises(OSError, match=os.strerror(code)):
        file.read(0, 200_000)


def descriptors(path: str) -> int:
    """How many descriptors of this process refer to the file."""
    count = 0
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the descriptor of the listing itself
            count += os.readlink(f"/proc/self/fd/{name}") == path
    return count


def test_both_descriptors_are_closed(path: str) -> None:
    path = os.path.realpath(path)
    file: LogFile | None = opened(path)
    assert descriptors(path) == 2
    assert file is not None
    file.close()
    file.close()
    assert descriptors(path) == 0
    with pytest.raises(ValueError, match="is closed"):
        file.write(DATA, 0)
    with pytest.raises(ValueError, match="is closed"):
        file.read(0, len(DATA))
    file = opened(path)
    file = None
    assert descriptors(path) == 0


# ---- whole files -----------------------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None, suppress_health_check=OF_FIXTURES)
@given(st.lists(st.tuples(st.integers(0, 1_500_000), st.booleans()), max_size=6))
def test_a_writers_file_holds_what_was_written(path: str, pieces: list[tuple[int, bool]]) -> None:
    """It is flushed in between or not; after flush() other readers see all of it."""
    expected = b""
    with DirectWriter(RealFiles(), path) as writer:
        for number, (size, flush) in enumerate(pieces):
            piece = (DATA[number:] + DATA)[:size]
            writer.write(piece)
            expected += piece
            assert writer.size == len(expected)
            if flush:
                writer.flush()
                assert content(path) == expected
        assert writer.direct
    assert content(path) == expected
    with DirectReader(RealFiles(), path) as reader:
        assert reader.direct
        assert b"".join(reader) == expected
        assert bytes(reader.read(10, 100_000)) == expected[10:100_010]


def test_a_writer_truncates_the_file_and_stops_after_an_exception(path: str) -> None:
    Path(path).write_bytes(b"what was here before")
    with contextlib.suppress(KeyError), DirectWriter(RealFiles(), path) as writer:
        writer.write(b"not flushed")
        raise KeyError
    assert content(path) == b""
    writer = DirectWriter(RealFiles(), path)
    writer.write(b"flushed")
    writer.sync()
    writer.close()
    writer.close()
    assert content(path) == b"flushed"


def test_a_full_disk_raises_and_closes_the_writers_files(path: str, kernel: FaultyIo) -> None:
    """F15."""
    path = os.path.realpath(path)
    kernel.rule("pwrite", error=errno.ENOSPC, nth=2)
    with pytest.raises(OSError, match="No space"), DirectWriter(RealFiles(kernel.table), path) as writer:
        writer.write(DATA)
    assert descriptors(path) == 0


def test_without_direct_access_reader_and_writer_report_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on tmpfs before Linux 6.6."""
    real = os.open

    def refuse(path: str, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, "Invalid argument", path)
        return real(path, flags, mode)

    monkeypatch.setattr(os, "open", refuse)
    path = str(tmp_path / "a")
    with DirectWriter(RealFiles(), path) as writer:
        assert not writer.direct
        writer.write(DATA)
    with DirectReader(RealFiles(), path) as reader:
        assert not reader.direct
        assert b"".join(reader) == DATA


def test_both_descriptors_are_of_one_file(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cleaner renames another file over the name while it is opened."""
    Path(path).write_bytes(b"a" * CHUNK)
    cleaned = Path(path + ".cleaned")
    cleaned.write_bytes(b"b" * CHUNK)
    opened = os.open

    def after_a_rename(name: str, flags: int, *mode: int) -> int:
        if cleaned.exists():
            os.rename(cleaned, path)
        return opened(name, flags, *mode)

    monkeypatch.setattr(os, "open", after_a_rename)
    with RealFiles().open_direct(path) as file:
        assert not cleaned.exists() and not file.fallback
        small, large = bytes(file.read(0, 10)), bytes(file.read(0, CHUNK))
        assert small == large[:10] and set(large) == set(small)
        assert file.opened_as[0] == os.stat(path).st_ino
