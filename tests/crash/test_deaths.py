"""A process dies inside an operation, the next one goes on with what it finds, and then the power is cut.

The next process finds in the page cache what the dead one has done. It must not take that for durable: neither by
acknowledging what depends on it, nor by leaving out work that it finds done.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

import klog
from klog.clock import ManualClock
from klog.spark.stream_memory import StreamMemory
from tests.crash.jobs import JOBS, cut_job
from tests.crash.operations import two_topics
from tests.crash.repaired import cut_repair
from tests.support.abandon import abandon
from tests.support.batches import NOW
from tests.support.crash_files import CrashFiles, until_done
from tests.support.power_cuts import AT_THE_END, PowerCuts
from tests.support.seeds import third

WITH_EXCHANGES = 1  # a seed of a repair


def steps_of(cut: Callable[..., Any], place: Path, **how: Any) -> list[str]:
    """The operations of the disk, if no process dies."""
    rigs: list[PowerCuts[Any]] = []

    def rig(*args: Any, **more: Any) -> PowerCuts[Any]:
        rigs.append(PowerCuts(*args, **more))
        return rigs[0]

    cut(place, rig=rig, stride=AT_THE_END, randoms=0, **how)
    return rigs[0].log


def syncs_of_names(steps: list[str]) -> list[int]:
    return [at for at, step in enumerate(steps) if step.startswith("fsync") and step.endswith("/")]


def die_at(cut: Callable[..., Any], place: Path, deaths: Iterable[int], **how: Any) -> None:
    """A process dies before each of these operations, in a run of its own. The power is cut at the end."""
    for at in deaths:
        with_a_death = place / str(at)
        assert cut(with_a_death, deaths=[at], stride=AT_THE_END, randoms=6, share=3, **how).compared > 0
        shutil.rmtree(with_a_death)


QUICK = [
    "abort_a_batch_and_repeat_it_elsewhere",
    "abort_a_staged_job",
    "compact_and_purge",
    "hand_over",
    "purge_and_compact_by_hand",
]


@pytest.mark.parametrize("name", QUICK)
def test_a_job_goes_on_after_a_death_before_a_sync_of_names(tmp_path: Path, name: str) -> None:
    how = {"name": name, "seed": 1}
    deaths = syncs_of_names(steps_of(cut_job, tmp_path / "alive", **how))
    die_at(cut_job, tmp_path, sorted({*deaths[:3], *deaths[:: -(-len(deaths) // 8)]}), **how)


def test_a_repair_makes_durable_what_a_killed_one_has_exchanged(tmp_path: Path) -> None:
    how = {"seed": WITH_EXCHANGES}
    steps = steps_of(cut_repair, tmp_path / "alive", **how)
    exchanged = max(at for at, step in enumerate(steps) if step.startswith("exchange"))
    die_at(cut_repair, tmp_path, [at for at in syncs_of_names(steps) if exchanged < at <= exchanged + 2], **how)


@pytest.mark.deep
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", [*JOBS, "repair"])
def test_a_job_goes_on_after_a_death_at_a_third_of_its_operations(tmp_path: Path, name: str, crash_seed: int) -> None:
    cut, how = (cut_repair, {"seed": 2}) if name == "repair" else (cut_job, {"seed": 2, "name": name})
    steps = range(len(steps_of(cut, tmp_path / "alive", **how)))  # type: ignore[arg-type]
    die_at(cut, tmp_path, third(steps, crash_seed), **how)  # type: ignore[arg-type]


def is_durable(root: Path, files: CrashFiles, name: str) -> bool:
    return all(any(path.endswith(name) for path in state.files) for state in files.cuts(root, 1, 12))


@pytest.mark.parametrize("left", range(5))
def test_a_group_beside_a_writer_makes_its_first_positions_durable(tmp_path: Path, left: int) -> None:
    """N1. A read-only manager writes positions, but syncs no log.dir when it opens it."""
    root, files = tmp_path / "data", CrashFiles()
    two_topics(root)
    files.keep(root)

    def read() -> None:
        logs = klog.open(root, read_only=True, clock=ManualClock(NOW), files=files)
        try:
            assert not list(logs.reader("t", "me", group="all", start="latest"))
        finally:
            abandon(logs)

    until_done(files, [left], read)
    assert is_durable(root, files, "klog-reader.all.json")


@pytest.mark.parametrize("left", range(12))
def test_a_stream_makes_durable_what_a_killed_one_has_noted(tmp_path: Path, left: int) -> None:
    """M3"""
    root, files = tmp_path / "query", CrashFiles()
    root.mkdir()
    files.keep(root)
    until_done(
        files,
        [left],
        lambda: StreamMemory(str(root / "sources" / "0"), "source", files).note({"t": "id"}),
    )
    assert is_durable(root, files, ".json")
