"""Cuts the power of a real file system while a writer runs, again and again, and opens what is left.

Run by tests/crash/test_real_power_cut.py as `python -m tests.crash.real_cuts PLACE KIND CUTS SEED [CALL ...]`, in a
mount namespace of its own, with all files in the directory PLACE. Prints a JSON object: the number of cuts in each
workload, and how the writers ended. The seed decides after which message of the writer the power is cut, how long after
it, and which pages the kernel has written back by then. CALL: these system calls of the writer return success and do
nothing, so that promises are broken.

The shutdown ioctl takes milliseconds. During that time an fdatasync may return 0 for bytes that are then lost (on ext4,
without klog, in 47 of 400 cuts; the others returned before the ioctl began, and lost nothing). On a machine without
power no call returns, so only promises made before the ioctl count.
"""

from __future__ import annotations

import collections
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from klog.disk import RealFiles
from tests.crash.reported import Send, Workload, workloads
from tests.crash.workload import open_logs
from tests.support.abandon import abandon
from tests.support.faulty_io import FaultyIo
from tests.support.file_systems import KEEP_JOURNAL, LOSE_JOURNAL, FileSystem, end_with_parent
from tests.support.messages import ENDED, WRONG, Message, Worker


class Cuts:
    """Cuts the power of one file system. tally: how often each event happened, by name."""

    def __init__(self, kind: str, place: Path, seed: int, lies: tuple[str, ...] = ()) -> None:
        self._disk = FileSystem(kind, place / "image", place / "mounted")
        self._disk.make()
        self._root = self._disk.place / "data"
        self._workloads = workloads(place)
        self._messages: dict[str, int] = {}
        self._kernel = FaultyIo()  # compiled once, before any fork
        self._lies = lies
        self._rng = random.Random(seed)
        self._where = f"{kind} seed={seed}"
        self.tally: collections.Counter[str] = collections.Counter()

    def run(self, cuts: int) -> None:
        """Cut the power this many times; each workload gets every nth cut."""
        with self._disk.mounted():
            for number in range(cuts):
                name = [*self._workloads][number % len(self._workloads)]
                try:
                    self._once(name, self._workloads[name])
                except BaseException as error:
                    error.add_note(f"{self._where} cut {number}: {name}")
                    raise
                self.tally["cuts"] += 1

    def _once(self, name: str, work: Workload) -> None:
        if name not in self._messages:
            self._messages[name] = self._rehearse(work)
        with self._prepared(work):
            messages, promised = self._write_until_cut(work, self._rng.randrange(self._messages[name]))
            self._disk.restart()
            if self._rng.random() < 0.25:
                self._cut_recovery()
            self.tally[name] += 1
            work.check(self._root, [message.content for message in messages], promised)

    @contextmanager
    def _prepared(self, work: Workload) -> Iterator[None]:
        work.prepare(self._root)
        self._disk.sync()
        try:
            yield
        except BaseException:
            with suppress(OSError):
                kept = tempfile.mkdtemp(prefix="klog-power-cut-")
                shutil.copytree(self._root, Path(kept, "data"))
                print(f"what was left: {kept}", file=sys.stderr)
            raise
        shutil.rmtree(self._root, ignore_errors=not self._root.exists())

    def _writer(self, work: Workload) -> Worker:
        def write(send: Send) -> None:
            for call in self._lies:
                self._kernel.rule(call, claims=True)
            work.run(self._root, RealFiles(self._kernel.table), send)

        return Worker(write)

    def _rehearse(self, work: Workload) -> int:
        """The number of messages that a run without a cut sends."""
        with self._prepared(work), self._writer(work) as writer:
            messages = [message.content for message in writer.rest()]
            assert writer.end() == ENDED
            work.check(self._root, messages, len(messages))
            return len(messages)

    def _write_until_cut(self, work: Workload, last: int) -> tuple[list[Message], int]:
        """Cut the power some time after the writer's message number `last`. Returns all messages, and the number of
        those that were sent before the cut."""
        with self._writer(work) as writer:
            messages: list[Message] = []
            while len(messages) <= last and (message := writer.message()) is not None:
                messages.append(message)
            time.sleep(self._rng.choice((0, self._rng.random() * 0.0005, self._rng.random() * 0.01)))
            if self._rng.random() < 0.5:
                self._disk.write_back(self._rng)
            begin = time.monotonic()
            self._disk.cut(self._rng.choice((LOSE_JOURNAL, KEEP_JOURNAL)))
            if self._rng.random() < 0.3:
                writer.signal(signal.SIGKILL)
            messages += writer.rest()
            code = writer.end()
        assert code != WRONG, "the writer ended by an exception that is not an error of the disk"
        self.tally[f"exit {code}"] += 1
        return messages, sum(message.at < begin for message in messages)

    def _cut_recovery(self) -> None:
        """Cut the power again while klog loads the directory that the first cut has left."""

        def load(send: Callable[[Any], None]) -> None:
            send("begins")
            logs = open_logs(self._root)
            for log in logs.logs():
                log.count()
            abandon(logs)

        with Worker(load) as loader:
            loader.message()
            time.sleep(self._rng.random() * 0.01)
            self._disk.cut(LOSE_JOURNAL)
            loader.rest()
            assert loader.end() != WRONG
        self._disk.restart()
        self.tally["second cuts"] += 1


def main(place: str, kind: str, cuts: str, seed: str, *lies: str) -> None:
    end_with_parent(os.getppid())
    of = Cuts(kind, Path(place), int(seed), lies)
    of.run(int(cuts))
    print(json.dumps(of.tally))


if __name__ == "__main__":
    main(*sys.argv[1:])
