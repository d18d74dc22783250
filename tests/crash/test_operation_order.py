"""The order in which truncations, undone operations and loads change the disk, checked at each operation.

A sample of power cuts may miss a wrong order that shows in few crash states. And a simulated disk that keeps the
changes of one directory in order cannot show every wrong order.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import klog
from klog.disk import LogFile
from klog.log.directory import checkpoint
from tests.crash.life import CONFIG, TOPIC
from tests.crash.workload import open_logs
from tests.support.crash_files import CrashFiles, PowerCut


def segment_logs(paths: list[str]) -> list[str]:
    return sorted(os.path.basename(path) for path in paths if path.endswith(".log"))


def ten_records(logs: klog.LogManager) -> klog.Log:
    """A log with ten records in several segments, all on disk."""
    logs.create_topic(TOPIC, config=CONFIG)
    log = logs.log(TOPIC)
    for number in range(10):
        log.append([(b"k", b"%d" % number * 60)])
    log.flush()
    assert len(log.segments) > 3
    return log


class TruncationOrder(CrashFiles):
    """After it is `armed` with an offset, it checks what a truncation removes, and when."""

    armed: int | None = None
    removed = 0

    def _check(self, path: str, what: str) -> None:
        if self.armed is None or not path.endswith(".log"):
            return
        points = checkpoint.read_offsets(
            os.path.join(os.path.dirname(os.path.dirname(path)), checkpoint.RECOVERY_POINT)
        )
        assert points[TOPIC, 0] <= self.armed, f"T3: {what} before the recovery point was lowered"
        live = segment_logs([str(other) for other in Path(path).parent.iterdir()])
        assert live[-1] == os.path.basename(path), f"T1: {what} of an earlier segment before later ones are gone"
        self.removed += 1

    def rename(self, source: str, target: str) -> None:
        self._check(source, "removal")
        super().rename(source, target)

    def truncate(self, file: LogFile, size: int) -> None:
        self._check(file.path, "cut")
        super().truncate(file, size)


def test_a_truncation_lowers_the_checkpoint_then_removes_from_the_end(tmp_path: Path) -> None:
    """T1, T3: at every moment the directory has a prefix of the log, and no checkpoint is above its end."""
    files = TruncationOrder()
    with open_logs(tmp_path / "data", files) as logs:
        log = ten_records(logs)
        files.armed = 2
        log.truncate_to(2)
        files.armed = None
        assert files.removed > 2


class NoSpaceForASnapshot(CrashFiles):
    """After it is armed with n, the nth producer snapshot cannot be written."""

    armed = 0

    def replace(self, path: str, data: bytes, *, private: bool = False) -> None:
        if self.armed and path.endswith(".snapshot"):
            self.armed -= 1
            if not self.armed:
                raise OSError(errno.ENOSPC, "full", path)
        super().replace(path, data, private=private)


def test_an_undone_roll_is_on_disk_before_the_next_append(tmp_path: Path) -> None:
    """P3, S8: removed records must not reappear after later appends."""
    files = NoSpaceForASnapshot()
    with open_logs(tmp_path / "data", files) as logs:
        log = ten_records(logs)
        log.append([(b"k", b"not synced")])
        end, path = log.log_end_offset, log.segments[-1].path
        files.armed = 1
        with pytest.raises(OSError, match="full"):
            log.roll()
        assert not files.armed and log.log_end_offset == end and log.segments[-1].path == path
        assert files.inode(path).pending == []
        assert bytes(files.inode(path).durable) == Path(path).read_bytes()
        assert segment_logs(list(files.durable_names)) == segment_logs([s.path for s in log.segments])


@contextmanager
def undone_append(path: Path, files: NoSpaceForASnapshot) -> Iterator[klog.Log]:
    """A log of one record after an append whose second roll has failed."""
    with open_logs(path, files) as logs:
        logs.create_topic(TOPIC, config={**CONFIG, "segment.bytes": 2000, "max.message.bytes": 300})
        log = logs.log(TOPIC)
        log.append([(b"k", b"first")])
        files.armed = 2
        with pytest.raises(OSError, match="full"):
            log.append([(b"k", b"%d" % number * 100) for number in range(60)])
        assert not files.armed and log.log_end_offset == 1
        yield log


def test_the_segments_of_an_undone_append_are_durably_gone(tmp_path: Path) -> None:
    """P3: the first roll of the append was on disk when the second one failed. Its segment would come back with batches
    that were refused, beside later ones."""
    files = NoSpaceForASnapshot()
    with undone_append(tmp_path / "data", files) as log:
        assert segment_logs(list(files.durable_names)) == segment_logs([log.segments[0].path])


class RenameOrder(CrashFiles):
    """Checks that an emptied .log is empty on disk before it gets another base offset."""

    renamed = 0

    def rename(self, source: str, target: str) -> None:
        if source.endswith(".log") and target.endswith(".log"):
            assert self.is_synced(source), "S8: after a crash the old batches would have the new name"
            self.renamed += 1
        super().rename(source, target)


def test_a_restart_empties_the_log_durably_before_it_renames_it(tmp_path: Path) -> None:
    files = RenameOrder()
    with open_logs(tmp_path / "data", files) as logs:
        ten_records(logs).truncate_fully_and_start_at(100)
        assert files.renamed == 1


class FinishOrder(CrashFiles):
    """Checks that no segment that a .swap replaces can reappear after the .swap is renamed to its final name."""

    finished = 0

    def rename(self, source: str, target: str) -> None:
        if source.endswith(".log.swap"):
            base = os.path.basename(target)
            covered = [name for name in segment_logs(list(self.durable_names)) if base < name < self.end]
            assert covered == [], "S6: after a crash these would be beside their replacement"
            self.finished += 1
        super().rename(source, target)

    end = ""


def test_a_load_finishes_a_swap_after_its_originals_are_durably_gone(tmp_path: Path) -> None:
    place = tmp_path / "t-0"
    config = {"cleanup.policy": "compact", "segment.bytes": 400, "file.delete.delay.ms": 60_000}
    with klog.Log.open(place, config=config) as log:
        for number in range(12):
            log.append([(b"k%d" % (number % 2), b"%d" % number * 60)])
        log.update_config(log.config.replace({"segment.bytes": 4000}))
        assert len(log.segments) > 3
    stopped = CrashFiles()
    stopped.before_step = lambda: _stop_at_first_deletion(stopped, place)
    with pytest.raises(PowerCut), klog.Log.open(place, config={**config, "segment.bytes": 4000}, files=stopped) as log:
        log.compact()
    assert list(place.glob("*.log.swap"))
    files = FinishOrder()
    files.keep(tmp_path)
    active = max(place.glob("*.log")).name
    files.end = active
    with klog.Log.open(place, config=config, clean_shutdown=False, files=files) as log:
        assert {record.key: record.value for record in log.read()} == {b"k0": b"10" * 60, b"k1": b"11" * 60}
    assert files.finished == 1


def _stop_at_first_deletion(disk: CrashFiles, place: Path) -> None:
    if list(place.glob("*.log.swap")) and disk.stop_at is None:
        disk.stop_at = disk.steps + 2  # the .swap names are synced, and nothing after that


def test_an_undone_append_leaves_no_index_entry(tmp_path: Path) -> None:
    """I1: the first part of the records was in the active segment, with index entries, when the roll failed."""
    files = NoSpaceForASnapshot()
    config = {**CONFIG, "segment.bytes": 2000, "max.message.bytes": 300, "index.interval.bytes": 0}
    with open_logs(tmp_path / "data", files) as logs:
        logs.create_topic(TOPIC, config=config)
        log = logs.log(TOPIC)
        log.append([(b"k", b"first")])
        files.armed = 1
        with pytest.raises(OSError, match="full"):
            log.append([(b"k", b"%d" % number * 100) for number in range(30)])
        assert not files.armed and log.log_end_offset == 1
        assert log.segments[-1].index.entries == 0
        for number in range(3):
            log.append([(b"k", b"later-%d" % number * 30)])
    assert klog.verify(tmp_path / "data").problems == []


def test_what_retention_deletes_is_durably_gone_when_it_returns(tmp_path: Path) -> None:
    """R3 of retention: an old segment must not reappear without the segments after it."""
    files = CrashFiles()
    with open_logs(tmp_path / "data", files) as logs:
        log = ten_records(logs)
        before = segment_logs(list(files.durable_names))
        log.delete_records(5)
        assert log.apply_retention() > 0
        assert segment_logs(list(files.durable_names)) == segment_logs([s.path for s in log.segments]) != before


def test_a_roll_of_an_empty_segment_is_on_disk_when_it_returns(tmp_path: Path) -> None:
    """L3: the new index files have the names of the old ones."""
    files = CrashFiles()
    with open_logs(tmp_path / "data", files) as logs:
        logs.create_topic(TOPIC, config=CONFIG)
        log = logs.log(TOPIC)
        log.roll()
        log.roll()
        paths = [path for path in log.segments[-1].paths if os.path.exists(path)]
        assert len(paths) == 3 and all(files.durable_names[path] is files.names[path] for path in paths)


class MarkerOrder(CrashFiles):
    """Checks that every log is on disk before the marker of a clean stop."""

    markers = 0

    def replace(self, path: str, data: bytes, *, private: bool = False) -> None:
        if path.endswith(checkpoint.CLEAN_SHUTDOWN):
            logs = [name for name in self.names if name.endswith(".log")]
            assert logs and all(name in self.durable_names for name in logs)
            assert [name for name in logs if self.names[name].pending] == [], "S10: the marker is the last write"
            self.markers += 1
        super().replace(path, data, private=private)


def test_the_marker_of_a_clean_stop_is_written_last(tmp_path: Path) -> None:
    files = MarkerOrder()
    with open_logs(tmp_path / "data", files) as logs:
        log = ten_records(logs)
        log.append([(b"k", b"not flushed")])
    assert files.markers == 1


def test_an_undone_append_takes_the_recovery_point_back(tmp_path: Path) -> None:
    """FS2: the first roll has raised the recovery point above the log end that is left. After a crash, a load would use
    that recovery point."""
    with undone_append(tmp_path / "data", NoSpaceForASnapshot()) as log:
        assert log.recovery_point <= 1
        stored = checkpoint.read_offsets(str(tmp_path / "data" / checkpoint.RECOVERY_POINT))
        assert stored.get((TOPIC, 0), 0) <= 1


class RestartOrder(CrashFiles):
    """Checks that a restart leaves no hole between the segments that it has not removed yet."""

    known: tuple[str, ...] = ()
    removed = 0

    def rename(self, source: str, target: str) -> None:
        super().rename(source, target)
        if self.known and source.endswith(".log"):
            left = [name for name in segment_logs(os.listdir(os.path.dirname(source))) if name in self.known]
            at = self.known.index(left[0]) if left else 0
            assert tuple(left) == self.known[at : at + len(left)], "T1: a load would take the hole for lost records"
            self.removed += 1


def test_a_restart_removes_what_is_below_the_log_start_from_the_oldest_on(tmp_path: Path) -> None:
    files = RestartOrder()
    with open_logs(tmp_path / "data", files) as logs:
        log = ten_records(logs)
        log.delete_records(log.segments[-2].base_offset + 1)
        files.known = tuple(segment_logs([segment.path for segment in log.segments]))
        log.truncate_fully_and_start_at(100)
        files.known = ()
    assert files.removed >= 3


class DeletionOrder(CrashFiles):
    """Lists the segments that a deletion removes, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.removed: list[str] = []

    def unlink(self, path: str) -> None:
        if path.endswith(".log") and os.path.exists(path):
            self.removed.append(os.path.basename(path))
        super().unlink(path)


