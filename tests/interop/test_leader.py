"""Kafka's LogValidator and klog.record.validate_append give the same result for the same produced buffers."""

from __future__ import annotations

import base64
import collections
import dataclasses
from typing import Any

import pytest

from klog.errors import CorruptBatch, InvalidRecord, InvalidTimestamp, KlogError
from klog.record import ValidatedBatch, iter_records, validate_append
from tests.interop.kafka import KafkaClasses
from tests.support import golden
from tests.support.produced import (
    LAST_OFFSET_DELTA,
    NOW,
    Produced,
    batch_of,
    override,
    produced,
)
from tests.support.reference import ReferenceRecord

pytestmark = [pytest.mark.java, pytest.mark.deep]

SEEDS = 3000
CLASSES = {
    "InvalidRecordException": InvalidRecord,
    "InvalidTimestampException": InvalidTimestamp,
    "CorruptRecordException": CorruptBatch,
}


def asked(case: Produced) -> dict[str, Any]:
    fields = dataclasses.asdict(case)
    fields["bytes"] = base64.b64encode(fields.pop("data")).decode()
    return fields


def klogs(case: Produced) -> ValidatedBatch | KlogError:
    try:
        return validate_append(case.data, case.config, **case.options)
    except KlogError as error:
        return error


def allowed(case: Produced, mine: ValidatedBatch | KlogError, answer: dict[str, Any]) -> str | None:
    """Why the two may differ; FINDINGS.md has the reasons."""
    text = "" if isinstance(mine, ValidatedBatch) else str(mine)
    if "LogAppendTime" in text:
        return "the batch has the type LogAppendTime"
    if isinstance(mine, InvalidTimestamp) and all("negative" in error.message for error in mine.record_errors):
        return "negative times"
    if answer.get("exception") == "UnsupportedOperationException":
        return "Kafka's own mistake"
    if "less than a batch" in text and answer.get("message") == "Record batch has no batches at all":
        return "cut short"
    if case.origin == "coordinator" and "InvalidOffsetOrSequenceRecordsPerSec" in getattr(mine, "meters", ()):
        return "a coordinator's header"
    if case.origin == "coordinator" and isinstance(mine, ValidatedBatch) and case.data[22] & 0x27 > 0x20:
        return "a compressed control batch"
    return None


def compare(case: Produced, mine: ValidatedBatch | KlogError, answer: dict[str, Any]) -> list[str]:
    if isinstance(mine, ValidatedBatch) != ("bytes" in answer):
        return [f"Kafka: {answer.get('exception', 'accepted')}, klog: {mine!r}"]
    differences = []

    def equal(name: str, got: object, kafkas: object) -> None:
        if got != kafkas:
            differences.append(f"{name}: Kafka {kafkas!r}, klog {got!r}")

    if isinstance(mine, ValidatedBatch):
        theirs = base64.b64decode(answer["bytes"])[: len(mine)]  # without a truncated batch after it
        if mine.compression == "none" or not mine.message_size_maybe_changed:
            equal("bytes", bytes(mine), theirs)
        for at, end in ((0, 8), (12, 17), (21, 61)):  # the header except length and checksum
            equal(f"header {at}", bytes(mine)[at:end], theirs[at:end])
        (batch,) = answer["batches"]
        kafkas = [golden.golden_record(line) for line in batch.get("records", ())]
        if "unreadable" not in batch:
            equal("records", [golden.record_tuple(it) for it in iter_records(mine, include_control=True)], kafkas)
        equal("changed", mine.message_size_maybe_changed, answer["changed"])
        equal("converted", mine.conversion_count, answer["converted"])
        equal("max_timestamp", mine.max_timestamp, answer["max_timestamp"])
        equal("next offset", mine.last_offset + 1, answer["next_offset"])
        more = mine.temporary_memory_bytes - answer["temporary"]
        if not 0 <= more <= 3 * mine.count:  # overlong varints
            equal("temporary", mine.temporary_memory_bytes, answer["temporary"])
        return differences
    equal("class", type(mine), CLASSES.get(answer["exception"], answer["exception"]))
    equal(
        "errors", [e.batch_index for e in getattr(mine, "record_errors", ())], [i for i, _ in answer["record_errors"]]
    )
    if answer["record_errors"] or "NoKeyCompactedTopicRecordsPerSec" not in answer["meters"]:
        equal("meters", dict(mine.meters), answer["meters"])  # metrics counted before an error stay counted
    return differences


def test_same_verdict_and_same_bytes(kafka_classes: KafkaClasses) -> None:
    cases = [produced(seed) for seed in range(SEEDS)]
    outcomes: collections.Counter[str] = collections.Counter()
    report = []
    for seed, (case, answer) in enumerate(
        zip(cases, kafka_classes.validate([asked(case) for case in cases]), strict=True)
    ):
        mine = klogs(case)
        reason = allowed(case, mine, answer)
        outcomes[reason or type(mine).__name__] += 1
        if reason is None:
            report += [f"seed {seed}: {line}" for line in compare(case, mine, answer)]
    assert not report, "\n".join(report[:30])
    agreed = sum(outcomes[name] for name in ("ValidatedBatch", "InvalidRecord", "InvalidTimestamp", "CorruptBatch"))
    assert agreed > 0.95 * SEEDS
    assert min(outcomes[name] for name in ("InvalidRecord", "InvalidTimestamp", "CorruptBatch")) > 100


def test_header_keys_with_invalid_utf8(kafka_classes: KafkaClasses) -> None:
    """Kafka decodes them and writes U+FFFD; klog keeps the bytes."""
    data = batch_of([ReferenceRecord(b"k", b"v", NOW, (("\udcff", b"x"),), 0)])
    case = Produced(data, "gzip")
    (answer,) = kafka_classes.validate([asked(case)])
    (kafkas,) = answer["batches"][0]["records"]
    (record,) = iter_records(klogs(case))
    assert kafkas["h"][0][0] == "�" and record.headers == (("\udcff", b"x"),)


@pytest.mark.parametrize("codec", range(5))
def test_known_cases_where_klog_is_stricter(kafka_classes: KafkaClasses, codec: int) -> None:
    """Pinned, so that a change in Kafka is noticed."""

    def records(*deltas: int) -> list[ReferenceRecord]:
        return [ReferenceRecord(b"k", b"v", NOW, (), delta) for delta in deltas]

    disorder = Produced(batch_of(records(0, 2, 1), codec=codec))
    elsewhere = Produced(batch_of(records(0, 2, 1), codec=codec), "gzip" if codec != 1 else "lz4")
    stamped = Produced(batch_of(records(0, 1), codec=codec, attributes=8))
    header = Produced(override(batch_of(records(0, 1), codec=codec), (LAST_OFFSET_DELTA, 9)), origin="coordinator")
    cases = [disorder, elsewhere, stamped, header]
    kafkas = [answer.get("exception") for answer in kafka_classes.validate([asked(case) for case in cases])]
    # Kafka fails on a compressed batch with offsets out of order: it has not kept the records to rewrite.
    assert kafkas == ["UnsupportedOperationException" if codec else None, None, None, None]
    assert [type(klogs(case)) for case in cases] == [InvalidRecord, InvalidRecord, InvalidTimestamp, InvalidRecord]
