"""Records of the internal topics, as the classes of each Kafka version write them now."""

from __future__ import annotations

import subprocess

import pytest

from tests.interop.kafka import Kafka
from tests.support.kafka_messages import check, messages

pytestmark = [pytest.mark.java, pytest.mark.deep]
JARS = ("group-coordinator", "transaction-coordinator", "share-coordinator", "metadata", "storage")


def test_every_type_and_version(kafka: Kafka) -> None:
    jars = [str(kafka.lib / f"kafka-{name}-{kafka.version}.jar") for name in JARS]
    command = ["java", "-cp", kafka.class_path, "InternalTopics", *jars]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert len(check(list(messages(done.stdout.splitlines())))) > 60
