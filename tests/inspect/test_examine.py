"""verify with .log files that workers examined before finds the same problems as verify alone."""

from __future__ import annotations

import os
import pickle
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from klog.errors import CorruptData
from klog.inspect import verify
from klog.inspect.batches import Examined, examine
from klog.inspect.verify import verify_each, verify_root
from klog.report import Problem
from tests.support import golden


def by_workers(path: Path) -> list[Problem]:
    """Return the problems as workers find them: first each .log file alone, then each partition in order."""
    root = verify_root(str(path))
    problems = list(root.report.problems)
    for partition in root.partitions:
        examined: dict[str, Examined] = {}
        for log in sorted(Path(partition).glob("*.log")):
            try:
                found = examine(str(log))
            except CorruptData:
                continue
            if found is not None:
                examined[str(log)] = pickle.loads(pickle.dumps(found))
        for report in verify_each([partition], examined, lambda size: None):
            problems += report.problems
    return problems


def damages(path: Path, count: int, seed: int) -> Iterator[None]:
    """Damage the files of a directory one after the other, each time at one more position."""
    generator = random.Random(seed)
    files = sorted(file for file in path.rglob("*") if file.is_file() and file.stat().st_size)
    logs = [file for file in files if file.suffix == ".log"]
    for number in range(count):
        file = generator.choice(logs if number % 3 and logs else files)
        data = bytearray(file.read_bytes())
        kind = generator.choice(("flip", "flip", "zeros", "cut", "repeat", "insert")) if data else "insert"
        at = generator.randrange(len(data) + (not data))
        if kind == "flip":
            data[at] ^= 1 << generator.randrange(8)
        elif kind == "zeros":
            data[at : at + 200] = bytes(len(data[at : at + 200]))
        elif kind == "cut":
            del data[at:]
        elif kind == "repeat":
            data += data[at:]
        else:
            data[at:at] = generator.randbytes(generator.randrange(1, 80))
        file.write_bytes(data)
        yield


@pytest.mark.parametrize("case", golden.CASES)
def test_workers_find_the_same_problems_as_one_check(case: str, tmp_path: Path) -> None:
    directory = Path(golden.copy_logdir(case, tmp_path))
    assert by_workers(directory) == verify(directory).problems == []
    found = 0
    for _ in damages(directory, 8, sum(case.encode())):
        expected = verify(directory).problems
        assert by_workers(directory) == expected
        found += len(expected)
    assert found


def test_a_file_that_has_changed_since_is_examined_again(tmp_path: Path) -> None:
    directory = Path(golden.copy_logdir("plain", tmp_path))
    log = max(directory.rglob("*.log"), key=lambda path: path.stat().st_size)
    examined = examine(str(log))
    assert examined is not None and not examined.damage
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 1
    log.write_bytes(data)
    os.utime(log, ns=(1, 1))
    (report,) = verify_each([str(log.parent)], {str(log): examined}, lambda size: None)
    assert "crc" in {problem.kind for problem in report.problems}
