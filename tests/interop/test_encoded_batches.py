"""Kafka's record classes read klog.record's batches with the same content."""

from __future__ import annotations

from pathlib import Path

import pytest

from klog.record import decode
from tests.interop.kafka import KafkaClasses
from tests.support import encoded, golden

pytestmark = [pytest.mark.java, pytest.mark.deep]


@pytest.mark.parametrize("compression", encoded.COMPRESSIONS, ids=str)
def test_every_kind_of_batch(kafka_classes: KafkaClasses, compression: str | None, tmp_path: Path) -> None:
    kinds = {**encoded.batches(compression), **({} if compression else encoded.control_batches())}
    differences = golden.Differences(f"encoded {compression}")
    for name, data in kinds.items():
        path = tmp_path / f"{name}.log"
        path.write_bytes(data)
        answer = kafka_classes.records(path)
        differences.equal(f"{name}: bytes left", answer["trailing_bytes"], 0)
        for ours, theirs in zip(decode(data), answer["batches"], strict=True):
            for field in (
                "base_offset",
                "last_offset",
                "base_sequence",
                "producer_id",
                "producer_epoch",
                "leader_epoch",
            ):
                differences.equal(f"{name} {field}", getattr(ours, field), theirs[field])
            for field in (
                "is_transactional",
                "is_control",
                "max_timestamp",
                "size",
                "magic",
                "crc",
                "delete_horizon_ms",
            ):
                differences.equal(f"{name} {field}", getattr(ours, field), theirs[field])
            differences.equal(f"{name} count", ours.count, theirs["count"])
            differences.equal(f"{name} codec", ours.compression, theirs["codec"])
            differences.equal_lists(
                f"{name} records",
                [golden.record_tuple(record) for record in ours],
                [golden.golden_record(line) for line in theirs["records"]],
            )
    differences.report()
