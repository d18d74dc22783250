"""A broker on a directory that klog handed over: with the server.properties that the handover wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from klog.handover import handover
from tests.interop.broker import BrokerProcess
from tests.interop.kafka import Kafka


class HandedOver(BrokerProcess):
    """`report`: what handover() returned."""

    def __init__(self, kafka: Kafka, home: Path, log_dir: Path, *more: Path, **options: Any) -> None:
        super().__init__(kafka, home, log_dir)
        self.report = handover(
            [log_dir, *more],
            controller_listener=self.controller,
            listeners=[self.address],
            kafka_version=options.pop("kafka_version", kafka.version),
            properties_out=self._properties,
            **options,
        )
