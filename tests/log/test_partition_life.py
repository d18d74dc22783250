"""A partition's directory from its first flush to its deletion: names, handles, background tasks."""

from __future__ import annotations

import logging
import os
import shutil
import uuid
from pathlib import Path

import pytest

import klog
from klog.clock import ManualClock
from klog.disk import RealFiles
from klog.errors import InconsistentTopicId, LogClosed, StorageOffline
from klog.log.directory.checkpoint import read_offsets, read_topic_id
from klog.log.write.removal import remove_locked
from tests.support.groups import BATCH
from tests.support.logs import NOW, bases, one_log, rows, values

X = [(None, None)]
ID = uuid.UUID(int=77)


def open_log(path: Path, **options: object) -> klog.Log:
    return klog.Log.open(path / "t-0", clock=ManualClock(NOW), **options)  # type: ignore[arg-type]


def names_in(path: str, suffix: str) -> list[str]:
    return sorted(name for name in os.listdir(path) if name.endswith(suffix))


# ---- flush ----------------------------------------------------------------------------------------------------------


def test_a_flush_up_to_an_offset_moves_the_recovery_point_there(tmp_path: Path) -> None:
    """LL4: it also sets the time of the last flush. A flush up to an offset at or below the recovery point does
    nothing. The recovery point never passes the log end."""
    with open_log(tmp_path) as log:
        log.append(X * 3)
        assert (log.recovery_point, log.last_flush_ms) == (0, NOW)
        assert isinstance(log.clock, ManualClock)
        log.clock.advance(5)
        log.flush(0)
        assert (log.recovery_point, log.last_flush_ms) == (0, NOW)
        log.flush(1)
        assert (log.recovery_point, log.last_flush_ms) == (1, NOW + 5)
        log.flush(77)
        assert log.recovery_point == 3
        log.flush(2)
        assert log.recovery_point == 3


def test_a_flush_of_a_directory_that_is_gone_is_no_error(tmp_path: Path) -> None:
    """LL4: it was renamed or removed by another process; open files are on disk."""
    log = open_log(tmp_path)
    log.append(X)
    (tmp_path / "t-0").rename(tmp_path / "elsewhere")
    log.flush()
    assert (log.recovery_point, log.offline) == (1, None)
    (tmp_path / "elsewhere").rename(tmp_path / "t-0")
    log.close()


def test_a_flush_syncs_only_the_active_segment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_log(tmp_path, config={"segment.bytes": 2 * BATCH}) as log:
        for _ in range(7):
            log.append(X)
        assert bases(log) == [0, 2, 4, 6]
        synced: list[int] = []
        for name in ("sync", "sync_beside"):
            monkeypatch.setattr(klog.segment.Segment, name, lambda segment, *_: synced.append(segment.base_offset))
        log.flush(5)
        assert (synced, log.recovery_point) == ([], 6)  # rolls have synced the others
        log.flush()
        assert (synced, log.recovery_point) == ([6], 7)
        monkeypatch.undo()


def test_an_empty_active_segment_has_its_index_files(tmp_path: Path) -> None:
    """UL94: klog creates them with the segment, and a flush syncs them."""
    with open_log(tmp_path) as log:
        log.append(X)
        log.roll()
        log.flush()
        assert names_in(log.path, ".index") == [f"{base:020d}.index" for base in (0, 1)]


# ---- names ----------------------------------------------------------------------------------------------------------


