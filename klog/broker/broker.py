"""Broker: a log directory, served over Kafka's protocol. Kafka: BrokerServer, KafkaServer.

    frames ─► klog.network ─► Dispatcher ─► produce, fetch, list_offsets, metadata, ...  ─► LogManager
                                       └──► coordinators, admin, security

One broker leads all partitions of its directory; there is no replication here. It opens the directory at start() and
closes it at stop(), and can be started again.
"""

from __future__ import annotations

import os
import uuid
from base64 import urlsafe_b64encode
from typing import TYPE_CHECKING, Any, Self

from klog import arguments
from klog.broker.admin import SLOW
from klog.broker.catalog import TopicCatalogView
from klog.broker.components import Components, make_components
from klog.broker.metadata import Node
from klog.broker.properties import Properties
from klog.clock import SystemClock
from klog.locks import OwnLock
from klog.manager import LogManager, open_directory
from klog.network import Listener, Server
from klog.protocol import ApiKey

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from klog.broker.dispatch import Gate
    from klog.clock import Clock
