"""Reading beside a writer: tail(), refresh(), readers that follow a writer in another process over its rolls."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import klog
from klog.clock import ManualClock
from klog.errors import CorruptBatch, OffsetOutOfRange
from tests.support.logs import bases, one_log, tree, values
from tests.support.patience import PATIENCE


def test_tail_returns_existing_records_and_ends_after_its_timeout(tmp_path: Path) -> None:
    with one_log(tmp_path, ManualClock()) as log:
        log.append([(None, b"%d" % i) for i in range(5)])
        assert [record.value for record in log.tail("earliest", timeout=10)] == [b"%d" % i for i in range(5)]
        assert [record.value for record in log.tail(3, timeout=0)] == [b"3", b"4"]
        assert [record.value for record in log.tail(timeout=10)] == []


def test_tail_begins_where_the_log_ended_when_it_was_called(tmp_path: Path) -> None:
    with one_log(tmp_path, ManualClock()) as log:
        log.append([(None, b"before")])
        tail = log.tail(timeout=1)
        log.append([(None, b"after")])
        assert [record.value for record in tail] == [b"after"]


def test_tail_sees_records_that_come_while_it_waits(tmp_path: Path) -> None:
    """The writer appends in the clock's sleep(), so that the test needs no thread and no waiting."""
    left = [b"a", b"b", b"c"]

    class Writer(ManualClock):
        def sleep(self, seconds: float) -> None:
            if left:
                log.append([(None, left.pop(0))])
                log.roll()
            super().sleep(seconds)

    with one_log(tmp_path, Writer()) as log:
        assert [record.value for record in log.tail(timeout=5)] == [b"a", b"b", b"c"]
        assert bases(log) == [0, 1, 2, 3]


def test_the_timeout_of_a_tail_restarts_with_each_record(tmp_path: Path) -> None:
    pauses = [0.9, 0.9, 0.9, 1.1, 0.1]

    class Writer(ManualClock):
        def sleep(self, seconds: float) -> None:
            if pauses:
                self.advance(int(pauses.pop(0) * 1000))
                log.append([(None, b"x")])
            else:
                super().sleep(seconds)

    with one_log(tmp_path, Writer()) as log:
        assert len(list(log.tail(timeout=1))) == 5  # existing records are returned, however late


def test_tail_works_with_async_for(tmp_path: Path) -> None:
    async def follow(log: klog.Log) -> list[bytes | None]:
        got: list[bytes | None] = []

        async def write() -> None:
            for i in range(3):
                await asyncio.sleep(0.005)
                log.append([(None, b"%d" % i)])

        writer = asyncio.create_task(write())
        async for record in log.tail():
            got.append(record.value)
            if len(got) == 4:
                break
        await writer
        return got

    with klog.open(tmp_path, create=True) as logs:
        logs.create_topic("events")
        log = logs.log("events")
        tail_from = log.append([(None, b"first")]).first_offset
        assert tail_from == 0

        async def both() -> list[bytes | None]:
            tailing = asyncio.create_task(follow(log))
            await asyncio.sleep(0.001)
            log.append([(None, b"begin")])
            return await asyncio.wait_for(tailing, PATIENCE)

        assert asyncio.run(both()) == [b"begin", b"0", b"1", b"2"]


def test_async_tail_ends_after_its_timeout(tmp_path: Path) -> None:
    async def follow(log: klog.Log) -> list[bytes | None]:
        return [record.value async for record in log.tail("earliest", timeout=0.01)]

    with klog.open(tmp_path, create=True) as logs:
        logs.create_topic("events")
        log = logs.log("events")
        log.append([(None, b"x")] * 3)
        assert asyncio.run(follow(log)) == [b"x"] * 3


def test_an_iteration_of_a_tail_goes_on_where_the_last_one_ended(tmp_path: Path) -> None:
    with one_log(tmp_path, ManualClock()) as log:
        log.append([(None, b"%d" % i) for i in range(6)])
        tail = log.tail("earliest", timeout=0)
        for record in tail:
            assert record.offset == 0
            break
        begun = iter(tail)
        assert [next(begun).offset, next(tail).offset] == [1, 2]
        assert [record.offset for record in tail] == [3, 4, 5]
        assert [*begun] == [], "an iteration that another one has overtaken returns nothing twice"
        decoded = log.tail("earliest", timeout=0, decode="utf8")
        assert next(decoded).offset == 0
        texts = decoded.decoded()
        assert [next(texts).value, *(each.value for each in texts)] == ["1", "2", "3", "4", "5"]


