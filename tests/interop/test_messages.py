"""Every version of every message has the bytes of Kafka's own classes."""

from __future__ import annotations

import json
import random
import subprocess

import pytest

from klog.protocol import ErrorCode, encode
from tests.interop.kafka import VERSIONS, Kafka
from tests.support import wire
from tools import check_schemas

pytestmark = [pytest.mark.java]
_EACH = 12
# Versions that only the newer of the two has.
_NEWER = {
    "ListOffsets": 11,
    "WriteTxnMarkers": 2,
    "DescribeLogDirs": 5,
    "RegisterBrokerRecord": 4,
    "BrokerRegistrationChangeRecord": 3,
    "ShareFetch": 2,
    "ShareAcknowledge": 2,
    "DescribeShareGroupOffsets": 1,
}
# Tagged fields that came to it without a new version.
_NEWER_FIELDS = {
    "assignment_epochs",
    "assignment_timestamp",
    "delivery_complete_count",
    "last_assignment_configs",
    "validated_topology_epoch",
}


def _run(kafka: Kafka, lines: list[str]) -> list[str]:
    command = ["java", "-Xshare:auto", "-XX:TieredStopAtLevel=1", "-cp", kafka.class_path, "Messages"]
    text = "".join(f"{line}\n" for line in lines)
    done = subprocess.run(command, input=text, capture_output=True, encoding="utf-8", timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout.splitlines()


def test_bytes_are_those_of_kafkas_classes(kafka: Kafka) -> None:
    chance, cases, lines = random.Random(29), [], []
    for owner, layout, version in wire.versions():
        names = {field.name for struct in layout.section for field in struct.fields}
        if kafka.version == VERSIONS[0] and names & _NEWER_FIELDS:
            continue
        for _ in range(_EACH):
            message = wire.make(owner, layout, version, chance)
            text = json.dumps(wire.kafka_json(message, layout, version))
            lines.append(f"{wire.kafka_class(layout)}\t{version}\t{encode(message, version).hex()}\t{text}")
            cases.append((layout, version))
    answers = _run(kafka, lines)
    codes, answers = answers[: answers.index("")], answers[answers.index("") + 1 :]
    wrong = [
        f"{line}\n  Kafka {answer}" for line, answer in zip(lines, answers, strict=True) if answer not in ("ok", "none")
    ]
    assert not wrong, f"{len(wrong)} of {len(lines)} messages differ; the first:\n" + "\n".join(wrong[:5])[:8000]
    missing = {
        (layout.name.partition(".")[0], version)
        for (layout, version), answer in zip(cases, answers, strict=True)
        if answer == "none"
    }
    assert missing == (set(_NEWER.items()) if kafka.version == VERSIONS[0] else set())
    ours = {f"{int(code)} {code.name} {str(code.is_retriable).lower()}" for code in ErrorCode}
    assert set(codes) <= ours if kafka.version == VERSIONS[0] else set(codes) == ours


def test_schemas_are_those_of_kafka(kafka: Kafka) -> None:
    assert check_schemas.differences(kafka.version) == []
