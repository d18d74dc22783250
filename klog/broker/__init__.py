"""broker: a log directory, served over Kafka's protocol. Takes frames of clients, returns responses.

  Broker    opens a directory, listens, serves

Kafka: BrokerServer, KafkaApis, ReplicaManager.
"""

from klog.broker.broker import Broker

__all__ = ["Broker"]


def __dir__() -> list[str]:
    return sorted(__all__)