def test_renaming_moves_all_files(tmp_path: Path) -> None:
    """LL3, UL93: files, epochs and topic id have the new path, and the log still works. A rename to its own name
    changes nothing."""
    with open_log(tmp_path, topic_id=ID, config={"segment.bytes": 2 * BATCH, "file.delete.delay.ms": 1000}) as log:
        for _ in range(7):
            log.append(X)
        log.truncate_to(5)
        before = sorted(os.listdir(log.path))
        assert not log.rename_dir("t-0")
        assert log.rename_dir("t-1")
        assert log.path == str(tmp_path / "t-1")
        assert sorted(os.listdir(log.path)) == before
        assert not (tmp_path / "t-0").exists()
        assert (log.topic_id, read_topic_id(log.path)) == (ID, ID)
        assert len(rows(log)) == 5
        log.append(X * 2)
        log.roll()
        log.append(X)
        log._core.epochs.assign(3, 8)
        log._core.epochs.flush()
        assert (tmp_path / "t-1" / "leader-epoch-checkpoint").read_text().endswith("3 8\n")
        assert isinstance(log.clock, ManualClock)
        log.clock.advance(1000)
        assert names_in(log.path, ".deleted") == []
        assert [problem.kind for problem in log.verify().problems] == []
        log._core.epochs.truncate_from_end(8)
        log.flush()
    with klog.Log.open(tmp_path / "t-1", read_only=True) as log:
        assert values(log) == [None] * 8


def test_a_log_renamed_for_deletion_keeps_neither_epochs_nor_id(tmp_path: Path) -> None:
    """UL93: appends and deletion still work."""
    log = open_log(tmp_path, topic_id=ID)
    log.append(X)
    log.rename_dir("t-0.d-delete", reinitialise=False)
    assert (log.leader_epochs, log.topic_id) == ([], None)
    stored = (tmp_path / "t-0.d-delete" / "leader-epoch-checkpoint").read_text()
    assert log.append(X).first_offset == 1
    assert (tmp_path / "t-0.d-delete" / "leader-epoch-checkpoint").read_text() == stored
    log.delete()
    assert list(tmp_path.glob("t-*")) == []


def test_a_rename_to_an_existing_name_is_refused(tmp_path: Path) -> None:
    (tmp_path / "u-0").mkdir()
    with open_log(tmp_path) as log:
        with pytest.raises(FileExistsError):
            log.rename_dir("u-0")
        assert (log.offline, log.append(X).first_offset) == (None, 0)


