"""Nodes: the brokers as which this process serves its clients, one or several, and which partitions each of them leads.

  N1  the ids follow one another, from node.id on. All brokers serve the same directory, so each has a replica of every
      partition
  N2  the replicas of partition p begin with the broker that lead() has named, else with broker p modulo their number;
      the first running one is the leader
  N3  a partition of an internal topic has its coordinator at its leader
  N4  a stopped broker refuses connections, and is not in the metadata; it comes back on the same ports

Several brokers are for tests of clients: they see leaders and coordinators move. Kafka: BrokerRegistration,
StripedReplicaPlacer.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from klog import arguments
from klog.broker.listeners import advertised
from klog.broker.metadata import Node, Placement
from klog.errors import InvalidConfig
from klog.network import Server
from klog.network.listener import address_text
from klog.values import NamedTuple, replace

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterable, Mapping

    from klog.network import Listener, NetworkConfig
    from klog.network.server import Handler

NO_NODE = -1
_PORT_MAX = 65535


class _Running(NamedTuple):
    """A broker that accepts connections. nodes: what is advertised to the clients of each listener."""

    server: Server
    nodes: dict[str, Node]


class Nodes:
    """Any thread. listeners: of the first broker; the others have the ports after theirs, or free ones for port 0.
    configured: advertised.listeners."""

    def __init__(
        self,
        listeners: Iterable[Listener],
        first_id: int,
        count: int = 1,
        *,
        network: NetworkConfig,
        configured: str | None = None,
    ) -> None:
        first = list(listeners)
        self.ids = tuple(range(first_id, first_id + arguments.whole("brokers", count, 1, 100)))
        self._listeners = {node_id: _moved(first, node_id - first_id) for node_id in self.ids}
        self._network = network
        self._configured = configured
        if count > 1 and configured:
            raise InvalidConfig(f"advertised.listeners={configured!r}: one address for {count} brokers")
        self._alone = Placement(first_id, [first_id], [first_id])
        self._named: dict[tuple[str, int], int] = {}  # replaced as a whole
        self._lock = threading.Lock()  # of start() and stop(); the dict below is replaced as a whole
        self._running: dict[int, _Running] = {}
        self._handler_of: Callable[[int], Handler] | None = None

    @property
    def authenticates(self) -> bool:
        """Has any listener SASL?"""
        return any(each.authenticates for each in self._listeners[self.ids[0]])

    @property
    def listeners(self) -> list[Listener]:
        """Those of the first broker."""
        return list(self._listeners[self.ids[0]])

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all running brokers."""
        nodes = [node for each in self._running.values() for node in each.nodes.values()]
        return ",".join(address_text(node.host, node.port) for node in nodes)

    @property
    def port(self) -> int:
        """The port of the first listener of the first broker."""
        return self._listeners[self.ids[0]][0].port

    def metrics(self) -> dict[str, float]:
        """The values of the network; of several brokers each with its id."""
        if len(self.ids) == 1:
            return self._running[self.ids[0]].server.metrics()
        return {
            f"{name}.broker-{node_id}": value
            for node_id, each in self._running.items()
            for name, value in each.server.metrics().items()
        }

    def id_at(self, port: int) -> int:
        """The id of the broker with this port; the first one for an unknown port."""
        return next(
            (node_id for node_id, each in self._listeners.items() if any(one.port == port for one in each)), self.ids[0]
        )

    # ---- leaders -----------------------------------------------------------------------------------------------------

    def of(self, listener: str) -> list[Node]:
        """The running brokers as clients of a listener see them."""
        return [each.nodes[listener] for each in self._running.values()]

    def placement(self, topic: str, partition: int) -> Placement:
        """Leader and replicas of a partition (N2)."""
        ids, running = self.ids, self._running
        if len(ids) == 1:
            return self._alone
        named = self._named.get((topic, partition))
        first = partition % len(ids) if named is None else ids.index(named)
        replicas = [*ids[first:], *ids[:first]]
        in_sync = [each for each in replicas if each in running]
        return Placement(in_sync[0] if in_sync else NO_NODE, replicas, in_sync)

    def lead(self, topic: str, partition: int, node_id: int) -> None:
        """Let a broker lead a partition from now on, as long as it runs."""
        self.check(node_id)
        with self._lock:
            self._named = {**self._named, (topic, partition): node_id}

    def leads(self, node_id: int, topic: str, partition: int) -> bool:
        """Is this broker the leader of a partition?"""
        return self.placement(topic, partition).leader == node_id

    def coordinator(self, listener: str, topic: str, partition: int) -> Node:
        """The broker that leads a partition of an internal topic (N3); no broker after stop()."""
        running = self._running
        found = running.get(self.placement(topic, partition).leader)
        return Node(NO_NODE, "", NO_NODE) if found is None else found.nodes[listener]

    # ---- life --------------------------------------------------------------------------------------------------------

    def bind(self, handler_of: Callable[[int], Handler]) -> None:
        """Bind the listeners of all brokers, whose requests the handler of their id gets. Raises OSError; then none is
        bound."""
        self._handler_of = handler_of
        with self._lock:
            try:
                for node_id in self.ids:
                    self._bind(node_id)
            except BaseException:
                self._end(0)
                raise

    def start(self) -> None:
        """Serve."""
        for each in self._running.values():
            each.server.start()

    @staticmethod
    def check_outside() -> None:
        """Raise RuntimeError in a thread of a broker, which cannot stop one: it would wait for itself."""
        Server.check_outside()

    def stop(self, timeout: float) -> None:
        """Stop all brokers. timeout: as of Server.stop."""
        with self._lock:
            self._end(timeout)

    def start_one(self, node_id: int) -> None:
        """Start a broker again, on its ports. It leads again what it led before. A second call does nothing."""
        self.check(node_id)
        with self._lock:
            if node_id not in self._running:
                self._bind(node_id).server.start()

    def stop_one(self, node_id: int, timeout: float = 0) -> None:
        """Stop a broker: others lead what it led. A second call does nothing. Raises ValueError for the last one,
        RuntimeError in a thread of a broker."""
        self.check(node_id)
        self.check_outside()
        with self._lock:
            found = self._running.get(node_id)
            if found is None:
                return
            if len(self._running) == 1:
                raise ValueError(f"broker {node_id} is the last one that is running")
            self._running = {number: each for number, each in self._running.items() if number != node_id}
            found.server.stop(timeout)

    def reload_tls(self, contexts: Mapping[str, ssl.SSLContext]) -> None:
        """Use these contexts for new connections: {name of a listener: its context}."""
        with self._lock:
            for node_id, listeners in self._listeners.items():  # also of a broker that is stopped, for its next start
                self._listeners[node_id] = [
                    replace(each, context=contexts.get(each.name, each.context)) for each in listeners
                ]
            for running in self._running.values():
                for name, context in contexts.items():
                    running.server.reload_tls(name, context)

    def _bind(self, node_id: int) -> _Running:
        assert self._handler_of is not None
        server = Server(self._listeners[node_id], self._handler_of(node_id), config=self._network)
        self._listeners[node_id] = server.listeners  # a port that the kernel chose is kept for the next start
        made = _Running(server, advertised(server.listeners, self._configured, node_id))
        self._running = dict(sorted({**self._running, node_id: made}.items()))
        return made

    def _end(self, timeout: float) -> None:
        for each in self._running.values():  # until the last request has its response they are in the metadata
            each.server.stop(timeout)
        self._running = {}

    def check(self, node_id: int) -> None:
        """Raise ValueError for an id that is none of a broker."""
        if node_id not in self.ids:
            raise ValueError(f"broker {node_id!r}: the brokers are {', '.join(map(str, self.ids))}")


def _moved(listeners: list[Listener], number: int) -> list[Listener]:
    """The listeners of the broker after `number` others."""
    for each in listeners:
        if each.port and each.port + number > _PORT_MAX:
            where = address_text(each.host, each.port)
            raise ValueError(f"listeners: {where} leaves no ports for the brokers after it")
    return [replace(each, port=each.port + number) if each.port and number else each for each in listeners]
