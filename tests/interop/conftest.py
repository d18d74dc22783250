"""One JVM per Kafka version for the whole session, and brokers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop import kafka as kafka_jars
from tests.interop.broker import Broker
from tests.interop.writers import WRITERS, Written


@pytest.fixture(scope="session", params=kafka_jars.VERSIONS, ids=lambda version: f"kafka-{version}")
def kafka(request: pytest.FixtureRequest) -> kafka_jars.Kafka:
    try:
        return kafka_jars.get(request.param)
    except kafka_jars.Unavailable as missing:
        pytest.skip(f"needs: {missing}")


@pytest.fixture(scope="session")
def kafka_classes(kafka: kafka_jars.Kafka) -> Iterator[kafka_jars.KafkaClasses]:
    with kafka_jars.KafkaClasses(kafka) as process:
        yield process


@pytest.fixture
def broker(kafka: kafka_jars.Kafka, tmp_path: Path) -> Iterator[Broker]:
    """A broker that the test starts."""
    made = Broker(kafka, tmp_path / "broker")
    yield made
    made.kill()


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Written]:
    """Every directory of writers.py, written once. Do not open these for writing: copy first."""
    root = tmp_path_factory.mktemp("written")
    return {name: writer(root / name) for name, writer in WRITERS.items()}
