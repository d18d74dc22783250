"""A broker on a directory that klog handed over: with the server.properties that the handover wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from klog.handover import handover
from tests.interop import broker as brokers
from tests.interop.broker import Broker
from tests.interop.kafka import Kafka


class HandedOver(Broker):
    """`report`: what handover() returned. `settings`: lines that a user adds to the file before a start."""

    def __init__(self, kafka: Kafka, home: Path, log_dir: Path, *more: Path, **options: Any) -> None:
        self.kafka = kafka
        self.home = home
        self.log_dir = log_dir
        self.starts = 0
        self._process = None
        self._port, controller = brokers._free_port(), brokers._free_port()
        self._properties = home / "server.properties"
        home.mkdir(parents=True, exist_ok=True)
        self.report = handover(
            [log_dir, *more],
            controller_listener=f"{brokers._HOST}:{controller}",
            listeners=[self.address],
            kafka_version=options.pop("kafka_version", kafka.version),
            properties_out=self._properties,
            **options,
        )
