"""First calls of a new user on the public API, and the errors for wrong ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import klog
import klog.inspect
from klog.log.directory import checkpoint
from tests.support.abandon import abandon


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A log.dir after a clean stop: its checkpoints have the log ends."""
    directory = tmp_path / "data"
    with klog.open(directory, create=True) as logs:
        logs.create_topic("t")
        logs.append("t", [(b"old", b"0")])
    return directory


def _keys(records: Any) -> list[bytes]:
    return [record.key for record in records]


@pytest.mark.parametrize("alone", [False, True], ids=["manager", "log alone"])
def test_a_reader_opened_before_the_writer_sees_its_appends(data: Path, alone: bool) -> None:
    """The checkpoint of the last stop bounds a reader only until a writer opens the log and removes it."""
    with klog.open(data, read_only=True) as there:
        log = klog.Log.open(data / "t-0", read_only=True) if alone else there.log("t")
        assert log.high_watermark == 1
        tail = log.tail("latest", timeout=0)
        with klog.open(data) as logs:
            logs.append("t", [(b"new", b"1")])
            assert _keys(tail) == [b"new"]
            logs.log("t").roll()
            logs.append("t", [(b"newer", b"2")])
            assert _keys(tail) == [b"newer"]
            assert (log.high_watermark, _keys(log.read())) == (3, [b"old", b"new", b"newer"])
        log.refresh()
        assert log.high_watermark == 3
        log.close()


def test_a_reader_follows_the_high_watermark_of_a_broker(data: Path) -> None:
    """A broker rewrites the checkpoint every few seconds; records above it are not replicated yet."""
    high_watermarks = data / checkpoint.HIGH_WATERMARK
    with klog.open(data) as logs:
        logs.append("t", [(b"1", b""), (b"2", b"")])
    high_watermarks.write_text("0\n1\nt 0 1\n")
    with (
        klog.open(data, read_only=True) as logs,
        klog.Log.open(data / "t-0", read_only=True, high_watermark=2) as fixed,
    ):
        log = logs.log("t")
        tail = log.tail(0, timeout=0)
        assert _keys(tail) == [b"old"]
        high_watermarks.with_name("new").write_text("0\n1\nt 0 3\n")
        high_watermarks.with_name("new").rename(high_watermarks)
        assert _keys(tail) == [b"1", b"2"]
        high_watermarks.write_text("no checkpoint")
        log.refresh()
        assert log.high_watermark == 3
        fixed.refresh()
        assert fixed.high_watermark == 2  # given by the caller: no file changes it


@pytest.mark.parametrize(
    ("records", "message"),
    [
        (klog.Record(b"k", b"v"), r"put a single klog.Record into a list"),
        (b"abc", "not bytes"),
        ("abc", "not str"),
        ({b"k": b"v"}, "not dict"),
        (None, "not NoneType"),
        (7, "not int"),
    ],
)
def test_arguments_that_are_not_records_are_named(data: Path, records: Any, message: str) -> None:
    with klog.open(data) as logs:
        for append in (logs.log("t").append, lambda given: logs.append("t", given)):
            with pytest.raises(TypeError, match=message):
                append(records)
        assert logs.log("t").log_end_offset == 1


def test_numbers_of_another_type_are_named(data: Path) -> None:
    with klog.open(data, read_only=True) as logs:
        log: Any = logs.log("t")
        for wrong in ("0", None, True, 0.5):
            with pytest.raises(TypeError, match=r"offset=.*: an int expected"):
                log.fetch(wrong)
            with pytest.raises(TypeError, match=r"ms=.*: an int expected, .*timestamp\(\) \* 1000"):
                log.offset_for_timestamp(wrong)
        with pytest.raises(ValueError, match="'\u00b2' is not a position"):
            log.read("\u00b2")  # isdigit() holds, int() refuses


def test_ids_of_another_type_are_named(data: Path) -> None:
    with klog.open(data) as logs:
        wrong: Any = 5
        with pytest.raises(ValueError, match=r"topic_id=5: a uuid\.UUID or Kafka's 22 characters"):
            logs.create_topic("u", topic_id=wrong)
        assert list(logs.topics()) == ["t"]


def test_a_path_may_be_bytes(data: Path) -> None:
    with klog.open(bytes(data), read_only=True) as logs:  # type: ignore[arg-type]
        assert logs.topics() == {"t": [0]} and logs.path == str(data)


def _batches(data: Path, count: int) -> Path:
    with klog.open(data) as logs:
        for number in range(count):
            logs.append("t", [(b"%d" % number, b"v")])
    return data / "t-0" / f"{0:020d}.log"


def test_a_strict_reader_refuses_a_log_shortened_by_damage(data: Path) -> None:
    """Nothing after an invalid length can be read: strict refuses the log, "kafka" returns the records that a broker
    would keep."""
    path = _batches(data, 4)
    content = bytearray(path.read_bytes())
    second = 12 + int.from_bytes(content[8:12], "big")
    content[second + 10] ^= 1  # its length
    path.write_bytes(content)
    with klog.open(data, read_only=True) as logs:
        with pytest.raises(klog.errors.CorruptLog, match="valid ones after it.*reads the log up to there") as caught:
            logs.log("t")
        assert (caught.value.path, caught.value.position, caught.value.offset) == (str(path), second, 1)
    with klog.open(data, read_only=True, recovery="kafka") as logs:
        log = logs.log("t")
        assert _keys(log.read()) == [b"old"]
        assert f"{len(content) - second} bytes left out, log ends at 1" in log.recovery.reason
    assert path.read_bytes() == content


def test_a_reader_reports_a_torn_tail(data: Path) -> None:
    path = _batches(data, 1)
    content = path.read_bytes()
    path.write_bytes(content + content[:30])
    with klog.open(data, read_only=True) as logs:
        log = logs.log("t")
        assert _keys(log.read()) == [b"old", b"0"]
        assert log.recovery.details == (
            f"{path}: a truncated batch at byte {len(content)}, 30 bytes left out, log ends at 2",
        )
        assert log.recovery.reason == log.recovery.details[0] and log.recovery.bytes_truncated == 0
    path.write_bytes(content)
    with klog.open(data, read_only=True) as logs:
        assert logs.log("t").recovery.reason == ""


def test_the_renamed_marker_of_a_killed_log_is_recognized_and_removed(data: Path) -> None:
    """Log.open renames the clean-shutdown marker while it writes. After a kill, the next manager removes that file."""
    log = klog.Log.open(data / "t-0")
    log.append([(b"k", b"v")])
    abandon(log)
    aside = data / checkpoint.CLEAN_SHUTDOWN_RENAMED
    assert aside.exists() and klog.verify(data).ok
    assert {file.kind for file in klog.inspect.dump(aside)} == {"clean_shutdown"}
    with klog.open(data) as logs:
        assert not logs.clean_shutdown and not aside.exists()
        assert logs.log("t").log_end_offset == 2
