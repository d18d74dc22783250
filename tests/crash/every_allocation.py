"""Makes every allocation of klog's C and Cython code fail, in a process with intercept.c preloaded: see
test_every_fault.py.

    python -m tests.crash.every_allocation STRIDE FIRST [OPERATION]

For N = FIRST, FIRST + STRIDE, ... until the operation makes fewer than N allocations: the Nth one fails; for every tenth N also
all later ones. The operation must raise MemoryError or one of klog's errors, or succeed without the memory. Its log
must keep every acknowledged record, and the same process must be able to run the operation again.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import random
import sys
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import klog
from klog.errors import KlogError
from tests.crash.every_fault import Sweep, in_a_child, load_all
from tests.crash.operations import OPERATIONS, Book, Operation, nothing
from tests.support.batches import NOW
from tests.support.intercept import library

NO_ALLOCATION, BROKEN, ALWAYS = 4, 5, 1 << 62


@contextmanager
def failing(first: int, times: int) -> Iterator[None]:
    """Inside the block, `times` allocations fail, beginning with number `first`."""
    ctypes.c_int64.in_dll(library(), "ic_allocations").value = 0
    ctypes.c_int64.in_dll(library(), "ic_failed").value = 0
    ctypes.c_int64.in_dll(library(), "ic_fail_first").value = first
    ctypes.c_int64.in_dll(library(), "ic_fail_times").value = times
    try:
        yield
    finally:
        ctypes.c_int64.in_dll(library(), "ic_fail_times").value = 0


def failed() -> int:
    return ctypes.c_int64.in_dll(library(), "ic_failed").value


def allocations() -> int:
    return ctypes.c_int64.in_dll(library(), "ic_allocations").value


def encode_and_decode(_root: Path, _book: Book) -> None:
    """Use only the packages record and codec: encode, validate, decode, columns and pairs, with every codec."""
    chance = random.Random(1)
    for compression in (None, "gzip", "snappy", "lz4", "zstd"):
        records = [
            klog.Record(b"%d" % n, chance.randbytes(200), NOW + n, [("a", b"b"), ("c", None)]) for n in range(300)
        ]
        data = klog.record.encode(records, compression=compression)
        assert klog.record.validate(data) == 300
        assert [record.value for one in klog.record.decode(data) for record in one] == [one.value for one in records]
        assert len(list(klog.record.pairs(data))) == 300
        columns = klog.record.columns(data)
        columns.__arrow_c_array__()


MORE = {
    "encode_and_decode": Operation(nothing, encode_and_decode, lambda _root, _notes: None),
}


def run(operation: Operation, root: Path, book: Book, first: int, times: int) -> int:
    with failing(first, times):
        try:
            operation.run(root, book)
        except MemoryError:
            pass
        except (OSError, KlogError) as error:
            if getattr(error, "errno", None) not in (None, errno.ENOMEM):
                raise
        except Exception:
            if failed():
                raise
            traceback.print_exc()
            return BROKEN
    if not failed():
        return NO_ALLOCATION
    operation.check(root, book.notes())
    return 0


def main(stride: str, begin: str, only: str = "") -> None:
    load_all()
    OPERATIONS.update(MORE)
    result: dict[str, Any] = {"wrong": [], "failed": {}}
    with tempfile.TemporaryDirectory(
        prefix="klog-memory-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None
    ) as at:
        sweep = Sweep(Path(at))
        for name, operation in OPERATIONS.items():
            if only not in name:
                continue
            sweep.copy(name, fresh=True)
            for times in (1, ALWAYS):
                first = int(begin)
                while True:
                    root, book, output = sweep.copy(name), Book(), Path(at) / "output"
                    output.unlink(missing_ok=True)
                    ended = in_a_child(lambda: run(operation, root, book, first, times), output)  # noqa: B023
                    if ended == NO_ALLOCATION:
                        break
                    result["failed"][name] = result["failed"].get(name, 0) + 1
                    if ended:
                        result["wrong"].append(f"{name}: {first}, {times} times: {ended}\n{output.read_text()}")
                    if ended == BROKEN:
                        break
                    first += int(stride) * (10 if times == ALWAYS else 1)
    print(json.dumps(result))


if __name__ == "__main__":
    main(*sys.argv[1:])
