"""Broker: a log directory, served over Kafka's protocol. Kafka: BrokerServer, KafkaServer.

    frames ─► klog.network ─► Dispatcher ─► produce, fetch, metadata, admin, coordinators ─► LogManager

One broker leads all partitions of its directory; there is no replication here. It opens the directory at start() and
closes it at stop(), and can be started again.
"""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Self, get_args

from klog import arguments
from klog.broker.adopted import check_adopted
from klog.broker.catalog import TopicCatalogView
from klog.broker.leader_epochs import LeaderEpochs
from klog.broker.listeners import Certificates, check_names, is_open, limited, listener_of, secured
from klog.broker.nodes import Nodes
from klog.broker.properties import PROPERTY_NAMES, Properties
from klog.broker.serving import Serving
from klog.clock import SystemClock
from klog.codec import load_libraries
from klog.config import ManagerConfig
from klog.disk import RealFiles
from klog.locks import OwnLock
from klog.log.directory.checkpoint import encode_uuid, meta_properties
from klog.log.options import Durability
from klog.logger import logger_of
from klog.manager.directory_set import Paths, as_paths
from klog.manager.manager import LogManager
from klog.network import Listener
from klog.scheduler import Scheduler
from klog.shown import display

if TYPE_CHECKING:
    from collections.abc import Callable

    from klog.broker.api_versions import Release
    from klog.broker.dispatch import Gate
    from klog.clock import Clock
    from klog.coordinator.groups.description import GroupDescription
    from klog.metrics import Sample

_STOP_SECONDS = 30.0
_CODECS_MS = 500
_log = logger_of("broker")


