"""TestBroker: a broker for tests, in this process, ready in milliseconds, with faults on demand.

All files are in a directory in memory, which is removed at the end. Its files are those of Kafka.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Literal, Self

from klog import arguments
from klog.broker import Broker
from klog.clock import ManualClock, SystemClock
from klog.config import LogConfig, config_values
from klog.coordinator.coordinator_log import CoordinatorLog
from klog.disk import RealFiles, remove_tree
from klog.internal_topics.names import CONSUMER_OFFSETS
from klog.manager.topic_life import PARTITIONS_MAX
from klog.manager.topics import check_topic_name
from klog.scheduler import Scheduler
from klog.testing.fault_gate import FaultGate
from klog.testing.place import new_directory, remove_directory
from klog.testing.topic import TopicUnderTest, dump_topics

if TYPE_CHECKING:
    from collections.abc import Callable

    from klog.broker.api_versions import Release
    from klog.broker.context import RequestContext
    from klog.clock import Clock
    from klog.log.options import Durability
    from klog.manager import LogManager
    from klog.metrics import Sample
    from klog.network import Listener
    from klog.protocol import ApiKey, ErrorCode, Message
    from klog.testing.access import Access
    from klog.testing.control import Control
    from klog.testing.crash import Crash
    from klog.testing.faults import Fault
    from klog.testing.group import GroupUnderTest
    from klog.testing.recording import Recorder
    from klog.testing.watching import Watch

_MECHANISM = "SCRAM-SHA-256"
_DEFAULTS = {
    "auto.create.topics.enable": True,  # as Kafka's default, which programs under test may count on
    "num.io.threads": 2,
    "log.cleaner.threads": 0,  # compaction is called for, with logs.log(topic).compact()
}
# A clock that stands in the past would refuse the records of producers, whose clock is another one.
_OF_MANUAL_CLOCK = {"log.message.timestamp.after.max.ms": 2**63 - 1}


class TestBroker:
    """A broker for tests. Use it in a `with` statement, or call start() and stop(). Any thread.

    topics: names, or a mapping of a name to its number of partitions or to the arguments of create_topic; a directory
    or copy may have them already, as they are given. config: broker-level properties; topics are created when a client
    asks for one, and nothing is compacted in the background, unless it sets auto.create.topics.enable and
    log.cleaner.threads. directory: a log.dir, which is kept; None: a new one in memory, which is removed. copy_of: a
    log.dir, of klog or Kafka, whose copy is served.
    clock: a klog.clock.ManualClock moves retention, sessions of groups and transactions only when the test advances
    it; requests wait in real time, and records of any time are taken. listeners: as for klog.Broker, by default one
    free port of this machine. durability: as for klog.open. brokers: how many brokers clients see, each with a port
    of its own; they share partitions, groups and transactions. tls: encrypt, with a certificate that is made for
    the test. sasl: users with their passwords; mechanism: SCRAM-SHA-256, SCRAM-SHA-512 or PLAIN. client_config()
    has what clients need for both. as_version: pass for a broker of Kafka 2.8, 3.0, 3.9, 4.0, 4.1 or 4.3, which has
    older versions of requests. api_versions: the newest version of some APIs, such as {"fetch": 11}, None for one
    that is missing. record: a new file that gets each request when it arrives, for klog.testing.replay.
    control: serve klog.testing.control on control_url; control_port: 0 for a free one.

    An exception that leaves the `with` statement gets a note with the newest records of all topics, and the faults.

        with klog.TestBroker(topics=["orders"]) as broker:
            producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    """

    __test__ = False  # pytest collects classes of this name otherwise

    def __init__(
        self,
        *,
        topics: Iterable[str] | Mapping[str, int | Mapping[str, Any]] | None = None,
        config: Mapping[str, Any] | None = None,
        directory: str | os.PathLike[str] | None = None,
        copy_of: str | os.PathLike[str] | None = None,
        clock: Clock | None = None,
        listeners: Iterable[str | Listener] = ("127.0.0.1:0",),
        durability: Durability = "os",
        brokers: int = 1,
        tls: bool = False,
        sasl: Mapping[str, str] | None = None,
        mechanism: str = _MECHANISM,
        as_version: str | None = None,
        api_versions: Mapping[str, int | None] | None = None,
        record: str | os.PathLike[str] | None = None,
        control: bool = False,
        control_port: int = 0,
    ) -> None:
        self._topics = _topics(topics)
        given, tls = config_values("config", config), arguments.flag("tls", tls)
        port = arguments.whole("control_port", control_port, 0, 65535)
        self._control_port = port if arguments.flag("control", control) else None
        self._control: Control | None = None
        self._access: Access | None = None
        if sasl is None and mechanism != _MECHANISM:
            raise ValueError(f"mechanism={mechanism!r} needs sasl, the users with their passwords")
        self._is_own = directory is None
        if directory is not None and copy_of is not None:
            raise ValueError("directory and copy_of: one of the two")
        self.directory = "" if directory is None else arguments.path("directory", directory)
        self._pid = os.getpid()
        self.clock: Clock = clock or SystemClock()
        self._scheduler = Scheduler(SystemClock())
        self._faults = FaultGate(self._scheduler, self._crash)
        self._crashes: Crash | None = None
        self._addresses: str | None = None
        self._has_topics = False
        self._closed = False
        self._recorder: Recorder | None = None
        try:
            if tls or sasl is not None:
                from klog.testing.access import Access

                self._access = Access(tls=tls, sasl=sasl, mechanism=mechanism)
            if self._is_own:
                self.directory = new_directory() if copy_of is None else _new_copy(copy_of)
            if record is not None:
                from klog.testing.recording import Recorder

                self._recorder = Recorder(arguments.path("record", record))
            self._broker = Broker(
                self.directory,
                listeners=listeners if self._access is None else self._access.listeners(listeners),
                config=_defaults(brokers)
                | (_OF_MANUAL_CLOCK if isinstance(clock, ManualClock) else {})
                | ({} if self._access is None else self._access.properties())
                | dict(given),
                durability=durability,
                clock=clock,
                gates=(self._faults,) if self._recorder is None else (self._recorder, self._faults),
                brokers=brokers,
                release=_release(as_version, api_versions),
            )
        except BaseException:
            self._remove()
            raise

    def __repr__(self) -> str:
        return f"<TestBroker {self._broker!r}>"

    # ---- life --------------------------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Serve. After stop() or kill() on the same ports, with what the directory has. Raises RuntimeError after
        close(), and what klog.Broker.start raises."""
        self._check_not_closed()
        self._end_crash()
        os.makedirs(self.directory, exist_ok=True)
        if self._access is not None:
            self._access.add_users(self.directory)
        if not self._broker.is_running:
            self._faults.open(self._broker)
        self._broker.start()
        self._addresses = self._broker.bootstrap_servers
        self._scheduler.start()
        if not self._has_topics:
            for name, arguments in self._topics.items():
                self.create_topic(name, **arguments, exist_ok=True)
            self._has_topics = True
        if self._control_port is not None and self._control is None:
            from klog.testing.control import Control

            self._control = Control(self, self._control_port)
        return self

    def stop(self) -> None:
        """Stop, cleanly; the directory stays until close(), so that start() goes on with it. Does nothing in a forked
        child: the broker is that of its parent. Raises RuntimeError in a thread of the broker, as in a function that
        inject() got."""
        if not self._may_end():
            return
        self._end_crash()
        self._faults.close()
        with self._ending():
            self._broker.stop(timeout=5.0)

    def kill(self) -> None:
        """Stop as `kill -9` of a broker would: requests stay unanswered, and the next start() recovers the logs. Does
        nothing in a forked child. Raises RuntimeError in a thread of the broker: inject(kill=...) is for that."""
        if not self._may_end():
            return
        self._end_crash()
        with self._ending() as left:
            left.callback(self._faults.close)
            self._broker.kill()

    def _may_end(self) -> bool:
        """Is this the process of the broker? Raises RuntimeError in a thread of the broker."""
        self._broker.nodes.check_outside()
        return os.getpid() == self._pid

    def _ending(self) -> ExitStack:
        """A `with` that ends what the broker's own end leaves, also if that fails."""
        left = ExitStack()
        left.callback(self._scheduler.stop)
        return left

    def restart(self) -> Self:
        """stop() and start()."""
        self.stop()
        return self.start()

    def close(self) -> None:
        """Stop for good, and remove the directory if it was made for this broker. A second call does nothing, nor does
        one in a forked child. Raises what the broker's end raises: OSError if its directory cannot be written,
        RuntimeError in a thread of the broker."""
        if not self._may_end():
            return
        with ExitStack() as left:
            left.callback(self._remove)
            left.callback(self.stop)
            if self._control is not None:
                left.callback(self._control.close)

    def _check_not_closed(self) -> None:
        if self._closed:
            raise RuntimeError("the broker is closed: make a new TestBroker; stop() ends one that is to start again")

    def _crash(self, torn: list[tuple[str, int]], last_bytes: int, restart_ms: int | None) -> None:
        """A fault kills the broker: soon, in another thread."""
        from klog.testing.crash import Crash

        def kill() -> None:
            self.kill()
            for topic, partition in torn:
                self.tear(topic, partition, last_bytes=last_bytes)

        if self._crashes is None:
            self._crashes = Crash()
        self._crashes.begin(kill, self.start, restart_ms)

    def _end_crash(self) -> bool:
        """Do not start by itself any more. Would it have done so?"""
        return self._crashes is not None and self._crashes.end()

    def _pause(self) -> bool:
        """stop(). Has it run, or would it have started by itself after a fault?"""
        would_start = self._end_crash()
        was_running = self._broker.is_running
        self.stop()
        return would_start or was_running

    def _remove(self) -> None:
        self._closed = True
        with ExitStack() as left:
            if self._is_own:
                left.callback(remove_directory, self.directory)
            if self._access is not None:
                left.callback(self._access.close)
            if self._recorder is not None:
                left.callback(self._recorder.close)

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        with ExitStack() as left:
            left.callback(self.close)
            if error is not None:
                from klog.testing.report import add_report

                add_report(error, self)

    # ---- facts -------------------------------------------------------------------------------------------------------

    @property
    def bootstrap_servers(self) -> str:
        """The addresses for a client's bootstrap.servers; while it is stopped those that it had. Raises RuntimeError
        before the first start()."""
        return self._broker.nodes.bootstrap_servers or self._addresses or self._broker.bootstrap_servers

    @property
    def is_running(self) -> bool:
        """Has it been started, and neither stopped nor killed?"""
        return self._broker.is_running

    @property
    def node_id(self) -> int:
        """The id of the first broker."""
        return self._broker.node_id

    def client_config(self, client: str = "confluent-kafka", user: str | None = None) -> dict[str, Any]:
        """The configuration with which a client gets in, with TLS and SASL or without, by the names of its library:
        "confluent-kafka", "kafka-python", "aiokafka" or "java". user: one of `sasl`; None: the first one."""
        from klog.testing.access import Access

        return (self._access or Access()).client_config(client, self.bootstrap_servers, user)

    @property
    def control_url(self) -> str:
        """Where klog.testing.control is, for TestBroker(control=True). Raises RuntimeError."""
        if self._control is None:
            raise RuntimeError("no control: TestBroker(control=True) has it, once it is started")
        return self._control.url

    @property
    def listeners(self) -> list[Listener]:
        """Where it listens; of several brokers the first one."""
        return self._broker.listeners

    @property
    def has_tls_files(self) -> bool:
        """Is there something for reload_tls() to read?"""
        return self._broker.has_tls_files

    def reload_tls(self) -> None:
        """As Broker.reload_tls."""
        self._broker.reload_tls()

    @property
    def port(self) -> int:
        """The port of the first listener."""
        return self._broker.port

    @property
    def logs(self) -> LogManager:
        """The directory, open: the whole Python API of klog."""
        return self._broker.logs

    @property
    def broker(self) -> Broker:
        """The klog.Broker that serves."""
        return self._broker

    def metrics(self) -> dict[str, float]:
        """The values of network and requests, under Kafka's names."""
        return self._broker.metrics()

    def samples(self) -> list[Sample]:
        """The same as samples, for klog.metrics.prometheus(broker), which adds those of the logs."""
        return self._broker.samples()

    # ---- topics ------------------------------------------------------------------------------------------------------

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        config: Mapping[str, Any] | None = None,
        *,
        exist_ok: bool = False,
    ) -> TopicUnderTest:
        """Create a topic, as LogManager.create_topic does."""
        self.logs.create_topic(name, partitions, config, exist_ok=exist_ok)
        return self.topic(name)

    def topic(self, name: str) -> TopicUnderTest:
        """A topic, to look into it: .records(), .wait(count), .append(records)."""
        return TopicUnderTest(self._broker, name)

    def load(self, topic: str, source: Any, **options: Any) -> TopicUnderTest:
        """Append the rows of a file or table to a topic, which is created if it does not exist. source: the path of
        a JSON lines, CSV or Parquet file, with the options of klog.importing.import_file (key="id", ...), or columns
        such as an Arrow table, with those of Log.append. Raises what they raise."""
        from klog.testing.loading import load

        found = self.topic(topic)
        load(self._broker, found, source, **options)
        return found

    def dump(self) -> str:
        """The newest records of all topics, and the groups, as text."""
        names = [name for name in self.logs.topics() if not name.startswith("__")]
        return "\n".join([dump_topics(self._broker, names) or "no topics", *map(repr, map(self.group, self.groups()))])

    # ---- groups ------------------------------------------------------------------------------------------------------

    def groups(self) -> list[str]:
        """The names of all consumer groups."""
        return self._broker.groups()

    def group(self, group: str) -> GroupUnderTest:
        """A consumer group, to look into it: .state, .members, .offsets, .lag(topic)."""
        from klog.testing.group import GroupUnderTest

        return GroupUnderTest(self._broker, group)

    def wait_group(
        self, group: str, state: str = "Stable", *, members: int | None = None, timeout: float = 10.0
    ) -> GroupUnderTest:
        """Wait until a group has a state, by Kafka's name of it, and this many members. Returns the group. Raises
        TimeoutError."""
        return self.group(group).wait(state, members=members, timeout=timeout)

    def wait_group_lag(self, group: str, topic: str, lag: int = 0, *, timeout: float = 10.0) -> GroupUnderTest:
        """Wait until a group has committed all but `lag` records of a topic. Returns the group. Raises TimeoutError."""
        return self.group(group).wait_lag(topic, lag, timeout=timeout)

    # ---- faults ------------------------------------------------------------------------------------------------------

    def inject(
        self,
        api: ApiKey | str | None = None,
        *,
        topic: str | None = None,
        partition: int | None = None,
        client_id: str | None = None,
        broker: int | None = None,
        when: Callable[[RequestContext], bool] | None = None,
        count: int | None = 1,
        skip: int = 0,
        error: ErrorCode | str | int | None = None,
        respond: Callable[[RequestContext], Message | None] | None = None,
        delay_ms: int = 0,
        hold: bool = False,
        disconnect: Literal["before", "after"] | None = None,
        half: bool = False,
        drop: bool = False,
        kill: Literal["before", "after"] | None = None,
        tear: int = 0,
        restart_ms: int | None = None,
    ) -> Fault:
        """Let requests fail from now on. Returns the fault, with .hits, .wait(hits), .requests, .release() and .stop().

        Which requests: api is a name such as "produce", None for any; topic, partition: those that name it, in a fetch
        session, too; client_id: a pattern such as "billing-*"; broker: those to one of several brokers; when: those for
        which a function of the request, with .api, .version, .client_id and .message, returns true. The first `skip` of
        them pass, then `count` of them get the fault, None for all.

        What happens, besides waiting delay_ms, or with hold until .release():

        error       the response has this error of Kafka, by name or number, and nothing is done. With `topic` it is
                    that of the topic or partition where the response can have one; the rest of the request is handled
        respond     a function of the request returns the response, a message of klog.protocol, or None to handle it
        disconnect  the connection is closed "before" the request is handled, or "after" it instead of the response
        half        half of the response is sent before the connection is closed
        drop        there is no response
        kill        the broker is killed "before" or "after" the request is handled, without a response, until start()
        tear        the same after a Produce, and the logs that it wrote lose this many bytes at their end
        restart_ms  after kill or tear the broker starts again by itself

        Of several faults that concern a request the oldest one counts. Raises ValueError, TypeError.
        """
        from klog.testing.faults import Fault

        if broker is not None:
            self._broker.nodes.check(broker)
        return self._faults.add(
            Fault(
                api,
                topic=topic,
                partition=partition,
                client_id=client_id,
                broker=broker,
                when=when,
                count=count,
                skip=skip,
                error=error,
                respond=respond,
                delay_ms=delay_ms,
                hold=hold,
                disconnect=disconnect,
                half=half,
                drop=drop,
                kill=kill,
                tear=tear,
                restart_ms=restart_ms,
            )
        )

    def watch(
        self,
        api: ApiKey | str | None = None,
        *,
        topic: str | None = None,
        partition: int | None = None,
        client_id: str | None = None,
        broker: int | None = None,
        when: Callable[[RequestContext], bool] | None = None,
    ) -> Watch:
        """Note requests from now on, which are handled as usual. Returns the watch, with .hits, .wait(hits), .requests
        and .stop(). Arguments as of inject(). Raises ValueError, TypeError."""
        from klog.testing.watching import Watch

        if broker is not None:
            self._broker.nodes.check(broker)
        return self._faults.watch(
            Watch(api, topic=topic, partition=partition, client_id=client_id, broker=broker, when=when)
        )

    @property
    def faults(self) -> list[Fault]:
        """The faults of inject(), also those that are over, since the last clear_faults()."""
        return self._faults.faults

    def clear_faults(self) -> None:
        """Let all requests pass again."""
        self._faults.clear()

    def tear(self, topic: str, partition: int = 0, *, last_bytes: int = 10) -> None:
        """Cut bytes from the end of a partition's log, as a crash in the middle of a write leaves it. The broker must
        be stopped, after kill(); the next start() recovers the log. Raises RuntimeError, InvalidTopic, ValueError,
        TypeError, FileNotFoundError."""
        if self._broker.is_running:
            raise RuntimeError("the broker is running: call kill() first")
        last_bytes = arguments.whole("last_bytes", last_bytes, 0)
        number = arguments.whole("partition", partition, 0)
        home = os.path.join(self.directory, f"{check_topic_name(topic)}-{number}")
        newest = max(name for name in os.listdir(home) if name.endswith(".log"))
        path = os.path.join(home, newest)
        os.truncate(path, max(0, os.path.getsize(path) - last_bytes))

    # ---- several brokers ---------------------------------------------------------------------------------------------

    @property
    def broker_ids(self) -> tuple[int, ...]:
        """The ids of all brokers, of those that are stopped, too."""
        return self._broker.nodes.ids

    def leader(self, partition: int, topic: str = "") -> int:
        """The id of the broker that leads partitions of this number, unless move_leader() was called for the topic."""
        partition, topic = arguments.whole("partition", partition, 0), arguments.text("topic", topic)
        return self._broker.nodes.placement(topic, partition).leader

    def move_leader(self, topic: str, partition: int, broker: int) -> None:
        """Let one of several brokers lead a partition, as long as it runs. The one before refuses its requests. Raises
        ValueError, and UnknownTopicOrPartition."""
        self.logs.log(topic, partition)
        self._broker.lead(topic, partition, broker)

    def coordinator(self, group: str) -> int:
        """The id of the broker that coordinates a consumer group."""
        return self._broker.nodes.placement(CONSUMER_OFFSETS, self._partition_of(group)).leader

    def move_coordinator(self, group: str, broker: int) -> None:
        """Let one of several brokers coordinate a consumer group, and those in the same partition of
        __consumer_offsets. The one before refuses its requests. Raises ValueError."""
        self._broker.lead(CONSUMER_OFFSETS, self._partition_of(group), broker)

    def _partition_of(self, group: str) -> int:
        return CoordinatorLog(self._broker.topics, CONSUMER_OFFSETS).partition_for(arguments.text("group", group))

    def stop_broker(self, node_id: int) -> None:
        """Stop one of several brokers: its port refuses connections, and others lead what it led. Raises ValueError for
        the last one that is running."""
        self._broker.stop_broker(node_id)

    def start_broker(self, node_id: int) -> None:
        """Start a stopped one of several brokers on its port. It leads again what it led before."""
        self._broker.start_broker(node_id)

    # ---- snapshots ---------------------------------------------------------------------------------------------------

    def snapshot(self, path: str | os.PathLike[str]) -> None:
        """Copy all that the broker has into a new directory, or leave none there. The broker is restarted for it:
        clients reconnect. Raises FileExistsError, OSError, ValueError, RuntimeError after close()."""
        from klog.testing.copying import copy_directory

        self._check_not_closed()
        path = os.path.abspath(self._elsewhere(path))
        if os.path.exists(path):
            raise FileExistsError(f"{path}: it exists already; a snapshot is a new directory")
        copy, was_running = _beside(path), self._pause()
        try:
            copy_directory(self.directory, copy)
            os.rename(copy, path)
        finally:
            remove_tree(copy, RealFiles())
            if was_running:
                self.start()

    def restore(self, path: str | os.PathLike[str]) -> None:
        """Go back to a snapshot, or to a copy of any log.dir, of klog or Kafka. The broker is restarted: clients
        reconnect. Raises FileNotFoundError, OSError, and what klog.handover.adopt raises, before anything has changed;
        RuntimeError after close()."""
        from klog.testing.copying import copy_log_dir

        self._check_not_closed()
        path = self._elsewhere(path)
        if not os.path.isdir(path):
            raise FileNotFoundError(f"{path}: no such directory; snapshot(path) makes one")
        own = os.path.realpath(self.directory)
        copy = _beside(own)
        try:
            copy_log_dir(path, copy)
            was_running = self._pause()
            try:
                _replace(own, copy)
            finally:
                if was_running:
                    self.start()
        finally:
            remove_tree(copy, RealFiles())

    def _elsewhere(self, path: str | os.PathLike[str]) -> str:
        """The path of a snapshot. Raises ValueError for one inside the broker's own directory."""
        path = arguments.path("path", path)
        own = os.path.realpath(self.directory)
        if os.path.commonpath((own, os.path.realpath(path))) == own:
            raise ValueError(f"path={path!r} is inside the broker's own directory")
        return path


