"""A power cut at every operation of a writer: the disk keeps any part of the unsynced changes, and the log opens.

P1: records whose append() returned survive if the page cache survives (state "all": only the process died).
P2: records that flush(), close() or durability="sync" promised are in every state.
P3: the log has a prefix of the appended records, without a gap.
P4: producers, epochs and aborted transactions are those of that prefix.
S10: if there is a clean-shutdown file, the log is as that stop left it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.producing import cut_producers
from tests.crash.workload import POLICIES, Policy, cut_writer


@pytest.mark.parametrize("durability", ["os", "sync"])
def test_a_cut_at_a_sample_of_operations_leaves_the_promised_prefix(tmp_path: Path, durability: str) -> None:
    assert cut_writer(tmp_path, durability, stride=17, randoms=2).distinct > 50


@pytest.mark.parametrize("durability", ["os", "sync"])
@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_a_cut_at_a_sample_of_operations_under_each_write_policy(
    tmp_path: Path, durability: str, policy: Policy
) -> None:
    assert cut_writer(tmp_path, durability, stride=37, first=3, randoms=1, policy=policy).distinct > 15


def test_a_cut_at_a_sample_of_operations_keeps_producer_state(tmp_path: Path) -> None:
    assert cut_producers(tmp_path, stride=17, randoms=2).distinct > 100
