"""The list of Kafka's config keys that the ordinary tests use equals Kafka's own."""

from __future__ import annotations

import pytest

from tests.interop.kafka import KafkaClasses
from tests.support import kafka_keys

pytestmark = [pytest.mark.java, pytest.mark.deep]


def test_the_list_equals_kafkas(kafka_classes: KafkaClasses) -> None:
    text = kafka_keys.text_of(kafka_classes.configs())
    if kafka_classes.kafka.version == "4.1.0":
        assert text == kafka_keys.FILE.read_text()
    else:  # later versions add keys; no topic key has changed
        ours = [line for line in kafka_keys.FILE.read_text().splitlines() if line.startswith("topic\t")]
        theirs = [line for line in text.splitlines() if line.startswith("topic\t")]
        assert {line.split("\t")[1] for line in ours} <= {line.split("\t")[1] for line in theirs}
