"""Every kind of reader, concurrent with a writer and a cleaner that never stops: in this process, through a read-only
manager, from another process, and with slices that were fetched before their segment was replaced, and then copied,
mapped or sent.

A reader may miss a record only if compaction has removed it: then the reader has seen a later record of the same key.
"""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import klog
from klog.record import decode
from tests.cli.test_process import KLOG, _environment
from tests.support.patience import PATIENCE, until

KEYS = 40
BATCHES = 70
PER_BATCH = 8
HELD = 6
CONFIG = {
    "cleanup.policy": "compact",
    "segment.bytes": 1500,
    "index.interval.bytes": 200,
    "min.cleanable.dirty.ratio": 0.01,
}
Row = tuple[int, bytes | None, bytes | None]
LAST = b"the last one"


def check_seen(seen: list[Row], written: dict[int, tuple[bytes, bytes]]) -> None:
    """Check that offsets rise, that each record is the one that was written at its offset, and that for each missing
    record there is a later one of its key."""
    offsets = [offset for offset, _, _ in seen]
    assert offsets == sorted(set(offsets))
    assert {offset: (key, value) for offset, key, value in seen} == {offset: written[offset] for offset in offsets}
    latest = {key: offset for offset, key, _ in seen}
    missed = [offset for offset in written if offset not in set(offsets)]
    assert [offset for offset in missed if latest.get(written[offset][0], -1) < offset] == []


class Readers:
    """Threads, each with the records it has seen and its error."""

    def __init__(self, written: dict[int, tuple[bytes, bytes]]) -> None:
        self.written = written
        self.failures: list[BaseException] = []
        self.done = threading.Event()
        self.threads: list[threading.Thread] = []
        self.checked = 0

    def start(self, work: Callable[[], object]) -> None:
        def run() -> None:
            try:
                work()
            except BaseException as error:
                self.failures.append(error)

        self.threads.append(threading.Thread(target=run))
        self.threads[-1].start()

    def follow(self, log: klog.Log) -> None:
        """Follow the log from the beginning to the last record."""
        seen: list[Row] = []
        for record in log.tail(0, timeout=PATIENCE):
            seen.append((record.offset, record.key, record.value))
            if record.key == LAST:
                break
        check_seen(seen, self.written)

    def fetch(self, log: klog.Log) -> None:
        """Fetch slices one at a time, in rounds. Each slice is used after several others have been fetched; some are
        mapped when fetched."""
        held: deque[tuple[klog.FetchData, memoryview | None]] = deque()
        number = 0
        while not self.done.is_set():
            log.refresh()
            offset = log.log_start_offset
            while offset < log.log_end_offset and not self.done.is_set():
                found = log.fetch(offset, 1500, isolation="log_end")
                if found.size == 0:
                    break
                number += 1
                held.append((found, found.memory() if number % 2 else None))
                batches = list(decode(found.memory()))
                self.use(batches, offset)
                offset = batches[-1].next_offset
                if len(held) > HELD:
                    before, view = held.popleft()
                    sent = self.sent(before)
                    assert view is None or bytes(view) == sent
                    self.use(list(decode(sent)), before.offset)

    @staticmethod
    def sent(found: klog.FetchData) -> bytes:
        here, there = socket.socketpair()
        with here, there:
            assert found.send_to(here) == found.size
            data = b""
            while len(data) < found.size:
                data += there.recv(found.size)
        return data

    def use(self, batches: list[klog.RecordBatch], offset: int) -> None:
        assert batches[-1].last_offset >= offset
        for batch in batches:
            for record in batch:
                assert self.written[record.offset] == (record.key, record.value)
                self.checked += 1


@contextlib.contextmanager
def cat(data: Path, output: Path) -> Iterator[subprocess.Popen[bytes]]:
    """`klog cat -f` from the beginning, into a file."""
    with open(output, "wb") as file:
        process = subprocess.Popen(
            [*KLOG, "cat", "--dir", str(data), "--topic", "t", "-f", "--jsonl", "--from", "0"],
            stdout=file,
            stderr=subprocess.PIPE,
            env=_environment(),
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def rows_of(output: Path) -> list[Row]:
    found = [json.loads(line) for line in output.read_text().splitlines(keepends=True) if line.endswith("\n")]
    return [(row["offset"], row["key"].encode(), row["value"].encode()) for row in found]


def wait_for(true: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    until(lambda: true() or process.poll() is not None)
    assert true(), process.communicate()[1]


@pytest.mark.parametrize("delay_ms", [0, 60_000], ids=["unlinked at once", "unlinked later"])
def test_readers_beside_a_cleaner_miss_no_record(tmp_path: Path, delay_ms: int) -> None:
    """CM: readers, tails, `cat -f`, fetched and mapped slices, in this process and in others."""
    data, output = tmp_path / "data", tmp_path / "out.jsonl"
    written: dict[int, tuple[bytes, bytes]] = {}
    readers = Readers(written)
    with klog.open(data, create=True) as logs:
        logs.create_topic("t", config={**CONFIG, "file.delete.delay.ms": delay_ms})
        log = logs.log("t")

        def put(pairs: list[tuple[bytes, bytes]]) -> None:
            end = log.log_end_offset
            written.update({end + number: pair for number, pair in enumerate(pairs)})  # before any reader sees them
            assert log.append(pairs).first_offset == end

        put([(b"k0", b"first")])
        with cat(data, output) as process, klog.open(data, read_only=True) as others:
            wait_for(lambda: output.stat().st_size > 0, process)
            other = others.log("t")
            for work in (readers.follow, readers.fetch):
                for one in (log, other):
                    readers.start(lambda work=work, one=one: work(one))  # type: ignore[misc]
            cleanings = base = 0

            def clean() -> None:
                nonlocal cleanings
                while not readers.done.is_set():
                    cleanings += log.compact().rounds

            readers.start(clean)
            try:
                for number in range(BATCHES):
                    due = cleanings + 1  # set now: segments that roll in this append may be clean before the next line
                    put([(b"k%d" % (number * i % KEYS), b"%d.%d" % (number, i) * 5) for i in range(PER_BATCH)])
                    if log.segments[-1].base_offset > base:  # the cleaner keeps pace
                        base = log.segments[-1].base_offset
                        wait_for(lambda due=due: cleanings >= due or bool(readers.failures), process)  # type: ignore[misc]
                put([(LAST, b"")])
                wait_for(lambda: LAST in output.read_bytes(), process)
            finally:
                readers.done.set()
                for thread in readers.threads:
                    thread.join()
            for failure in readers.failures:
                raise failure
            process.send_signal(signal.SIGINT)
            assert process.wait(PATIENCE) == 130
        assert cleanings > 5
        assert readers.checked > 0
        check_seen(rows_of(output), written)
        log.compact(roll=True)
        check_seen([(record.offset, record.key, record.value) for record in log.read()], written)
        latest = {key: offset for offset, (key, _) in sorted(written.items())}
        assert [record.offset for record in log.read()] == sorted(latest.values())
    assert [problem for problem in klog.verify(data).problems if problem.kind not in ("gap", "leftover")] == []
