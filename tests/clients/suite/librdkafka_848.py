"""librdkafka's tests with the consumer protocol of KIP-848."""

from __future__ import annotations

from dataclasses import replace

from tests.clients.suite import librdkafka

__all__ = ["SUITE"]

SUITE = replace(
    librdkafka.SUITE, name="librdkafka-848", folder=librdkafka.SUITE.name, run=librdkafka.run_with("consumer")
)
