"""One segment: lookups by offset and by timestamp, recovery of its files, the effect of damage."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import pytest

import klog
from klog.clock import SystemClock
from klog.config import LogConfig
from klog.disk import HandleCache, RealFiles
from klog.log.load.inputs import Inputs, new_segment
from klog.record import encode
from klog.segment import Segment, find_by_time
from klog.segment._scan import start_of

T = 1_700_000_000_000
CONFIG = {"index.interval.bytes": 100, "segment.index.bytes": 4096, "retention.ms": -1}


def batch(offset: int, count: int = 1, *, time: int | None = None, epoch: int = 0) -> bytes:
    times = [offset + n if time is None else time + n for n in range(count)]
    return encode([(b"k", b"v%d" % n, at) for n, at in enumerate(times)], base_offset=offset, leader_epoch=epoch)


def open_segment(directory: Path, base: int, data: bytes) -> Segment:
    """A closed segment of these batches."""
    directory.mkdir(exist_ok=True)
    (directory / f"{base:020d}.log").write_bytes(data)
    inputs = Inputs(
        str(directory), LogConfig(CONFIG), RealFiles(), HandleCache(), SystemClock(), "kafka", False, 0, 0, 0, False
    )
    segment = new_segment(inputs, base, writable=True)
    segment.size = len(data)
    segment.recover()
    return segment


def found(segment: Segment, offset: int, limit: int | None = None) -> tuple[int, int] | None:
    header = segment.locate(offset, limit)
    return None if header is None else (header.base_offset, header.position)


def test_finding_by_offset(tmp_path: Path) -> None:
    """LS2: no batch in an empty segment or after the last record; below the first record the first batch; in a gap the
    next batch."""
    assert found(open_segment(tmp_path / "empty-0", 40, b""), 40) is None
    segment = open_segment(tmp_path / "t-0", 40, batch(50, 2) + batch(60, 2))
    second = len(batch(50, 2))
    assert found(segment, 41) == found(segment, 51) == (50, 0)
    assert found(segment, 52) == found(segment, 55) == found(segment, 61) == (60, second)
    assert found(segment, 62) is None


def test_finding_with_a_size_limit_of_zero(tmp_path: Path) -> None:
    """LS3: the position of a read is known even if it may return no byte; at the end there is none."""
    directory = tmp_path / "t-0"
    data = batch(48, 3) + batch(51, 2)
    directory.mkdir()
    (directory / f"{40:020d}.log").write_bytes(data)
    with klog.Log.open(directory, config=CONFIG, clean_shutdown=False) as log:
        (segment,) = log.segments
        assert [found(segment, offset) for offset in (48, 50, 51)] == [(48, 0), (48, 0), (51, len(batch(48, 3)))]
        for at_least_one in (True, False):
            fetched = log.fetch(53, 0, min_one_message=at_least_one)
            assert fetched.size == 0
        assert log.fetch(50, 0, min_one_message=False).size == 0
        assert log.fetch(50, 0).size == len(batch(48, 3))
        assert found(segment, 53) is found(segment, 99) is None


@pytest.mark.parametrize(
    ("time", "offset"), [(420, 42), (421, 43), (430, 43), (431, 44), (491, None), (401, 41), (399, 40)]
)
def test_finding_by_time(tmp_path: Path, time: int, offset: int | None) -> None:
    """LS8: the first record at or above a timestamp, of records 40 to 49 at ten times their offset."""
    segment = open_segment(tmp_path / "t-0", 40, b"".join(batch(n, time=10 * n) for n in range(40, 50)))
    answer = find_by_time(segment, time, 40)
    assert (answer and answer[1]) == offset


def test_the_next_offset(tmp_path: Path) -> None:
    """LS9: the base offset while the segment is empty, otherwise the offset after the last record."""
    assert open_segment(tmp_path / "empty-0", 50, b"").next_offset == 50
    assert open_segment(tmp_path / "t-0", 50, batch(50, 3)).next_offset == 53


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("clean", [True, False])
def test_a_corrupt_index_hides_no_record(tmp_path: Path, suffix: str, clean: bool) -> None:
    """LS11: every offset and every timestamp is found, whatever the index files hold."""
    directory, rng = tmp_path / "t-0", random.Random(suffix)
    directory.mkdir()
    (directory / f"{0:020d}.log").write_bytes(b"".join(batch(n, time=10 * n) for n in range(100)))
    klog.Log.open(directory, config=CONFIG, clean_shutdown=False).close()
    size = (directory / f"{0:020d}{suffix}").stat().st_size
    for data in (rng.randbytes(size), rng.randbytes(5), bytes(size), b"\xff" * 48):
        (directory / f"{0:020d}{suffix}").write_bytes(data)
        with klog.Log.open(directory, config=CONFIG, clean_shutdown=clean) as log:
            assert log.log_end_offset == 100
            for offset in range(100):
                assert next(iter(log.read(offset))).offset == offset
                assert log.offset_for_timestamp(10 * offset - 5) == (10 * offset, offset)
        clean = True


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("closed", [False, True])
def test_a_time_index_that_begins_too_late_hides_no_record(tmp_path: Path, closed: bool, read_only: bool) -> None:
    """Kafka makes a missing .timeindex anew, empty: the entries of what it then appends do not count the records before."""
    times = [T + 5, T + 90, T + 1, T + 2, T + 3, T + 60]
    with klog.Log.open(tmp_path / "t-0", config=CONFIG) as log:
        for time in times:
            log.append([(b"k", b"v", time)])
        if closed:
            log.roll()
        path = Path(log.segments[0].path)
    path.with_suffix(".timeindex").write_bytes(struct.pack(">qiqi", T + 3, 4, T + 60, 5))
    with klog.Log.open(tmp_path / "t-0", config=CONFIG, read_only=read_only) as log:
        assert log.segments[0].max_timestamp == T + 90
        for time in times:
            assert log.offset_for_timestamp(time) == next((at, n) for n, at in enumerate(times) if at >= time)


def test_recovery_restores_leader_epochs(tmp_path: Path) -> None:
    """LS13: the epochs come from the batches, each with its start offset."""
    directory = tmp_path / "t-0"
    directory.mkdir()
    data = [batch(n, epoch=epoch) for n, epoch in ((104, 0), (105, 0), (106, 1), (107, 1), (110, 2), (112, 2))]
    (directory / f"{100:020d}.log").write_bytes(b"".join(data))
    with klog.Log.open(directory, config=CONFIG, clean_shutdown=False) as log:
        assert log.leader_epochs == [(0, 104), (1, 106), (2, 110)]


@pytest.mark.parametrize("policy", ["kafka", "strict"])
def test_damage_up_to_the_end_is_truncated_at_its_first_record(tmp_path: Path, policy: str) -> None:
    """LS14: ten logs of a hundred records, each corrupt from some record on."""
    rng = random.Random(14)
    batches = [batch(n) for n in range(100)]
    for run in range(10):
        first = rng.randrange(100)
        good = b"".join(batches[:first])
        directory = tmp_path / str(run) / "t-0"
        directory.mkdir(parents=True)
        spoilt = rng.randbytes(len(b"".join(batches[first:])))
        (directory / f"{0:020d}.log").write_bytes(good + spoilt)
        with klog.Log.open(directory, config=CONFIG, clean_shutdown=False, recovery=policy) as log:  # type: ignore[arg-type]
            assert log.log_end_offset == first
            assert [record.offset for record in log.read()] == list(range(first))
        assert (directory / f"{0:020d}.log").read_bytes() == good


def test_an_old_kafkas_entry_names_the_end_of_its_append(tmp_path: Path) -> None:
    """Before 3.9.1 an entry described a whole append: the position where it begins, the offset where it ends. Lookups
    still do not scan a segment from its beginning."""
    data = [batch(n, time=T + n) for n in range(60)]
    segment = open_segment(tmp_path / "t-0", 0, b"".join(data))
    size = len(data[0])
    entries = [(at + 9, at * size) for at in range(10, 60, 10)]
    segment.close()
    (tmp_path / "t-0" / f"{0:020d}.index").write_bytes(b"".join(struct.pack(">ii", *entry) for entry in entries))
    for offset in range(60):
        at = max(((o, p) for o, p in entries if o < offset), default=(0, 0))
        assert start_of(segment.file, segment.index, segment.size, offset) == at[1]
        assert found(segment, offset) == (offset, sum(map(len, data[:offset])))


def test_a_reused_inode_number_is_another_file(tmp_path: Path) -> None:
    """S4: a file system may give the inode number of a deleted file to the next new file."""
    segment = open_segment(tmp_path / "t-0", 0, batch(0))
    found = Path(segment.path).stat()
    segment.take_for(found, closed=True)
    assert segment.is_file(found)
    with open(segment.path, "ab") as file:
        file.write(batch(1))
    assert not segment.is_file(Path(segment.path).stat())
    segment.take_for(found, closed=False)  # a segment that still grows
    assert segment.is_file(Path(segment.path).stat())