class Broker:
    """Serves a log directory to clients of Kafka. Any thread. Use it in a `with` statement, or call start() and stop().

    path: a log.dir, or a list of them; it is created if it does not exist. listeners: `host:port`, `NAME://host:port`
    or klog.network.Listener objects; port 0 lets the kernel choose. Without TLS and authentication every client
    that reaches a listener reads and writes all topics: the default one accepts connections from this machine only.
    config: Kafka's broker-level properties (docs/configuration.md). durability, clock: as for klog.open. brokers: the
    number of brokers as which clients see this process, for tests of clients; the others have the ids and ports after
    those of the first (klog.broker.nodes).
    release: a release of Kafka that this broker imitates, for the same tests. gates: see klog.broker.dispatch.

    Raises InvalidConfig, ValueError; start() raises what klog.open raises, and OSError for an address in use.
    """

    def __init__(
        self,
        path: Paths,
        *,
        listeners: Iterable[str | Listener] = ("127.0.0.1:9092",),
        config: Mapping[str, Any] | None = None,
        durability: Durability = "os",
        clock: Clock | None = None,
        gates: tuple[Gate, ...] = (),
        brokers: int = 1,
        release: Release | None = None,
    ) -> None:
        if isinstance(listeners, str | bytes | Listener | Mapping) or not isinstance(listeners, Iterable):
            raise arguments.wrong_type("listeners", listeners, "a list of addresses")
        arguments.chosen("durability", durability, get_args(Durability))
        if clock is not None:
            arguments.having("clock", clock, ("wall_ms", "monotonic", "sleep"), "a Clock, or None,")
        self._path = as_paths(path)
        self._properties = Properties(config, PROPERTY_NAMES)
        given = [listener_of(each) for each in listeners]
        asked = [secured(each, self._properties) for each in given]
        if not asked:
            raise ValueError("listeners=[]: at least one expected")
        check_names(asked)
        asked = limited(asked, self._properties)
        self.nodes = Nodes(
            asked,
            self._properties.settings.node_id,
            brokers,
            network=self._properties.network,
            configured=self._properties.settings.advertised_listeners,
        )
        read = [new.name for old, new in zip(given, asked, strict=True) if old.context is not new.context]
        self._certificates = Certificates(read, self._properties, self.nodes.reload_tls)
        self._epochs = LeaderEpochs(self.nodes)
        self._durability = durability
        self._clock: Clock = clock or SystemClock()
        self._gates = gates
        self._release = release
        self._life = OwnLock()
        self._scheduler: Scheduler | None = None
        self._waits: Scheduler | None = None
        self._logs: LogManager | None = None
        self._serving: Serving | None = None
        self._topics: TopicCatalogView | None = None
        self._began, self._pid = 0.0, 0
        self._ended = threading.Event()

    def __repr__(self) -> str:
        where = self.nodes.bootstrap_servers if self.is_running else "stopped"
        return f"<Broker {', '.join(self._path)} {where}>"

    def _repr_html_(self) -> str:
        return display(repr(self), ("listener", "port"), lambda: [(self.bootstrap_servers, self.port)]) + (
            self.logs._repr_html_() if self.is_running else ""
        )

    # ---- facts -------------------------------------------------------------------------------------------------------

    @property
    def bootstrap_servers(self) -> str:
        """The addresses for a client's bootstrap.servers. Raises RuntimeError while the broker is stopped."""
        self._running()
        return self.nodes.bootstrap_servers

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
    def listeners(self) -> list[Listener]:
        """Where it listens; of several brokers the first one. Ports are the real ones while it is running."""
        return self.nodes.listeners

    @property
    def has_tls_files(self) -> bool:
        """Is there something for reload_tls() to read?"""
        return bool(self._certificates.names)

    @property
    def is_running(self) -> bool:
        """Has it been started, and not stopped?"""
        return self._serving is not None

    @property
    def port(self) -> int:
        """The port of the first listener. Raises RuntimeError while the broker is stopped."""
        self._running()
        return self.nodes.port

    def _running(self) -> Serving:
        if self._serving is None:
            raise RuntimeError("the broker is stopped: call start(), or use it in a `with` statement")
        return self._serving

    def metrics(self) -> dict[str, float]:
        """The values of network and requests, under Kafka's names."""
        serving = self._running()
        return self.nodes.metrics() | serving.metrics()

    def samples(self) -> list[Sample]:
        """The same as samples, for klog.metrics.prometheus(broker), which adds those of the logs."""
        from klog.broker.samples import samples

        values, serving = self.metrics(), self._serving
        assert serving is not None
        return list(samples(values, serving.requests, SystemClock().monotonic() - self._began))

    def check(self, topic: str, partition: int = 0) -> None:
        """Retry the fetches that wait for records of a partition, after this process has appended to `logs`."""
        key = arguments.text("topic", topic), arguments.whole("partition", partition)
        self._running().purgatory.check(key)

    def session_partitions(self, node_id: int, session_id: int) -> list[tuple[str, int]]:
        """(topic, partition) of all that a client's fetch session has at one of the brokers; empty for an unknown one.
        Raises RuntimeError while the broker is stopped."""
        return self._running().session_partitions(node_id, session_id)

    def share_session_partitions(self, node_id: int, group_id: str, member_id: str) -> list[tuple[str, int]]:
        """(topic, partition) of all that the share session of a member has at one of the brokers; empty without one.
        Raises RuntimeError while the broker is stopped."""
        return self._running().share_session_partitions(node_id, group_id, member_id)

    def group(self, group_id: str) -> GroupDescription | None:
        """State, members and committed offsets of a consumer group; None for an unknown one. Raises RuntimeError while
        the broker is stopped."""
        return self._running().groups.describe(group_id)

    def groups(self) -> list[str]:
        """The ids of all groups, sorted. Raises RuntimeError while the broker is stopped."""
        return self._running().groups.group_ids()

    # ---- life --------------------------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Open the directory, load its logs and serve them. A second call does nothing."""
        with self._life:
            if self._serving is None:
                self._start()
        return self

    def _start(self) -> None:
        properties = self._properties
        logs = LogManager(
            self._path,
            create=True,
            read_only=False,
            config=ManagerConfig(properties.engine),
            recovery="kafka",
            durability=self._durability,
            clock=self._clock,
            files=RealFiles(),
        )
        scheduler = Scheduler(self._clock)
        # A request waits in the clients' time, also when a test holds the clock of everything else.
        real = SystemClock()
        waits = scheduler if isinstance(self._clock, SystemClock) else Scheduler(real)
        serving: Serving | None = None
        try:
            check_adopted(logs.paths)
            logs.start()
            topics = TopicCatalogView(logs, properties.all, scheduler=scheduler)
            serving = Serving(
                logs,
                topics,
                properties,
                scheduler,
                waits,
                self._clock,
                nodes=self.nodes,
                cluster_id=_cluster_id(logs.path),
                syncs=self._durability == "sync",
                authenticates=self.nodes.authenticates,
                gates=self._gates,
                release=self._release,
                certificates=self._certificates,
                epochs=self._epochs,
            )
            serving.load()
            self.nodes.bind(serving.dispatcher_of)
            scheduler.start()
            waits.start()
            # What klog.open() does at once. A start does not wait for it, and later there may be no descriptor left.
            waits.schedule("codecs", load_libraries, _CODECS_MS)
            self._logs, self._topics, self._serving = logs, topics, serving  # gates ask for them at the first request
            self.nodes.start()
        except BaseException:
            self._logs = self._topics = self._serving = None
            self.nodes.stop(0)
            scheduler.stop()
            waits.stop()
            if serving is not None:
                serving.close()
            logs.close()
            raise
        self._began, self._pid = real.monotonic(), os.getpid()
        self._scheduler, self._waits = scheduler, waits
        self._ended.clear()
        for each in self.listeners:
            if is_open(each) and not properties.security.authorizes:
                _log.warning(
                    "event=open_listener listener=%s host=%s hint=who reaches it reads and writes all topics; set up "
                    "SASL or TLS, or listen on 127.0.0.1",
                    each.name,
                    each.host,
                )

    def reload_tls(self) -> None:
        """Read the files of certificates again, and use them for new connections; those that are open keep theirs.
        Listeners that were given with a context keep it. Any thread. Raises InvalidConfig; then nothing has changed."""
        self._certificates.reload()

    def start_broker(self, node_id: int) -> None:
        """Start one of several brokers again; it leads again what it led before. Raises ValueError, RuntimeError,
        OSError for a port that is taken."""
        with self._running().leaders_move():
            self.nodes.start_one(node_id)

    def stop_broker(self, node_id: int) -> None:
        """Stop one of several brokers: it refuses connections, and the others lead what it led. Raises ValueError for
        the last one, RuntimeError."""
        with self._running().leaders_move():
            self.nodes.stop_one(node_id)

    def lead(self, topic: str, partition: int, node_id: int) -> None:
        """Let one of several brokers lead a partition; of an internal topic that moves its coordinator. Raises
        ValueError for an unknown broker, RuntimeError."""
        with self._running().leaders_move():
            self.nodes.lead(topic, partition, node_id)

    def stop(self, timeout: float = _STOP_SECONDS) -> None:
        """Respond to the requests that are being handled, close connections and the directory. A second call does
        nothing, nor does one in a forked child: the broker is that of its parent. Raises what LogManager.close raises;
        then everything has ended all the same. RuntimeError in a thread of the broker: it would wait for itself."""
        timeout = arguments.some_seconds("timeout", timeout)
        with self._life:
            self._end(timeout, LogManager.close)

    def kill(self) -> None:
        """Stop as the death of the process would, for tests: no request is completed, nothing is flushed, and the next
        start recovers the logs. A second call does nothing, nor does one in a forked child."""
        with self._life:
            self._end(None, LogManager.abandon)

    def _end(self, timeout: float | None, end_logs: Callable[[LogManager], object]) -> None:
        """End everything, each part also if the one before has failed. timeout: None to leave requests unanswered."""
        serving, logs, scheduler, waits = self._serving, self._logs, self._scheduler, self._waits
        if serving is None or os.getpid() != self._pid:
            return
        self.nodes.check_outside()
        assert logs is not None and scheduler is not None and waits is not None
        with ExitStack() as left:  # the last one first
            left.callback(end_logs, logs)
            left.callback(self._has_ended)
            left.callback(serving.close)
            left.callback(waits.stop)
            left.callback(scheduler.stop)
            left.callback(self.nodes.stop, timeout or 0)
            if timeout is not None:
                left.callback(serving.purgatory.close)
                left.callback(serving.close_coordinators)

    def _has_ended(self) -> None:
        self._serving = self._logs = self._topics = None
        self._ended.set()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until stop() is called in another thread. Returns False if `timeout` seconds passed first."""
        self._running()
        return self._ended.wait(arguments.seconds("timeout", timeout))

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *error: object) -> None:
        self.stop()


def _cluster_id(path: str) -> str:
    """The id in meta.properties, which a broker writes, else one that follows from the path. Raises OSError."""
    found = meta_properties(path).get("cluster.id")
    if found:
        return found
    from random import Random  # uuid5() loads libcrypto, which takes 3.5 MB

    return encode_uuid(uuid.UUID(int=Random(os.path.realpath(path)).getrandbits(128)))
