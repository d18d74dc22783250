"""Records to disk, against its peer: see log_contests.py and append_contests.py."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize("index", range(3))
@pytest.mark.parametrize("contest", ["append 100B", "append 1KiB"], indirect=True)
def test_append(contest, index, measure):
    measure(contest, index)


@pytest.mark.parametrize("index", range(3))
@pytest.mark.parametrize("contest", ["append one"], indirect=True)
def test_append_one(contest, index, measure):
    measure(contest, index)


@pytest.mark.parametrize("index", range(6))
@pytest.mark.parametrize("contest", ["sustained append"], indirect=True)
def test_sustained_append(contest, index, measure):
    measure(contest, index)


@pytest.mark.parametrize("index", range(3))
@pytest.mark.parametrize("contest", ["sustained durable"], indirect=True)
def test_sustained_durable(contest, index, measure):
    measure(contest, index)


@pytest.mark.parametrize("index", range(3))
@pytest.mark.parametrize(
    "contest",
    [f"append batches {role} {size}" for role in ("leader", "follower") for size in ("16KiB", "64KiB", "1MiB")],
    indirect=True,
)
def test_append_batches(contest, index, measure):
    measure(contest, index)
