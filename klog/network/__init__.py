"""network: sockets. Takes frames with a size prefix from connections, and returns what a handler responds.

  Server          listeners, network threads and handler threads; Listener and NetworkConfig set it up
  Request         what a handler gets: its frame, its Connection, and the ways to complete it
  FileSlice       a part of a response that is sent by sendfile
  klog.network.tls.tls_context makes the TLS context of a listener

It knows nothing of Kafka's messages.
"""

from klog.network._connection import Connection, Request
from klog.network._output import FileSlice
from klog.network.config import NetworkConfig
from klog.network.listener import Listener
from klog.network.server import Handler, Server

__all__ = ["Connection", "FileSlice", "Handler", "Listener", "NetworkConfig", "Request", "Server"]


def __dir__() -> list[str]:
    return sorted(__all__)
