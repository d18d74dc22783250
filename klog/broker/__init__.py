"""broker: a log directory, served over Kafka's protocol. Takes frames of clients, returns responses.

  Broker    opens a directory, listens, serves

Kafka: BrokerServer, KafkaApis, ReplicaManager.
"""

from __future__ import annotations

from klog import lazy
from klog.log import core

TYPE_CHECKING = False
if TYPE_CHECKING:
    from klog.broker.broker import Broker

__all__ = ["Broker"]

__getattr__ = lazy.attributes(globals(), {"Broker": "broker"}, core.load)


def __dir__() -> list[str]:
    return sorted(__all__)
