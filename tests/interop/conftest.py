"""One JVM per Kafka version for the whole session."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.interop import kafka as kafka_jars


@pytest.fixture(scope="session", params=kafka_jars.VERSIONS, ids=lambda version: f"kafka-{version}")
def kafka(request: pytest.FixtureRequest) -> kafka_jars.Kafka:
    try:
        return kafka_jars.get(request.param)
    except kafka_jars.Unavailable as missing:
        pytest.skip(f"needs: {missing}")


@pytest.fixture(scope="session")
def judge(kafka: kafka_jars.Kafka) -> Iterator[kafka_jars.Judge]:
    with kafka_jars.Judge(kafka) as process:
        yield process