def _new_copy(source: str | os.PathLike[str]) -> str:
    from klog.testing.copying import new_copy

    return new_copy(source)


def _replace(path: str, new: str) -> None:
    """Put a new directory in the place of one, which is removed; or leave that."""
    before = _beside(path)
    os.rename(path, before)
    try:
        os.rename(new, path)
    except BaseException:
        os.rename(before, path)
        raise
    remove_tree(before, RealFiles())


def _beside(path: str) -> str:
    """A new path beside another one, so that a rename is enough."""
    return f"{path}.{os.urandom(8).hex()}"


def _release(version: str | None, versions: Mapping[str, int | None] | None) -> Release | None:
    if version is None and not versions:
        return None
    from klog.testing.releases import release

    return release(version, versions)


def _defaults(brokers: int) -> dict[str, Any]:
    """The broker's properties. Several brokers share the coordinators by the partitions of their topics."""
    if arguments.whole("brokers", brokers, 1) == 1:
        return _DEFAULTS
    return _DEFAULTS | {"offsets.topic.num.partitions": brokers, "transaction.state.log.num.partitions": brokers}


def _topics(topics: Iterable[str] | Mapping[str, int | Mapping[str, Any]] | None) -> dict[str, dict[str, Any]]:
    """{name: the arguments of create_topic}. Raises TypeError, ValueError, InvalidTopic, InvalidConfig."""
    if topics is None:
        return {}
    if isinstance(topics, Mapping):
        return {check_topic_name(name): _topic(f"topics[{name!r}]", value) for name, value in topics.items()}
    hint = f"; write [{topics!r}]" if isinstance(topics, str) else ""
    if hint or not isinstance(topics, Iterable):
        raise arguments.wrong_type("topics", topics, "a list of names, or {name: number of partitions},", hint)
    return {check_topic_name(name): {} for name in topics}


def _topic(where: str, value: int | Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of create_topic for one topic. where: for errors."""
    if not isinstance(value, Mapping):
        hint = '; or a mapping such as {"partitions": 3, "config": {"cleanup.policy": "compact"}}'
        return {"partitions": arguments.whole(where, value, 1, PARTITIONS_MAX, hint)}
    for name in value:
        arguments.chosen(where, name, ("partitions", "config"))
    found: dict[str, Any] = {}
    if "partitions" in value:
        found["partitions"] = arguments.whole(f"{where}['partitions']", value["partitions"], 1, PARTITIONS_MAX)
    if value.get("config") is not None:
        found["config"] = LogConfig(config_values(f"{where}['config']", value["config"]))
    return found
