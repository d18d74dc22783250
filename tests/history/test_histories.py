"""Clients on a broker that is killed, paused and full of faults: no anomaly, and progress once it is healed. P7, T8."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from klog.testing import TestBroker
from tests.history.nemesis import disturb_process, disturb_requests
from tests.history.workload import Result, run
from tests.support.broker_process import BrokerProcess
from tests.support.patience import PATIENCE, until

CONFIG = {
    "group.consumer.heartbeat.interval.ms": 300,
    "group.min.session.timeout.ms": 1000,
    "offsets.topic.num.partitions": 2,
}
DEEP = pytest.mark.deep
RUNS = [(5, 1, PATIENCE), pytest.param(100, 2, 90, marks=DEEP)]


def seed() -> int:
    """KLOG_HISTORY_SEED, or a new one. The same seed gives the same faults; the system's scheduling it does not give."""
    found = int(os.environ.get("KLOG_HISTORY_SEED") or random.randrange(2**32))
    print(f"KLOG_HISTORY_SEED={found}")
    return found


def check(result: Result) -> None:
    print(f"faults {dict(result.faults)}, operations {dict(result.counts)}")
    print(*result.errors, *result.anomalies[:50], sep="\n")
    assert result.errors == []
    assert result.anomalies == []
    assert result.faults.total() > 0
    assert min(result.counts[kind] for kind in ("Send", "Poll", "End", "Commit", "Committed", "Ended", "Owned")) > 0


@pytest.mark.parametrize(("seconds", "members", "patience"), RUNS)
def test_a_process_that_is_killed_and_paused(tmp_path: Path, seconds: float, members: int, patience: float) -> None:
    with BrokerProcess(tmp_path / "data", CONFIG) as broker:
        check(
            run(
                broker.address,
                lambda *arguments: disturb_process(broker, *arguments),
                seed=seed(),
                seconds=seconds,
                members=members,
                patience=patience,
            )
        )
        broker.stop()
        assert "Traceback" not in (errors := broker.log.read_text()), errors


@pytest.mark.parametrize(("seconds", "members", "patience"), RUNS)
def test_requests_that_fail_before_and_after_their_effect(
    tmp_path: Path, seconds: float, members: int, patience: float
) -> None:
    with TestBroker(config=CONFIG, directory=tmp_path / "data") as broker:
        check(
            run(
                broker.bootstrap_servers,
                lambda *arguments: disturb_requests(broker, *arguments),
                seed=seed(),
                seconds=seconds,
                members=members,
                patience=patience,
            )
        )


def test_a_broker_that_loses_acknowledged_records_is_found_out(tmp_path: Path) -> None:
    """The whole of workload and checker finds an anomaly if there is one: here a log is cut while the broker is dead."""
    with BrokerProcess(tmp_path / "data", CONFIG) as broker:
        log = broker.directory / "in-0" / f"{0:020}.log"

        def lose(_chance: random.Random, _seconds: float, wait: Callable[[float], None]) -> Counter[str]:
            until(lambda: log.exists() and log.stat().st_size > 10_000)
            broker.kill()
            os.truncate(log, log.stat().st_size // 2)
            broker.start()
            wait(1.0)
            return Counter(lost=1)

        result = run(broker.address, lose, seed=seed(), seconds=3, members=1, patience=3)
    found = {anomaly.name for anomaly in result.anomalies}
    assert found & {"inconsistent offset", "lost write", "unseen", "stale end"}, found
