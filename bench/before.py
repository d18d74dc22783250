"""The cost of calls at another commit and now: python -m bench.before COMMIT [--docs]

The commit is exported to a temporary directory and built there. Each tree has its own processes, in turn; the figure is
the least processor time of the calling thread. --docs writes the table to docs/performance.md.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
DOCUMENT = ROOT / "docs" / "performance.md"
BEGIN = "<!-- written by python -m bench.before 756a4ba --docs -->"
_TURNS = 5
_MEMORY = "/dev/shm"


def measured(folder: Path, *, tiny: bool = False) -> dict[str, float]:
    """Return the us of each call, after checking what it stores or returns. Uses only what klog has had for long."""
    import klog
    from klog import record

    found: dict[str, float] = {}
    rounds, few = (1, 1) if tiny else (7, 100)

    def time_of(name: str, call: Callable[[], Any], count: int) -> None:
        best = float("inf")
        for _ in range(rounds):
            began = time.thread_time()
            for _ in range(1 if tiny else count):
                call()
            best = min(best, (time.thread_time() - began) / (1 if tiny else count))
        found[name] = best * 1e6

    def batch(records: int, **fields: Any) -> bytes:
        draw = random.Random(records)
        return bytes(record.encode([(b"k" * 10, draw.randbytes(45) + b"v" * 45) for _ in range(records)], **fields))

    one = [(b"k" * 10, b"v" * 90)]
    with klog.Log.open(folder / "one-0") as log:
        time_of("`append` of one record", lambda: log.append(one), 20 * few)
        sequence = itertools.count()

        def idempotent() -> None:
            log.append_batches(record.encode(one, producer_id=7, producer_epoch=0, base_sequence=next(sequence)))

        time_of("`encode` and `append_batches` of it, idempotent", idempotent, 20 * few)
        assert log.count() == log.log_end_offset > 0
    with klog.Log.open(folder / "batches-0") as log:
        for name, sent, count in (
            ("`append_batches` of 16 KiB, leader", batch(145), 10 * few),
            ("`append_batches` of 1 MiB, leader", batch(95 if tiny else 9500), 40),
            ("`append_batches` of 1 MiB of lz4, leader", batch(95 if tiny else 9500, compression="lz4"), 40),
        ):
            before = log.log_end_offset
            time_of(name, lambda sent=sent: log.append_batches(sent), count)  # type: ignore[misc]
            assert log.log_end_offset > before
    shutil.rmtree(folder / "batches-0")
    with klog.Log.open(folder / "fetched-0") as log:
        part = batch(36)
        for _ in range(1200 if tiny else 20_000):
            log.append_batches(part)
        end = log.log_end_offset
        draw = random.Random(1)
        offsets = itertools.cycle([draw.randrange(end - 20_000) for _ in range(3000)])
        following: Iterator[int] = itertools.cycle(range(0, end, 36))
        time_of("`fetch` of 4 KiB at a random offset", lambda: log.fetch(next(offsets), 1), 20 * few)
        time_of("`fetch` of 1 MiB at a random offset", lambda: log.fetch(next(offsets), 1 << 20), 10 * few)
        time_of("`fetch` of 4 KiB where the last one ended", lambda: log.fetch(next(following), 1), 20 * few)
        assert log.fetch(40, 1).size == len(part)
        with _dropping() as out:
            time_of("`fetch` and `send_to` of 64 KiB", lambda: log.fetch(next(offsets), 1 << 16).send_to(out), 10 * few)
        with klog.Log.open(folder / "fetched-0", read_only=True) as reader:
            began = time.thread_time()
            reader.fetch(0, 1)
            found["the first `fetch` of a read-only log"] = (time.thread_time() - began) * 1e6
        last = end - 36 * 30

        def read() -> int:
            return sum(len(each.key) + len(each.value) for each in log.read(last))

        assert read() == 36 * 30 * 100
        time_of("a record, its key and value read", read, 5)
        found["a record, its key and value read"] /= 36 * 30
    number = 10 if tiny else 1000
    with klog.open(folder / "many", create=True) as logs:
        logs.create_topic("t", partitions=number)
        for partition in range(number):
            logs.log("t", partition).append(one)
    for _ in range(rounds):
        began = time.thread_time()
        logs = klog.open(folder / "many")
        opened = [logs.log("t", partition) for partition in range(number)]
        taken = (time.thread_time() - began) * 1e6 / number
        assert all(log.log_end_offset == 1 for log in opened)
        logs.close()
        name = "a clean partition, one of 1,000, opened"
        found[name] = min(taken, found.get(name, taken))
    return found


@contextmanager
def _dropping() -> Iterator[socket.socket]:
    """A socket whose bytes another thread drops."""
    near, far = socket.socketpair()
    near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)

    def drop() -> None:
        into = bytearray(1 << 20)
        while far.recv_into(into):
            pass

    thread = threading.Thread(target=drop, daemon=True)
    thread.start()
    with far:
        with near:
            yield near
        thread.join()


def _child(root: Path) -> dict[str, float]:
    """What a process measures with the klog of a tree."""
    code = (
        "import sys; sys.path[:0] = sys.argv[1:3]; import json, os; from pathlib import Path; import klog\n"
        "assert klog.__file__.startswith(sys.argv[1]), klog.__file__\n"
        "import importlib.util as of; spec = of.spec_from_file_location('before', sys.argv[3])\n"
        "module = of.module_from_spec(spec); spec.loader.exec_module(module)\n"
        "print(json.dumps(module.measured(Path(sys.argv[4])))); sys.stdout.flush(); os._exit(0)\n"
    )
    with tempfile.TemporaryDirectory(prefix="klog-before-", dir=_MEMORY) as folder:
        command = [sys.executable, "-c", code, str(root), str(root), __file__, folder]
        output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=folder).stdout
    result: dict[str, float] = json.loads(output)
    return result


def compared(commit: str) -> dict[str, tuple[float, float]]:
    """Return the us of each call at the commit and now."""
    least: defaultdict[str, dict[str, float]] = defaultdict(dict)
    with tempfile.TemporaryDirectory(prefix="klog-before-") as folder:
        archive = subprocess.run(["git", "archive", commit], cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout
        subprocess.run(["tar", "-x", "-C", folder], input=archive, check=True)
        print(f"building {commit} ...", file=sys.stderr)
        build = [sys.executable, "-W", "ignore", "setup.py", "-q", "build_ext", "--inplace"]
        subprocess.run(build, cwd=folder, check=True, stdout=subprocess.DEVNULL)
        for turn in range(_TURNS):
            print(f"round {turn + 1} of {_TURNS}", file=sys.stderr)
            for root in (folder, os.fspath(ROOT)):
                for name, us in _child(Path(root)).items():
                    least[name][root] = min(us, least[name].get(root, us))
        return {name: (by[folder], by[os.fspath(ROOT)]) for name, by in least.items()}


def _us(value: float) -> str:
    return f"{value:,.1f}" if value >= 1 else f"{value:.2g}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit")
    parser.add_argument("--docs", action="store_true", help="write docs/performance.md")
    asked = parser.parse_args()
    from bench.table import between, rows

    found = compared(asked.commit)
    body = [(name, _us(before), _us(now), f"{before / now:,.1f}") for name, (before, now) in found.items()]
    table = "\n".join(rows(("call", f"us at {asked.commit}", "us now", "times as fast"), body, left=1))
    print(table)
    if asked.docs:
        DOCUMENT.write_text(between(DOCUMENT.read_text(), BEGIN, table))


if __name__ == "__main__":
    main()
