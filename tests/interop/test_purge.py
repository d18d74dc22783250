"""Kafka's dump tool over directories with a purged key: every batch is valid, empty ones too, and every index."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from klog.manager.by_hand import purge_directory
from tests.interop import dumplog
from tests.interop.kafka import Kafka, complaints
from tests.support import golden

pytestmark = [pytest.mark.java, pytest.mark.deep]

# What the tool prints for every log with gaps inside a batch, compacted ones too.
_MISSING = re.compile(r"Non-consecutive offsets in|^ *-?[0-9]+ is followed by [0-9]+$")
CASES = ("codecs", "compacted", "idempotent", "medley", "segments", "txn")


def test_kafka_reads_the_remaining_records(kafka: Kafka, tmp_path: Path) -> None:
    files = []
    for case in CASES:
        directory = golden.copy_logdir(case, tmp_path)
        key, _ = golden.most_frequent_key(case)
        assert any(outcome.stats.segments_rewritten for outcome in purge_directory(directory, key)), case
        for suffix in (".log", ".index", ".timeindex"):
            files += sorted(path for path in directory.glob(f"*/*{suffix}") if path.stat().st_size or suffix != ".log")
    _, err = kafka.dump(files, "--index-sanity-check")
    assert complaints(kafka.version, err) == []
    out, err = kafka.dump([path for path in files if path.suffix == ".log"], "--deep-iteration")
    assert [line for line in complaints(kafka.version, err) if not _MISSING.search(line)] == []
    sections = dumplog.parse(out)
    assert all(batch.is_valid for section in sections for batch in section.batches)
    assert any(batch.count == 0 for section in sections for batch in section.batches)
