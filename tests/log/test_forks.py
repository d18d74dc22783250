"""A forked child and its parent's open logs: a reader works on its own, a writer raises, and nothing hangs."""

from __future__ import annotations

import copy
import gc
import multiprocessing
import os
import pickle
import threading
from pathlib import Path

import pytest

import klog
from klog.disk import watch
from klog.errors import ForkedHandle
from tests.support.child import in_child
from tests.support.logs import one_log, values
from tests.support.patience import PATIENCE


def test_a_reader_continues_in_the_child(tmp_path: Path) -> None:
    with one_log(tmp_path) as log, klog.open(tmp_path, read_only=True) as logs:
        log.append([(None, b"a")])
        reader = logs.log("events")
        assert values(reader) == [b"a"]

        def child() -> object:
            before = values(reader)
            reader.refresh()
            return before, values(reader), logs.topics(), reader.segments[0].file.fileno()

        log.append([(None, b"b")])
        first, second, topics, fd = in_child(child)
        assert (first, second, topics) == ([b"a", b"b"], [b"a", b"b"], {"events": [0]})
        assert fd not in (-1, None)
        log.append([(None, b"c")])
        assert values(reader) == [b"a", b"b", b"c"]  # of the parent, which follows by itself


def test_a_readers_descriptors_in_the_child_are_its_own(tmp_path: Path) -> None:
    with one_log(tmp_path) as log:
        log.append([(None, b"a")])
    with klog.Log.open(tmp_path / "events-0", read_only=True) as reader:
        values(reader)
        file = reader.segments[0].file

        def child() -> bool:
            return reader.segments[0].file is not file

        assert reader.segments[0].file is file and in_child(child)


@pytest.mark.parametrize("read_only", [True, False])
def test_a_fork_while_another_thread_holds_the_lock(tmp_path: Path, read_only: bool) -> None:
    """That thread does not exist in the child, where the lock would never be released."""
    with one_log(tmp_path) as log:
        log.append([(None, b"a")])
    with klog.open(tmp_path, read_only=read_only) as logs:
        log = logs.log("events")
        held, done = threading.Event(), threading.Event()

        def hold() -> None:
            assert log._core.directory.segment_dir is not None
            with logs._state.lock, log._core.lock, log._core.directory.segment_dir.opening:
                held.set()
                done.wait(PATIENCE)

        thread = threading.Thread(target=hold)
        thread.start()
        held.wait(PATIENCE)

        def child() -> object:
            log.refresh()
            return values(logs.log("events"))

        try:
            answer = in_child(child)
        finally:
            done.set()
            thread.join()
        assert answer == [b"a"] if read_only else answer[0] == ForkedHandle.__name__


def test_a_waiting_tail_belongs_to_the_parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The child's wait does not consume its parent's notifications, and the parent's wait continues."""
    monkeypatch.setattr(watch, "RECHECK_SECONDS", 1000.0)  # no periodic checks
    with klog.open(tmp_path, create=True) as logs:
        logs.create_topic("events")
        log = logs.log("events")
        log.append([(None, b"a")])
        with klog.Log.open(tmp_path / "events-0", read_only=True) as reader:
            tail = iter(reader.tail("earliest", timeout=PATIENCE))
            assert next(tail).value == b"a"
            read, write = os.pipe()
            ready_read, ready_write = os.pipe()
            pid = os.fork()
            if pid == 0:
                os.write(ready_write, b".")
                os.write(write, next(tail, klog.Record(b"", b"?")).value or b"")
                os._exit(0)
            os.read(ready_read, 1)
            log.append([(None, b"b")])
            assert next(tail, klog.Record(b"", b"?")).value == b"b"
            assert os.read(read, 1) == b"b"
            assert os.waitpid(pid, 0)[1] == 0
            for fd in (read, write, ready_read, ready_write):
                os.close(fd)


def test_a_log_cannot_be_sent_to_another_process(tmp_path: Path) -> None:
    with one_log(tmp_path) as log:
        log.append([(None, b"a")])
        with pytest.raises(TypeError, match="send its path"):
            pickle.dumps(log)
        with pytest.raises(TypeError, match="send its path"):
            pickle.dumps(log.read())
        with pytest.raises(TypeError, match="send its path"):
            copy.copy(log)


def _count(path: str) -> int:
    with klog.Log.open(path, read_only=True) as log:
        return log.count()


def test_a_path_can_be_sent_to_another_process(tmp_path: Path) -> None:
    with one_log(tmp_path) as log:
        log.append([(None, b"a")] * 7)
        with multiprocessing.get_context("fork").Pool(1) as pool:
            assert pool.map(_count, [log.path]) == [7]


def _values(reader: klog.LogReader) -> list[bytes | None]:
    return [record.value for record in reader]


def _topics(logs: klog.LogManager) -> tuple[bool, dict[str, list[int]], int]:
    with logs:
        return logs.read_only, logs.topics(), logs.count("t")


def _end(log: klog.Log) -> tuple[bool, int, int]:
    with log:
        return log.read_only, log.log_end_offset, log.config.segment_bytes


@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
def test_what_only_reads_can_be_sent_to_another_process(tmp_path: Path) -> None:
    """The other process opens it by its path; the range is the same, and a reader needs no close."""
    with klog.open(tmp_path, create=True) as writer:
        writer.create_topic("t", partitions=2, config={"segment.bytes": 2 << 20})
        for partition in range(2):
            writer.log("t", partition).append([(None, b"p%d-%d" % (partition, n)) for n in range(3)])
        with klog.open(tmp_path, read_only=True) as logs:
            reader = logs.read("t", {0: 1})
            assert next(reader).value == b"p0-1"
            writer.log("t", 0).append([(None, b"later")])
            assert _values(pickle.loads(pickle.dumps(reader))) == [b"p0-1", b"p0-2", b"p1-0", b"p1-1", b"p1-2"]
            gc.collect()
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                assert pool.map(_values, [reader]) == [[b"p0-1", b"p0-2", b"p1-0", b"p1-1", b"p1-2"]]
                assert pool.map(_topics, [logs]) == [(True, {"t": [0, 1]}, 7)]
                assert pool.map(_end, [logs.log("t", 0)]) == [(True, 4, 2 << 20)]
            with logs.log("t", 0).snapshot() as snapshot, pytest.raises(TypeError, match="a snapshot, which belongs"):
                pickle.dumps(snapshot)
        with writer.reader("t", "me") as named:
            for one, hint in (
                (writer, "send its paths"),
                (writer.read("t"), "send its path"),
                (named, "logs.reader"),
                (writer.log("t").segments[0], "send its path or its offsets"),
                (writer.tail("t"), r"logs\.tail\('t'\)"),
                (writer.latest_by_key("t"), "call it there"),
            ):
                with pytest.raises(TypeError, match=f"belongs to its process: .*{hint}"):
                    pickle.dumps(one)
