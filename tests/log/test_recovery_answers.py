"""The result of opening a damaged log, for each kind of damage and each policy: the table of docs/guarantees.md, "After
a crash, and after damage". The log has nine batches of one record, three in each segment; the last three are above the
recovery point."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

import klog
from klog.clock import ManualClock
from klog.errors import CorruptBatch, CorruptLog
from klog.log.options import Policy
from klog.record import decode
from tests.support.batches import NOW, batch
from tests.support.damage import flip

COUNT, POINT = 9, 6
CONFIG = {"segment.bytes": 250, "index.interval.bytes": 1}
Outcome = Literal["refused", "raises"] | int
"""Refused with CorruptLog and no .log changed; opened, and readers of the damage raise CorruptBatch; or the log end."""


def log_file(path: Path, base: int) -> Path:
    return path / f"{base:020d}.log"


def batches(file: Path) -> list[tuple[int, int]]:
    return [(each.position, each.position + each.size) for each in decode(file.read_bytes())]


def body(base: int, number: int) -> Callable[[Path], None]:
    """Flip a bit in the records of a batch."""

    def damage(path: Path) -> None:
        file = log_file(path, base)
        file.write_bytes(flip(file.read_bytes(), batches(file)[number][1] - 3, 2))

    return damage


def cut(base: int, keep: int) -> Callable[[Path], None]:
    """Cut the file so many bytes after the beginning of its last batch."""

    def damage(path: Path) -> None:
        file = log_file(path, base)
        file.write_bytes(file.read_bytes()[: batches(file)[-1][0] + keep])

    return damage


def zeros(count: int) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        file = log_file(path, 6)
        file.write_bytes(file.read_bytes() + bytes(count))

    return damage


def missing(base: int) -> Callable[[Path], None]:
    return lambda path: log_file(path, base).unlink()


@dataclass(frozen=True)
class Case:
    damage: Callable[[Path], None]
    clean: bool
    strict: Outcome
    kafka: Outcome
    point: int = POINT
    start: int = 0
    lost: range = range(0)  # offsets below the log end


CASES = {
    "last batch cut in its header": Case(cut(6, 20), False, 8, 8),
    "last batch cut in its records": Case(cut(6, 65), False, 8, 8),
    "last batch fails its checksum": Case(body(6, 2), False, 8, 8),
    "some zeros at the end": Case(zeros(100), False, 9, 9),
    "pages of zeros at the end": Case(zeros(9000), False, 9, 9),
    "in the middle, above the point": Case(body(6, 1), False, "refused", 7),
    "in an earlier segment, above the point": Case(body(3, 1), False, "refused", 4, point=3),
    "closed segment, below the point, crash": Case(body(3, 1), False, "raises", "raises"),
    "closed segment, clean": Case(body(3, 1), True, "raises", "raises", point=COUNT),
    "last bytes below the point, crash": Case(cut(6, 65), False, "refused", 8, point=COUNT),
    "last bytes below the point, clean": Case(cut(6, 65), True, "refused", 8, point=COUNT),
    "middle segment missing, crash": Case(missing(3), False, "refused", 9, point=0, lost=range(3, 6)),
    "first segment missing": Case(missing(0), False, 9, 9, lost=range(3)),
    "last segment missing, unsynced": Case(missing(6), False, 6, 6),
    "last segment missing, crash": Case(missing(6), False, 6, 6, point=COUNT),
    "last segment missing, clean": Case(missing(6), True, 6, 6, point=COUNT),
    "log start above the log end": Case(lambda path: None, False, "refused", 20, start=20),
}


@pytest.fixture
def written(tmp_path: Path) -> Path:
    path = tmp_path / "t-0"
    with klog.Log.open(path, config=CONFIG, clock=ManualClock(NOW)) as log:
        for number in range(COUNT):
            log.append_batches(batch([b"value %d" % number]))
        assert [each.base_offset for each in log.segments] == [0, 3, 6]
    return path


def opened(path: Path, case: Case, policy: Policy) -> klog.Log:
    return klog.Log.open(
        path,
        config=CONFIG,
        clock=ManualClock(NOW),
        recovery=policy,
        clean_shutdown=case.clean,
        recovery_point=case.point,
        log_start_offset=case.start,
    )


def logs(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in path.glob("*.log")}


@pytest.mark.parametrize("policy", ["strict", "kafka"])
@pytest.mark.parametrize("name", CASES)
def test_a_damaged_log(written: Path, name: str, policy: Policy) -> None:
    case = CASES[name]
    expected = case.strict if policy == "strict" else case.kafka
    case.damage(written)
    before = logs(written)
    if expected == "refused":
        with pytest.raises(CorruptLog) as caught:
            opened(written, case, policy)
        assert caught.value.path is not None
        assert logs(written) == before
        return
    with opened(written, case, policy) as log:
        if expected == "raises":
            assert log.log_end_offset == COUNT
            with pytest.raises(CorruptBatch) as damage:
                list(log.read())
            assert [record.offset for record in log.read(damage.value.next_offset)][-1] == COUNT - 1
            assert logs(written) == before
            return
        assert log.log_end_offset == expected
        left = [offset for offset in range(case.start, expected) if offset not in case.lost]
        assert [(record.offset, record.value) for record in log.read()] == [(n, b"value %d" % n) for n in left]
        assert log.append([(b"k", b"next")]).first_offset == expected
    with klog.Log.open(written, config=CONFIG, clock=ManualClock(NOW), clean_shutdown=True) as log:
        assert [record.value for record in log.read(expected)] == [b"next"]


@pytest.mark.parametrize("policy", ["strict", "kafka"])
@pytest.mark.parametrize("name", [name for name in CASES if name.startswith("last segment missing")])
def test_lost_last_segments_below_the_recovery_point_are_reported(
    written: Path, name: str, policy: Policy, caplog: pytest.LogCaptureFixture
) -> None:
    case = CASES[name]
    case.damage(written)
    with klog.Log.open(written, config=CONFIG, read_only=True, recovery_point=case.point) as log:
        assert log.recovery.offsets_missing == (COUNT - 6 if case.point == COUNT else 0)
    with opened(written, case, policy) as log:
        found = log.recovery
    size = log_file(written, 3).stat().st_size
    expected = f"{log_file(written, 3)} ends at position {size}, offset 6, below the recovery point {COUNT}"
    reported = case.point == COUNT
    assert found.offsets_missing == (COUNT - 6 if reported else 0)
    assert [expected in each for each in found.details].count(True) == reported
    assert (expected in caplog.text) == reported


@pytest.mark.parametrize("policy", ["strict", "kafka"])
@pytest.mark.parametrize("clean", [True, False])
def test_a_log_that_has_lost_every_segment(written: Path, clean: bool, policy: Policy) -> None:
    for file in written.glob("0*"):
        file.unlink()
    expected = f"{written} ends at position 0, offset 0, below the recovery point {COUNT}"
    for read_only in (True, False):
        with klog.Log.open(
            written, config=CONFIG, read_only=read_only, recovery=policy, clean_shutdown=clean, recovery_point=COUNT
        ) as log:
            assert log.log_end_offset == 0 and log.recovery.offsets_missing == COUNT
            assert expected in log.recovery.reason


def test_segments_below_the_log_start_are_deleted_and_closed(written: Path) -> None:
    log_file(written, 6).with_suffix(".index").unlink()  # so that the load reads the .log
    with opened(written, Case(lambda path: None, True, "refused", 20, start=20), "kafka") as log:
        assert "all segments deleted: the log end 9 is below the log start 20" in log.recovery.reason
        held = []
        for fd in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):  # that of the listing
                held.append(os.readlink(f"/proc/self/fd/{fd}"))
        assert [name for name in held if name.startswith(str(written)) and ".deleted" in name] == []


# ---- caches ----------------------------------------------------------------------------------------------------------

CACHES = (".index", ".timeindex", ".snapshot", "leader-epoch-checkpoint")


def damages(data: bytes) -> Iterator[tuple[str, bytes | None]]:
    """Missing, cut, flipped, and of the right size with implausible content."""
    yield "missing", None
    yield from ((f"cut at {at}", data[:at]) for at in range(0, len(data), 5))
    yield from ((f"flipped at {at}", flip(data, at, at % 8)) for at in range(len(data)))
    yield "implausible", b"\xff" * len(data)
    yield "zeros", bytes(len(data))


@pytest.mark.parametrize("policy", ["strict", "kafka"])
@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("cache", CACHES)
def test_a_damaged_cache_changes_no_answer(written: Path, cache: str, clean: bool, policy: Policy) -> None:
    case = Case(lambda path: None, clean, 9, 9, point=COUNT if clean else POINT)
    files = {file.name: file.read_bytes() for file in written.iterdir()}

    def answers() -> Any:
        with opened(written, case, policy) as log:
            found = [(record.offset, record.value) for record in log.read()]
            times = log.offset_for_timestamp(NOW), log.offset_for_timestamp(NOW + 1)
            return found, times, log.log_end_offset, log.end_offset_for(0)[1], log.count()

    expected, names = answers(), sorted(name for name in files if name.endswith(cache) and files[name])
    assert names
    for name in names:
        for how, data in damages(files[name]):
            shutil.rmtree(written)
            written.mkdir()
            for other, content in files.items():
                if other != name:
                    (written / other).write_bytes(content)
                elif data is not None:
                    (written / other).write_bytes(data)
            assert answers() == expected, f"{name} {how}"
