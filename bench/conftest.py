"""pytest-benchmark over the contests: one benchmark per contestant, grouped by contest, results checked first.

pytest bench                      all contests; with KLOG_BENCH_TINY=1 a few records each
"""

from __future__ import annotations

import os

import pytest

from bench.compare import FACTORIES
from bench.contest import Contest, Unavailable

TINY = os.environ.get("KLOG_BENCH_TINY", "") not in ("", "0")


@pytest.fixture
def contest(request, tmp_path):
    """The contest whose name parametrizes the test."""
    try:
        made = FACTORIES[request.param](TINY, tmp_path)
    except Unavailable as missing:
        pytest.skip(f"needs: {missing}")
    yield made
    made.close()


@pytest.fixture
def measure(benchmark):
    """Check the contest, then measure the contestant with this index; the last one is the peer."""

    def measure(contest: Contest, index: int) -> None:
        contest.check()
        contestant = contest.contestants[index]
        benchmark.group = contest.name
        benchmark.name = contestant.name
        benchmark.extra_info.update(records=contest.records, bytes=contest.bytes, peer=contest.peer.name)
        if contestant.before is None:
            benchmark(contestant.run)
        else:
            before = contestant.before  # pytest-benchmark would pass its result to run as arguments
            benchmark.pedantic(contestant.run, setup=lambda: before() and None, rounds=2 if TINY else 7)

    return measure
