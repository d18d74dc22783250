"""After a clean stop, the end of the last segment is confirmed in one step, or the loader finds it. The result is the
same in both cases."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import klog
from klog.clock import ManualClock
from klog.errors import KlogError
from klog.log.load import loader
from klog.log.options import Policy
from klog.segment import names, settled_end
from tests.support.batches import old
from tests.support.damage import flip
from tests.support.logs import NOW, tree

END = 12
SUFFIXES = (names.LOG, names.INDEX, names.TIME_INDEX)


@pytest.fixture(scope="module", params=[0, 4096], ids=["an-entry-each", "few-entries"])
def original(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two segments. The times of the last one rise and fall; its largest is in the middle."""
    directory = tmp_path_factory.mktemp("original") / "t-0"
    with klog.Log.open(directory, config={"index.interval.bytes": request.param}, clock=ManualClock(NOW)) as log:
        log.append([(b"key", b"value", NOW)] * 2)
        log.roll()
        for number, time in enumerate((1, 2, 9, 4, 5)):
            log.append([(b"key", b"%d" % number, NOW + time)] * 2)
        assert log.log_end_offset == END
    return directory


def result(directory: Path, policy: Policy, point: int) -> tuple[Any, ...]:
    """The result or the error of a load, and the files that it leaves."""
    try:
        with klog.Log.open(
            directory, recovery=policy, clean_shutdown=True, recovery_point=point, clock=ManualClock(NOW)
        ) as log:
            sizes = [each.size for each in log.segments]
            found: Any = (log.log_end_offset, log.recovery.reason, log.leader_epochs, sizes)
    except (KlogError, OSError) as error:
        found = type(error).__name__, str(error)
    return found, tree(directory)


def both(monkeypatch: pytest.MonkeyPatch, damaged: Path, out: Path, policy: Policy, point: int = END) -> list[Any]:
    """The results of a load with and without the confirmation."""
    results = []
    for confirm in (settled_end, lambda *_: None):
        monkeypatch.setattr(loader, "settled_end", confirm)
        shutil.copytree(damaged, out)
        results.append(result(out, policy, point))
        shutil.rmtree(out.parent / "t-0")
        for checkpoint in out.parent.glob("*checkpoint"):
            checkpoint.unlink()
    return results


def test_a_clean_end_is_confirmed(original: Path) -> None:
    end = settled_end(str(original), 2)
    assert end is not None
    assert (end.next_offset, end.leader_epoch) == (END, 0)
    assert end.size == (original / names.file_name(2, names.LOG)).stat().st_size
    assert settled_end(str(original), 3) is None, "there is no such segment"


@pytest.mark.parametrize("point", [0, 1, END - 1, END])
@pytest.mark.parametrize("flipped", [False, True])
@pytest.mark.parametrize("policy", ["strict", "kafka"])
def test_another_recovery_point_than_the_end(
    original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: Policy, flipped: bool, point: int
) -> None:
    """strict compares the checksum of the last batch then: the headers alone would be confirmed."""
    damaged = tmp_path / "damaged"
    shutil.copytree(original, damaged)
    path = damaged / names.file_name(2, names.LOG)
    data = path.read_bytes()
    path.write_bytes(flip(data, len(data) - 3) if flipped else data)
    for (end, text, *_), _ in both(monkeypatch, damaged, tmp_path / "log" / "t-0", policy, point):
        if flipped and policy == "strict" and point not in (0, END):
            assert end == "CorruptLog" and f"contradicts the recovery point {point}" in text
        else:
            assert end == END


def test_messages_of_old_formats_have_any_end(tmp_path: Path) -> None:
    """The recovery point may be that of another copy: it refuses only an invalid batch."""
    (tmp_path / "t-0").mkdir()
    (tmp_path / "t-0" / names.file_name(0, names.LOG)).write_bytes(old(1, 0, 2))
    with klog.Log.open(tmp_path / "t-0", clean_shutdown=True, recovery_point=1) as log:
        assert log.log_end_offset == 3


@pytest.mark.parametrize("policy", ["strict", "kafka"])
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_any_flipped_bit_gives_the_result_of_the_loader(
    original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str, policy: Policy
) -> None:
    damaged = tmp_path / "damaged"
    shutil.copytree(original, damaged)
    path = damaged / names.file_name(2, suffix)
    data = path.read_bytes()
    for at in range(len(data)):
        path.write_bytes(data[:at] + bytes([data[at] ^ 1 << at % 8]) + data[at + 1 :])
        confirmed, found = both(monkeypatch, damaged, tmp_path / "log" / "t-0", policy)
        assert confirmed == found, f"byte {at}"


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_any_cut_gives_the_result_of_the_loader(
    original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    damaged = tmp_path / "damaged"
    shutil.copytree(original, damaged)
    path = damaged / names.file_name(2, suffix)
    data = path.read_bytes()
    for size in range(len(data) + 9):
        path.write_bytes(data[:size].ljust(size, b"\0"))
        confirmed, found = both(monkeypatch, damaged, tmp_path / "log" / "t-0", "strict")
        assert confirmed == found, f"{size} bytes"


@pytest.mark.parametrize("point", [0, 2, END - 1, END, END + 1])
@pytest.mark.parametrize("suffix", [*SUFFIXES, None])
def test_a_missing_file_gives_the_result_of_the_loader(
    original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str | None, point: int
) -> None:
    damaged = tmp_path / "damaged"
    shutil.copytree(original, damaged)
    if suffix is not None:
        (damaged / names.file_name(2, suffix)).unlink()
    confirmed, found = both(monkeypatch, damaged, tmp_path / "log" / "t-0", "strict", point)
    assert confirmed == found
