"""Kafka's record classes return exactly the records passed to klog's append."""

from __future__ import annotations

import pytest

from klog import Record
from tests.interop.kafka import KafkaClasses
from tests.interop.writers import Written
from tests.support import golden

pytestmark = [pytest.mark.java, pytest.mark.deep]


def given(record: Record, offset: int) -> tuple[object, ...]:
    return offset, record.timestamp, record.key, record.value, tuple(record.headers)


def test_kafka_reads_the_records_that_were_appended(kafka_classes: KafkaClasses, written: dict[str, Written]) -> None:
    differences = golden.Differences("FileRecords")
    total = 0
    for name, directory in written.items():
        for topic, appended in directory.topics.items():
            got = []
            for path in sorted(directory.partition(topic).glob("*.log")):
                answer = kafka_classes.records(path)
                differences.equal(f"{name}/{topic}/{path.name} trailing bytes", answer["trailing_bytes"], 0)
                for batch in answer["batches"]:
                    differences.equal(f"{name}/{topic} magic", batch["magic"], 2)
                    for line in batch["records"]:
                        record = golden.golden_record(line)
                        stamp = batch["max_timestamp"] if topic in directory.stamped else record.timestamp
                        differences.equal(f"{name}/{topic} stamp of {record.offset}", record.timestamp, stamp)
                        got.append(record)
            expected = [given(record, offset) for offset, record in enumerate(appended)]
            mine = [(it.offset, it.timestamp, it.key, it.value, it.headers) for it in got]
            if topic in directory.stamped:
                expected = [(offset, None, *rest) for offset, _, *rest in expected]
                mine = [(offset, None, *rest) for offset, _, *rest in mine]
            differences.equal_lists(f"{name}/{topic}", mine, expected)
            total += len(got)
    differences.report()
    assert total > 20_000


def test_append_time_is_the_clock_of_each_append(kafka_classes: KafkaClasses, written: dict[str, Written]) -> None:
    directory = written["append_time"]
    times = []
    for path in sorted(directory.partition("stamped").glob("*.log")):
        for batch in kafka_classes.records(path)["batches"]:
            assert batch["timestamp_type"] == "append"
            times += [record["ts"] for record in batch["records"]]
    first = directory.now_ms - 18 * 250
    assert times == [first + part * 250 for part in range(18) for _ in range(12)]