def test_a_failed_rename_is_final(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.append(X)
    (tmp_path / "t-0").rename(tmp_path / "x-0")
    with pytest.raises(FileNotFoundError):
        log.rename_dir("u-0")
    assert log.offline
    with pytest.raises(StorageOffline):
        log.append(X)
    log.close()


def test_a_topic_id_is_on_disk_before_anything_else(tmp_path: Path) -> None:
    """UL92: another id is refused, and without one nothing is written."""
    with open_log(tmp_path, topic_id=ID) as log:
        assert read_topic_id(log.path) == ID
    with pytest.raises(InconsistentTopicId):
        open_log(tmp_path, topic_id=uuid.UUID(int=78))
    with klog.Log.open(tmp_path / "u-0") as log:
        log.append(X)
        assert (log.topic_id, names_in(log.path, ".metadata")) == (None, [])


# ---- deletion and close ----------------------------------------------------------------------------------------------


def test_a_deleted_log_leaves_nothing(tmp_path: Path) -> None:
    """UL62, LL1: no file, no directory, no epoch, no segment, and no line in the checkpoints."""
    with open_log(tmp_path) as log:
        for _ in range(3):
            log.append(X)
            log.roll()
        log.delete_records(2)
    assert read_offsets(str(tmp_path / "log-start-offset-checkpoint")) == {("t", 0): 2}
    log = open_log(tmp_path)
    log.delete()
    assert not (tmp_path / "t-0").exists()
    assert (len(log.segments), log.leader_epochs, log.closed) == (0, [], True)
    for name in ("log-start-offset-checkpoint", "recovery-point-offset-checkpoint"):
        assert read_offsets(str(tmp_path / name)) == {}
    with pytest.raises(LogClosed):
        log.append(X)
    log.close()
    with open_log(tmp_path) as log:
        assert log.append(X).first_offset == 0


def test_a_directory_that_became_a_file_cannot_be_deleted(tmp_path: Path) -> None:
    """UL72: the log is offline."""
    log = open_log(tmp_path)
    log.append(X)
    (tmp_path / "t-0").rename(tmp_path / "aside")
    (tmp_path / "t-0").write_bytes(b"")
    with pytest.raises(StorageOffline, match="could not be deleted"):
        log.delete()
    assert log.offline
    log.close()


def test_missing_files_do_not_stop_a_deletion(tmp_path: Path) -> None:
    """LS18: a missing transaction index, a missing directory."""
    with open_log(tmp_path) as log:
        log.append(X)
        segment = log.segments[0]
        assert not os.path.exists(segment.txn_index.path)
        (tmp_path / "t-0").rename(tmp_path / "elsewhere")
        segment.delete_files()
        (tmp_path / "elsewhere").rename(tmp_path / "t-0")


def test_another_suffix_creates_no_file(tmp_path: Path) -> None:
    """LS10: the .log is renamed and the index paths change; when an index is used, it is found or built under the new
    name."""
    with open_log(tmp_path) as log:
        log.append([(None, b"x" * 5000, NOW)])
        log.append([(None, b"x", NOW + 1)])
        log.roll()
        segment = log.segments[0]
        for path in segment.paths[1:]:
            Path(path).unlink(missing_ok=True)
        segment.move_to(log._core.directory.deleted_dir(log._core.options))
        assert segment.path.endswith(".log.deleted")
        assert names_in(log.path, ".deleted") == [f"{0:020d}.log.deleted"]
        assert segment.index.entries == 1
        assert names_in(log.path, ".deleted") == [
            f"{0:020d}{suffix}.deleted" for suffix in (".index", ".log", ".timeindex")
        ]
        log.close_handlers()
        with pytest.raises(StorageOffline):
            log.close()


@pytest.mark.parametrize("read", ["buffered", "direct"])
def test_the_thread_that_renames_a_segment_can_read_it(tmp_path: Path, read: str) -> None:
    """It reads before each rename and after them, as a signal handler may, which cannot wait for the end of the
    renames."""
    found: list[list[bytes | None]] = []

    class Interrupted(RealFiles):
        def rename(self, source: str, target: str) -> None:
            if target.endswith(".deleted"):
                found.append(values(log))
            super().rename(source, target)
            if target.endswith(".deleted"):
                found.append(values(log))

    config = {"segment.bytes": 1024, "cleanup.policy": "compact", "klog.io.read": read}
    with open_log(tmp_path, config=config, files=Interrupted()) as log:
        for number in range(40):
            log.append([(b"%d" % (number % 3), b"%d" % number * 20, NOW)])
        log.compact(roll=False)
        assert len(found) > 4 and all(each[-1] == b"39" * 20 for each in found)


def test_the_reason_of_a_deletion_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """LL6: the segments are renamed first; without a delay their files are unlinked when the call returns."""
    with one_log(tmp_path, segment_bytes=BATCH, file_delete_delay_ms=0) as log, caplog.at_level(logging.INFO):
        for _ in range(4):
            log.append(X)
        gone = log.segments[:2]
        log._core.segment_list.drop_oldest(2)
        caplog.clear()
        remove_locked(log._core, gone, "a whim")
        assert [line.message for line in caplog.records if "a whim" in line.message] == [
            f"event=segments_deleted log={log.name} reason=a whim bases=0,1"
        ]
        assert names_in(log.path, ".log") == [f"{base:020d}.log" for base in (2, 3)]
        assert names_in(log.path, ".deleted") == []


def test_a_log_with_closed_files_takes_no_append(tmp_path: Path) -> None:
    """LL5, UL26: after close() and after close_handlers(), each of which may be called twice; a close after
    close_handlers() reports that nothing was flushed."""
    log = open_log(tmp_path)
    log.append(X)
    log.close()
    log.close()
    for use in (lambda: log.append(X), log.roll, log.flush, lambda: log.truncate_to(0), log.apply_retention):
        with pytest.raises(LogClosed):
            use()
    log = open_log(tmp_path)
    log.append(X)
    log.close_handlers()
    log.close_handlers()
    for use in (lambda: log.append(X), log.roll, log.flush):
        with pytest.raises(StorageOffline):
            use()
    with pytest.raises(StorageOffline, match="close_handlers"):
        log.close()
    log.close()
    with open_log(tmp_path) as log:
        assert not log.recovery.clean_shutdown
        assert len(rows(log)) == 2


# ---- producers expire ------------------------------------------------------------------------------------------------


def test_an_idle_producer_expires_on_schedule(tmp_path: Path) -> None:
    """UL43: present after one check, gone after the one past its expiration; the log of UL58 checks no more."""
    clock = ManualClock(NOW)
    config = {"producer.id.expiration.ms": 200, "producer.id.expiration.check.interval.ms": 100}
    log = klog.Log.open(tmp_path / "t-0", config=config, clock=clock)
    producers = log._core.producers
    producers.update_data(7, 0, 0, 0, 0, NOW, False)
    assert set(log.producers) == {7}
    clock.advance(100)
    assert set(log.producers) == {7}
    clock.advance(100)
    assert set(log.producers) == set()
    log.close()


@pytest.mark.parametrize("end", ["close", "close_handlers", "delete"])
def test_a_closed_or_deleted_log_expires_no_producers(tmp_path: Path, end: str) -> None:
    """UL58: its task is cancelled."""
    clock = ManualClock(NOW)
    log = klog.Log.open(tmp_path / "t-0", config={"producer.id.expiration.check.interval.ms": 100}, clock=clock)
    assert log._core.expiry is not None
    assert not log._core.expiry.cancelled
    getattr(log, end)()
    assert log._core.expiry.cancelled
    if end == "close_handlers":
        with pytest.raises(StorageOffline):
            log.close()


# ---- where a log begins ----------------------------------------------------------------------------------------------


def test_an_empty_log_begins_at_its_given_start(tmp_path: Path) -> None:
    """UL95, UL11: start and end are set, and nothing below or beyond can be read."""
    with open_log(tmp_path, log_start_offset=1024) as log:
        assert (log.log_start_offset, log.log_end_offset, bases(log)) == (1024, 1024, [1024])
        log.append(X)
        assert log.fetch(1025).size == 0
        for offset in (1026, 1023):
            with pytest.raises(klog.errors.OffsetOutOfRange):
                log.fetch(offset)


def test_a_directory_marked_for_deletion_loads_with_a_segment(tmp_path: Path) -> None:
    """UL95: even where a deletion has already removed all of them."""
    log = open_log(tmp_path)
    log.append(X)
    options = log._core.options
    log.rename_dir("t-0.0123456789abcdef0123456789abcdef-delete", reinitialise=False)
    path = log.path
    log.close_handlers()
    for file in Path(path).glob("0*"):
        file.unlink()
    with pytest.raises(StorageOffline):
        log.close()
    with klog.Log(path, options) as log:
        assert (len(log.segments), log.log_end_offset) == (1, 0)
        log.delete()
    assert not os.path.exists(path)


def test_an_emptied_directory_continues_at_its_log_start(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        log.append(X * 5)
        log.delete_records(3)
    for path in (tmp_path / "t-0").iterdir():
        path.unlink()
    with open_log(tmp_path) as log:
        assert (log.log_start_offset, log.log_end_offset) == (3, 3)


def test_a_new_log_begins_at_0_after_a_crash_in_a_deletion(tmp_path: Path) -> None:
    """The files of the log are removed before its checkpoints."""
    with open_log(tmp_path) as log:
        log.append(X * 5)
        log.delete_records(3)
    shutil.rmtree(tmp_path / "t-0")
    with open_log(tmp_path) as log:
        assert (log.log_start_offset, log.log_end_offset, bases(log)) == (0, 0, [0])
        assert log.append(X).first_offset == 0
    assert read_offsets(str(tmp_path / "log-start-offset-checkpoint")) == {}
