"""Power goes at every operation of a writer's life; the disk keeps any part of what was not synced; the log opens.

P1: what append() returned for survives when the page cache does (state "all": only the process died).
P2: what flush(), close() or durability="sync" promised survives every state.
P3: what is left is a prefix, never with a hole.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

import klog
from tests.crash.workload import Expected, check, steps
from tests.support.crash_files import CrashFiles, PowerCut

Policy = tuple[dict[str, object], int]
POLICIES: dict[str, Policy] = {
    "zeros": ({"klog.io.preallocate": "zeros"}, 47),
    "none": ({"klog.io.preallocate": "none"}, 47),
    "behind": ({"klog.io.write.behind.bytes": 4096, "internal.segment.bytes": 30_000}, 2000),
    "dontcache": ({"klog.io.write": "dontcache"}, 47),
    "direct": ({"klog.io.write": "direct", "internal.segment.bytes": 50_000}, 3000),
    "direct-zeros": (
        {"klog.io.write": "direct", "klog.io.preallocate": "zeros", "internal.segment.bytes": 50_000},
        3000,
    ),
}
"""Ways to the disk beside the default, which the tests without a policy take, and how long the values are."""
DEFAULT: Policy = ({}, 47)


def run_until(
    path: Path, stop_at: int | None, durability: str, policy: Policy = DEFAULT
) -> tuple[CrashFiles, Expected]:
    files, expected = CrashFiles(stop_at), Expected()
    try:
        for _ in steps(path, files, expected, durability, *policy):
            pass
    except PowerCut:
        pass
    return files, expected


def check_or_cut(state: Path, expected: Expected, promised: int, *, direct: bool) -> None:
    """check(). A direct write goes out in several pieces, and one of them lost leaves a torn batch with good ones behind
    it, which looks like damage: "strict" may refuse that, and "kafka" cuts it, down to what was promised at most."""
    try:
        check(state, expected, promised)
    except klog.errors.CorruptLog:
        if not direct:
            raise
        check(state, expected, promised, recovery="kafka")


def cut_everywhere(
    tmp_path: Path, durability: str, stride: int, first: int, randoms: int, policy: Policy = DEFAULT
) -> int:
    whole, expected = run_until(tmp_path / "whole", None, durability, policy)
    assert whole.steps > 100
    assert check(tmp_path / "whole", expected, len(expected.values)) == len(expected.values)
    states = 0
    for stop_at in range(first, whole.steps, stride):
        path = tmp_path / f"run-{stop_at}"
        files, expected = run_until(path, stop_at, durability, policy)
        if not path.exists():
            continue
        for name, state in files.states(path, tmp_path / "states", stop_at, randoms):
            promised = expected.acknowledged if name == "all" else expected.durable
            try:
                check_or_cut(state, expected, promised, direct=policy[0].get("klog.io.write") == "direct")
            except BaseException as error:
                error.add_note(
                    f"stop_at={stop_at} state={name} durability={durability} policy={policy} last ops: {files.log[-6:]}"
                )
                raise
            states += 1
        shutil.rmtree(tmp_path / "states", ignore_errors=True)
        shutil.rmtree(path)
    return states


@pytest.mark.parametrize("durability", ["os", "sync"])
def test_a_cut_at_a_sample_of_operations_leaves_a_prefix_with_all_that_was_promised(
    tmp_path: Path, durability: str
) -> None:
    assert cut_everywhere(tmp_path, durability, stride=5, first=0, randoms=1) > 100


@pytest.mark.parametrize("durability", ["os", "sync"])
@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_so_it_does_whichever_way_the_bytes_take(tmp_path: Path, durability: str, policy: Policy) -> None:
    assert cut_everywhere(tmp_path, durability, stride=23, first=3, randoms=1, policy=policy) > 15


@pytest.mark.deep
@pytest.mark.parametrize("durability", ["os", "sync"])
def test_a_cut_at_every_operation_leaves_a_prefix_with_all_that_was_promised(tmp_path: Path, durability: str) -> None:
    seed = int(os.environ.get("KLOG_CRASH_SEED", "0"))
    assert cut_everywhere(tmp_path, durability, stride=1, first=seed % 2, randoms=6) > 800


@pytest.mark.deep
@pytest.mark.parametrize("durability", ["os", "sync"])
@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_at_every_operation_it_does_whichever_way_the_bytes_take(
    tmp_path: Path, durability: str, policy: Policy
) -> None:
    seed = int(os.environ.get("KLOG_CRASH_SEED", "0"))
    assert cut_everywhere(tmp_path, durability, stride=1, first=seed % 2, randoms=6, policy=policy) > 600
