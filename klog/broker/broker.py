"""Broker: a log directory, served over Kafka's protocol. Kafka: BrokerServer, KafkaServer.

    frames ─► klog.network ─► Dispatcher ─► produce, fetch, metadata, admin, coordinators ─► LogManager

One broker leads all partitions of its directory; there is no replication here. It opens the directory at start() and
closes it at stop(), and can be started again.
"""

from __future__ import annotations

import os
from base64 import urlsafe_b64encode
from typing import TYPE_CHECKING, Any, Self

from klog import arguments
from klog.broker.catalog import TopicCatalogView
from klog.broker.listeners import advertised, check_names, listener_of, secured
from klog.broker.properties import PROPERTY_NAMES, Properties
from klog.broker.serving import Serving
from klog.clock import SystemClock
from klog.config.properties import read_properties
from klog.locks import OwnLock
from klog.manager import LogManager, open_directory
from klog.network import Listener, Server
from klog.scheduler import Scheduler

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from klog.broker.dispatch import Gate
    from klog.broker.metadata import Node
    from klog.clock import Clock

_STOP_SECONDS = 30.0


class Broker:
    """Serves a log directory to clients of Kafka. Any thread. Use it in a `with` statement, or call start() and stop().

    path: a log.dir, or a list of them; it is created if it does not exist. listeners: `host:port`, `NAME://host:port`
    or klog.network.Listener objects; port 0 lets the kernel choose. Without TLS and authentication everybody who
    reaches a listener reads and writes all topics: the default listens on this machine alone. config: Kafka's
    broker-level properties. durability, clock: as for klog.open.

    Raises InvalidConfig, ValueError; start() raises what klog.open raises, and OSError for an address in use.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | list[str | os.PathLike[str]],
        *,
        listeners: Iterable[str | Listener] = ("127.0.0.1:9092",),
        config: Mapping[str, Any] | None = None,
        durability: str = "os",
        clock: Clock | None = None,
        gates: tuple[Gate, ...] = (),
    ) -> None:
        if isinstance(listeners, str | Listener):
            raise arguments.wrong_type("listeners", listeners, "a list of addresses")
        self._path = path
        self._properties = Properties(config, PROPERTY_NAMES)
        self._asked = [secured(listener_of(each), self._properties) for each in listeners]
        check_names(self._asked)
        self._durability = durability
        self._clock: Clock = clock or SystemClock()
        self._gates = gates
        self._life = OwnLock()
        self._scheduler: Scheduler | None = None
        self._waits: Scheduler | None = None
        self._logs: LogManager | None = None
        self._server: Server | None = None
        self._serving: Serving | None = None
        self._topics: TopicCatalogView | None = None
        self._nodes: dict[str, Node] = {}

    def __repr__(self) -> str:
        where = self.bootstrap_servers if self._server is not None else "stopped"
        return f"<Broker {self._path} {where}>"

    # ---- facts -------------------------------------------------------------------------------------------------------

    @property
    def bootstrap_servers(self) -> str:
        """The addresses for a client's bootstrap.servers. Raises RuntimeError while the broker is stopped."""
        self._running()
        return ",".join(f"{each.host}:{each.port}" for each in self._nodes.values())

    @property
    def node_id(self) -> int:
        """The broker's id."""
        return self._properties.settings.node_id

    @property
    def logs(self) -> LogManager:
        """The directory that is served, open for programs in this process, too. After appending with it call check().
        Raises RuntimeError while the broker is stopped."""
        self._running()
        assert self._logs is not None
        return self._logs

    @property
    def topics(self) -> TopicCatalogView:
        """The topics as requests see them. Raises RuntimeError while the broker is stopped."""
        self._running()
        assert self._topics is not None
        return self._topics

    @property
    def is_running(self) -> bool:
        """Has it been started, and not stopped?"""
        return self._server is not None

    @property
    def port(self) -> int:
        """The port of the first listener."""
        return self._running().port

    def _running(self) -> Server:
        if self._server is None:
            raise RuntimeError("the broker is stopped: call start(), or use it in a `with` statement")
        return self._server

    def metrics(self) -> dict[str, float]:
        """The values of network and requests, under Kafka's names."""
        server, serving = self._running(), self._serving
        assert serving is not None
        return server.metrics() | serving.metrics()

    def check(self, topic: str, partition: int = 0) -> None:
        """Let clients that wait for records of a partition look again, after this process has appended to `logs`."""
        self._running()
        assert self._serving is not None
        self._serving.purgatory.check((topic, partition))

    # ---- life --------------------------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Open the directory, load its logs and serve them. A second call does nothing."""
        with self._life:
            if self._server is None:
                self._start()
        return self

    def _start(self) -> None:
        properties = self._properties
        logs = open_directory(
            self._path,  # type: ignore[arg-type]
            create=True,
            config=properties.engine,
            recovery="kafka",
            durability=self._durability,  # type: ignore[arg-type]
            clock=self._clock,
        )
        scheduler = Scheduler(self._clock)
        # A request waits in the clients' time, also when a test holds the clock of everything else.
        real = SystemClock()
        waits = scheduler if isinstance(self._clock, SystemClock) else Scheduler(real)
        serving: Serving | None = None
        server: Server | None = None
        try:
            logs.start()
            topics = TopicCatalogView(logs, properties.all, scheduler=scheduler)
            serving = Serving(
                logs,
                topics,
                properties,
                scheduler,
                waits,
                self._clock,
                nodes=self._nodes_of,
                cluster_id=_cluster_id(logs.path),
                syncs=self._durability == "sync",
                authenticates=any(each.authenticates for each in self._asked),
                gates=self._gates,
            )
            serving.load()
            server = Server(self._asked, serving.dispatcher, config=properties.network)
            self._asked = server.listeners  # a port that the kernel chose is kept for the next start
            self._nodes = advertised(server.listeners, properties.all.get("advertised.listeners"), self.node_id)
            scheduler.start()
            waits.start()
            server.start()
        except BaseException:
            if server is not None:
                server.stop(0)
            scheduler.stop()
            waits.stop()
            if serving is not None:
                serving.close()
            logs.close()
            raise
        self._logs, self._topics, self._serving, self._server = logs, topics, serving, server
        self._scheduler, self._waits = scheduler, waits

    def _nodes_of(self, listener: str) -> list[Node]:
        return [self._nodes[listener]]

    def stop(self, timeout: float = _STOP_SECONDS) -> None:
        """Respond to the requests that are being handled, close connections and the directory. A second call does
        nothing."""
        with self._life:
            logs = self._end(timeout)
            if logs is not None:
                logs.close()

    def kill(self) -> None:
        """Stop as the death of the process would, for tests: no request is completed, nothing is flushed, and the next
        start recovers the logs. A second call does nothing."""
        with self._life:
            logs = self._end(None)
            if logs is not None:
                logs.abandon()

    def _end(self, timeout: float | None) -> LogManager | None:
        """End everything but the logs, and return them. timeout: None to leave requests unanswered."""
        server, serving, logs = self._server, self._serving, self._logs
        if server is None or serving is None:
            return None
        if timeout is not None:
            serving.close_coordinators()
            serving.purgatory.close()
        server.stop(timeout or 0)
        for each in (self._scheduler, self._waits):
            assert each is not None
            each.stop()
        serving.close()
        self._server = self._serving = self._logs = self._topics = None
        self._nodes = {}
        return logs

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until stop() is called in another thread. Returns False if `timeout` seconds passed first."""
        return self._running().wait(timeout)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *error: object) -> None:
        self.stop()


def _cluster_id(path: str) -> str:
    """The id in meta.properties, which a broker writes, else one that follows from the path."""
    try:
        found = read_properties(os.path.join(path, "meta.properties")).get("cluster.id", "")
    except OSError:
        found = ""
    if found:
        return found
    from random import Random  # uuid5() loads libcrypto, which takes 3.5 MB

    made = Random(os.path.realpath(path)).getrandbits(128).to_bytes(16, "big")
    return urlsafe_b64encode(made)[:22].decode()
