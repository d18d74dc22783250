"""A key purged from directories that Kafka wrote: verify finds no problem after it, and every other record is
unchanged.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import klog
from klog.inspect import verify
from klog.manager.by_hand import purge_directory
from tests.support import golden

CASES = ("codecs", "compacted", "idempotent", "medley", "segments", "trimmed", "txn", "txn-v1")
Records = dict[str, list[tuple[int, bytes | None, bytes | None, int]]]


def read_all(directory: Path) -> Records:
    found: Records = {}
    with klog.open(directory, read_only=True) as logs:
        for topic, partitions in logs.topics().items():
            for partition in partitions:
                log = logs.log(topic, partition)
                found[log.name] = [
                    (record.offset, record.key, record.value, record.timestamp)
                    for record in log.read(isolation="log_end", include_control=True)
                ]
    return found


@pytest.mark.parametrize("case", CASES)
def test_purging_a_key_of_a_kafka_directory(case: str, tmp_path: Path) -> None:
    directory = golden.copy_logdir(case, tmp_path)
    before = read_all(directory)
    key, count = golden.most_frequent_key(case)
    problems = {(problem.kind, problem.message) for problem in verify(directory).problems}
    outcomes = purge_directory(directory, key)
    assert [outcome.error for outcome in outcomes if outcome.error is not None] == []
    left = sum(outcome.stats.records_left for outcome in outcomes)
    assert sum(outcome.stats.records_removed for outcome in outcomes) + left == count
    assert sum(outcome.stats.records_removed for outcome in outcomes) > 0
    after = read_all(directory)
    gone = {name: [it for it in before[name] if it not in after[name]] for name in before}
    assert {it[1] for them in gone.values() for it in them} == {key}
    assert {name: [it for it in before[name] if it not in gone[name]] for name in before} == after
    assert {(problem.kind, problem.message) for problem in verify(directory).problems} <= problems