def test_a_deletion_removes_the_newest_segment_first_and_is_on_disk_when_it_returns(tmp_path: Path) -> None:
    """After a crash in between the rest is a valid log."""
    files = DeletionOrder()
    with klog.Log.open(tmp_path / "t-0", files=files, config=CONFIG) as log:
        for number in range(10):
            log.append([(b"k", b"%d" % number * 60)])
        known = segment_logs([segment.path for segment in log.segments])
        log.delete()
    assert len(known) > 3 and files.removed == known[::-1]
    assert [name for name in files.durable_names if "/t-0/" in name] == []


def test_the_marker_of_a_clean_stop_is_durably_away_while_a_log_is_open_alone(tmp_path: Path) -> None:
    """S10: a power cut must not bring it back beside what is appended."""
    data = tmp_path / "data"
    with klog.open(data, create=True) as logs:
        logs.create_topic(TOPIC)
        logs.append(TOPIC, [(b"k", b"v")])
    (data / checkpoint.HIGH_WATERMARK).unlink()  # its removal would sync the log.dir again, after the load
    files, marker = CrashFiles(), str(data / checkpoint.CLEAN_SHUTDOWN)
    files.keep(tmp_path)
    assert marker in files.durable_names
    with klog.Log.open(data / f"{TOPIC}-0", files=files):
        assert marker not in files.durable_names