def test_a_cancelled_task_loses_no_record_of_a_tail(tmp_path: Path) -> None:
    async def follow(log: klog.Log) -> list[int]:
        tail = log.tail("earliest", timeout=0)

        async def rest() -> list[int]:
            return [record.offset async for record in tail]

        reading = asyncio.create_task(rest())
        await asyncio.sleep(0)  # its thread begins to read
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        async for record in tail:
            assert record.offset == 0
            break
        return await rest()

    with one_log(tmp_path, ManualClock()) as log:
        log.append([(None, b"x")] * 3)
        assert asyncio.run(follow(log)) == [1, 2]


def test_a_tail_does_not_skip_damage_after_bad_values(tmp_path: Path) -> None:
    with one_log(tmp_path / "log", ManualClock()) as log, one_log(tmp_path / "letters", ManualClock()) as letters:
        for value in (b"\xff", b"damaged", b"good"):
            log.append([(None, value)])
        path = Path(log.segments[0].path)
        path.write_bytes(path.read_bytes().replace(b"damaged", b"Damaged"))
        tail = log.tail("earliest", timeout=0, decode="utf8", dead_letter=letters).decoded()
        with pytest.raises(CorruptBatch) as caught:
            next(tail)
        assert (letters.log_end_offset, caught.value.next_offset) == (1, 2)


def test_a_tail_of_a_closed_log_raises(tmp_path: Path) -> None:
    with one_log(tmp_path) as log:
        log.append([(None, b"x")])
        tail = iter(log.tail("earliest"))
        next(tail)
    with pytest.raises(klog.errors.LogClosed):
        next(tail)
    with pytest.raises(klog.errors.LogClosed):
        log.tail()


# ---- another object, another process ---------------------------------------------------------------------------------


def test_refresh_follows_appends_and_rolls(tmp_path: Path) -> None:
    with one_log(tmp_path, segment_bytes=200) as writer, klog.open(tmp_path, read_only=True) as logs:
        reader = logs.log("events")
        assert (reader.log_end_offset, values(reader)) == (0, [])
        for i in range(12):
            writer.append([(None, b"%02d" % i)])
            with reader.snapshot() as snapshot:
                assert snapshot.log_end_offset == i + 1
            assert reader.log_end_offset == i + 1
            assert values(reader) == [b"%02d" % j for j in range(i + 1)]
        assert bases(reader) == bases(writer)
        assert reader.offset_for_timestamp(0) == (writer.clock.wall_ms(), 0)
        assert reader.leader_epochs in ([], [(0, 0)])


def test_refresh_does_not_show_half_a_batch(tmp_path: Path) -> None:
    with one_log(tmp_path) as log:
        log.append([(None, b"a")])
        log.append([(None, b"b")])
    path = tmp_path / "events-0" / f"{0:020d}.log"
    whole = path.read_bytes()
    half = len(whole) // 2
    path.write_bytes(whole[:half])
    with klog.open(tmp_path, read_only=True) as logs:
        reader = logs.log("events")
        assert values(reader, isolation="log_end") == [b"a"]
        for end in (half + 1, half + 30, len(whole) - 1):
            path.write_bytes(whole[:end])
            reader.refresh()
            assert reader.log_end_offset == 1
            assert values(reader, isolation="log_end") == [b"a"]
        path.write_bytes(whole)
        reader.refresh()
        assert reader.log_end_offset == 2


def test_refresh_detects_a_truncation(tmp_path: Path) -> None:
    with one_log(tmp_path) as log:
        for i in range(3):
            log.append([(None, b"%d" % i)])
        third = log.size // 3
    path = tmp_path / "events-0" / f"{0:020d}.log"
    with klog.Log.open(tmp_path / "events-0", read_only=True, high_watermark=3) as reader:
        assert reader.log_end_offset == 3
        path.write_bytes(path.read_bytes()[:third])
        reader.refresh()
        assert reader.log_end_offset == 1
        assert values(reader) == [b"0"]


def test_refresh_detects_deleted_segments(tmp_path: Path) -> None:
    with one_log(tmp_path) as log:
        for i in range(3):
            log.append([(None, b"%d" % i)])
            log.roll()
    with klog.open(tmp_path, read_only=True) as logs:
        reader = logs.log("events")
        for path in (tmp_path / "events-0").glob(f"{0:020d}.*"):
            path.unlink()
        reader.refresh()
        assert (reader.log_start_offset, values(reader)) == (1, [b"1", b"2"])
        with pytest.raises(OffsetOutOfRange):
            reader.read(0)


