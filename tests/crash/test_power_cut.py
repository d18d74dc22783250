"""Power goes at every operation of a writer's life; the disk keeps any part of what was not synced; the log opens.

P1: what append() returned for survives when the page cache does (state "all": only the process died).
P2: what flush(), close() or durability="sync" promised survives every state.
P3: what is left is a prefix, never with a hole.
P4: producers, epochs and aborted transactions are those of that prefix.
S10: with the marker of a clean stop there is what that stop has left.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.producing import cut_producers
from tests.crash.workload import Expected, judge, look, steps
from tests.support.crash_files import CrashFiles
from tests.support.power_cuts import PowerCuts, Tally

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


def cut_everywhere(
    place: Path, durability: str, *, stride: int, randoms: int, first: int = 0, seed: int = 0, policy: Policy = DEFAULT
) -> Tally:
    expected = Expected()

    def write(root: Path, files: CrashFiles) -> None:
        for _ in steps(root, files, expected, durability, *policy):
            pass

    cuts = PowerCuts(
        place,
        look,
        lambda found, only_died: judge(found, expected, expected.acknowledged if only_died else expected.durable),
        stride=stride,
        first=first,
        randoms=randoms,
        seed=seed,
        torn=policy[0].get("klog.io.write") == "direct",  # it goes out in several pieces, of which any may be lost
    )
    tally = cuts.run(write)
    whole = look(cuts.root)
    judge(whole, expected, len(expected.values))
    assert whole.clean
    return tally


@pytest.mark.parametrize("durability", ["os", "sync"])
def test_a_cut_at_a_sample_of_operations_leaves_a_prefix_with_all_that_was_promised(
    tmp_path: Path, durability: str
) -> None:
    assert cut_everywhere(tmp_path, durability, stride=9, randoms=2).distinct > 100


@pytest.mark.parametrize("durability", ["os", "sync"])
@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_so_it_does_whichever_way_the_bytes_take(tmp_path: Path, durability: str, policy: Policy) -> None:
    assert cut_everywhere(tmp_path, durability, stride=37, first=3, randoms=1, policy=policy).distinct > 15


def test_what_producers_write_is_what_it_was_at_that_end(tmp_path: Path) -> None:
    assert cut_producers(tmp_path, stride=17, randoms=2).distinct > 100


@pytest.mark.deep
@pytest.mark.parametrize("durability", ["os", "sync"])
def test_a_cut_at_every_operation_leaves_a_prefix_with_all_that_was_promised(
    tmp_path: Path, durability: str, crash_seed: int
) -> None:
    assert cut_everywhere(tmp_path, durability, stride=1, randoms=12, seed=crash_seed).distinct > 1500


@pytest.mark.deep
@pytest.mark.parametrize("durability", ["os", "sync"])
@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_at_every_operation_it_does_whichever_way_the_bytes_take(
    tmp_path: Path, durability: str, policy: Policy, crash_seed: int
) -> None:
    tally = cut_everywhere(tmp_path, durability, stride=1, randoms=4, seed=crash_seed, policy=policy)
    assert tally.distinct > 600


@pytest.mark.deep
def test_at_every_operation_what_producers_write_is_what_it_was_at_that_end(tmp_path: Path, crash_seed: int) -> None:
    assert cut_producers(tmp_path, stride=1, randoms=8, seed=crash_seed).distinct > 2000