def test_refresh_of_a_writer_changes_nothing(tmp_path: Path) -> None:
    with one_log(tmp_path) as log:
        log.append([(None, b"x")])
        before = tree(tmp_path)
        log.refresh()
        assert log.log_end_offset == 1
        assert tree(tmp_path) == before


@pytest.mark.parametrize("alone", [True, False], ids=["Log.open", "klog.open"])
def test_a_reader_opened_before_the_writer_sees_its_records(tmp_path: Path, alone: bool) -> None:
    """The high watermark of the last stop bounds a reader only until the next writer opens the log."""
    with one_log(tmp_path) as log:
        log.append([(None, b"a")])
    reader = klog.Log.open(tmp_path / "events-0", read_only=True)
    assert values(reader) == [b"a"]
    with klog.Log.open(tmp_path / "events-0") if alone else one_log(tmp_path) as writer:
        writer.append([(None, b"b")])
        reader.refresh()
        assert values(reader) == [b"a", b"b"]
        with klog.Log.open(tmp_path / "events-0", read_only=True) as late:
            assert values(late) == [b"a", b"b"]
    reader.refresh()
    assert (reader.high_watermark, values(reader)) == (2, [b"a", b"b"])
    reader.close()
    assert (tmp_path / "replication-offset-checkpoint").read_text() == "0\n1\nevents 0 2\n"


WRITER = """
import sys, klog
with klog.open(sys.argv[1]) as logs:
    log = logs.log("events")
    for i in range(0, 400, 4):
        log.append([(b"k", b"%06d" % j) for j in range(i, i + 4)], compression=("none", "lz4")[i // 4 % 2])
"""


@pytest.mark.parametrize("alone", [True, False])
def test_a_reader_follows_a_writer_in_another_process_across_its_rolls(tmp_path: Path, alone: bool) -> None:
    with one_log(tmp_path, segment_bytes=2000, segment_index_bytes=96, index_interval_bytes=100):
        pass
    child = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)])
    try:
        if alone:
            reader = klog.Log.open(tmp_path / "events-0", read_only=True)
            got = follow(reader)
            reader.close()
        else:
            with klog.open(tmp_path, read_only=True) as logs:
                got = follow(logs.log("events"))
    finally:
        assert child.wait(PATIENCE) == 0
    assert got == [(i, b"%06d" % i) for i in range(400)]


def follow(reader: klog.Log) -> list[tuple[int, bytes | None]]:
    got = []
    for record in reader.tail("earliest", timeout=PATIENCE):
        got.append((record.offset, record.value))
        if len(got) == 400:
            break
    assert len(reader.segments) > 5
    return got


def test_four_writers_and_two_readers_agree(tmp_path: Path) -> None:
    """Smoke: appends from four threads while two read; every append whole, in order within its thread."""
    config = {"segment.bytes": 4000, "segment.index.bytes": 400, "index.interval.bytes": 200}
    rounds, size = 60, 5
    failures: list[BaseException] = []
    stop = threading.Event()
    with klog.open(tmp_path, create=True) as logs:
        logs.create_topic("events", config=config)
        log = logs.log("events")

        def guard(work, *arguments) -> threading.Thread:
            def run() -> None:
                try:
                    work(*arguments)
                except BaseException as error:
                    failures.append(error)

            return threading.Thread(target=run)

        def write(number: int) -> None:
            for i in range(rounds):
                batch = [(b"%d" % number, b"%d/%d" % (i, j)) for j in range(size)]
                info = log.append(batch, compression="lz4" if i % 3 == 0 else None)
                assert info.count == size
                got = [(r.key, r.value) for r in log.read(info.first_offset, info.last_offset + 1)]
                assert got == batch  # its own append is readable at once, whole

        def read() -> None:
            while not stop.is_set():
                offsets = [record.offset for record in log.read()]
                assert offsets == list(range(len(offsets)))
                end = log.log_end_offset
                if end:
                    assert log.count(0, end) == end
                    assert log.offset_for_timestamp(0) is not None
                    log.fetch(end // 2, 500)

        writers = [guard(write, number) for number in range(4)]
        readers = [guard(read) for _ in range(2)]
        for thread in (*writers, *readers):
            thread.start()
        for thread in writers:
            thread.join(PATIENCE)
        stop.set()
        for thread in readers:
            thread.join(PATIENCE)
        if failures:
            raise failures[0]
        assert not any(thread.is_alive() for thread in (*writers, *readers))
        assert log.log_end_offset == 4 * rounds * size
        for number in range(4):
            mine = [record.value for record in log.read() if record.key == b"%d" % number]
            assert mine == [b"%d/%d" % (i, j) for i in range(rounds) for j in range(size)]
        assert log.verify().problems == []
