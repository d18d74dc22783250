"""TestBroker: a broker for tests, in this process, ready in milliseconds, with faults on demand.

Everything lies in a directory in memory, which is removed at the end. Its files are those of Kafka.
"""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Any, Literal, Self

from klog.broker import Broker
from klog.clock import SystemClock
from klog.disk import RealFiles, remove_tree
from klog.scheduler import Scheduler
from klog.testing.faults import Fault, FaultGate
from klog.testing.place import new_directory
from klog.testing.topic import TopicUnderTest, dump_topics

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from klog.clock import Clock
    from klog.manager import LogManager
    from klog.network import Listener
    from klog.protocol import ApiKey, ErrorCode

_DEFAULTS = {
    "auto.create.topics.enable": True,  # as Kafka's default, which programs under test may count on
    "num.io.threads": 2,
    "log.cleaner.threads": 0,  # compaction is called for, with logs.log(topic).compact()
}


class TestBroker:
    """A broker for tests. Use it in a `with` statement, or call start() and stop(). Any thread.

    topics: names, or a mapping of a name to its number of partitions or to the arguments of create_topic. config:
    broker-level properties. directory: an existing log.dir, which is kept; None: a new one in memory. clock: a
    klog.clock.ManualClock moves retention, compaction, sessions of groups and transactions only when the test advances
    it; requests wait in real time. listeners: as for klog.Broker, by default one free port of this machine.

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
        clock: Clock | None = None,
        listeners: Iterable[str | Listener] = ("127.0.0.1:0",),
    ) -> None:
        self._topics = _topics(topics)
        self._is_own = directory is None
        self.directory = new_directory() if directory is None else os.fspath(directory)
        self.clock: Clock = clock or SystemClock()
        self._scheduler = Scheduler(SystemClock())
        self._faults = FaultGate(self._scheduler)
        self._broker = Broker(
            self.directory,
            listeners=listeners,
            config=_DEFAULTS | dict(config or {}),
            clock=clock,
            gates=(self._faults,),
        )
        self._has_topics = False

    def __repr__(self) -> str:
        return f"<TestBroker {self._broker!r}>"

    # ---- life --------------------------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Serve. After stop() or kill() on the same ports, with what the directory has."""
        os.makedirs(self.directory, exist_ok=True)
        self._broker.start()
        self._faults.topics = self._broker.topics
        self._scheduler.start()
        if not self._has_topics:
            for name, arguments in self._topics.items():
                self.create_topic(name, **arguments)
            self._has_topics = True
        return self

    def stop(self) -> None:
        """Stop, cleanly; the directory stays until close(), so that start() goes on with it."""
        self._faults.close()
        self._broker.stop(timeout=5.0)
        self._scheduler.stop()

    def kill(self) -> None:
        """Stop as `kill -9` of a broker would: requests stay unanswered, and the next start() recovers the logs."""
        self._broker.kill()
        self._scheduler.stop()

    def restart(self) -> Self:
        """stop() and start()."""
        self.stop()
        return self.start()

    def close(self) -> None:
        """Stop, and remove the directory if it was made for this broker."""
        self.stop()
        if self._is_own:
            remove_tree(self.directory, RealFiles())

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *error: object) -> None:
        self.close()

    # ---- facts -------------------------------------------------------------------------------------------------------

    @property
    def bootstrap_servers(self) -> str:
        """The addresses for a client's bootstrap.servers."""
        return self._broker.bootstrap_servers

    @property
    def port(self) -> int:
        """The port of the first listener."""
        return self._broker.port

    @property
    def logs(self) -> LogManager:
        """The directory, open: the whole Python API of klog."""
        return self._broker.logs

    def metrics(self) -> dict[str, float]:
        """The values of network and requests, under Kafka's names."""
        return self._broker.metrics()

    # ---- topics ------------------------------------------------------------------------------------------------------

    def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, Any] | None = None) -> TopicUnderTest:
        """Create a topic, as LogManager.create_topic does."""
        self.logs.create_topic(name, partitions, config)
        return self.topic(name)

    def topic(self, name: str) -> TopicUnderTest:
        """A topic, to look into it: .records(), .wait(count), .append(records)."""
        return TopicUnderTest(self._broker, name)

    def dump(self) -> str:
        """The newest records of all topics as text."""
        names = [name for name in self.logs.topics() if not name.startswith("__")]
        return dump_topics(self._broker, names) or "no topics"

    # ---- faults ------------------------------------------------------------------------------------------------------

    def inject(
        self,
        api: ApiKey | str | None = None,
        *,
        topic: str | None = None,
        partition: int | None = None,
        client_id: str | None = None,
        count: int | None = 1,
        skip: int = 0,
        error: ErrorCode | str | int | None = None,
        delay_ms: int = 0,
        disconnect: Literal["before", "after"] | None = None,
        half: bool = False,
        drop: bool = False,
    ) -> Fault:
        """Let requests fail from now on. Returns the fault, with .hits, .wait(hits) and .stop().

        Which requests: api is a name such as "produce", None for any; topic, partition: those that name it; client_id:
        a pattern such as "billing-*". The first `skip` of them pass, then `count` of them meet the fault, None for all.

        What happens, besides waiting delay_ms: error: the response has this error of Kafka, by name or number, for all
        that the request asks for, and nothing is done. disconnect: the connection is closed "before" the request is
        handled, or "after" it instead of the response. half: half of the response is sent before the connection is
        closed. drop: there is no response.

        Of several faults that concern a request the oldest one counts. Raises ValueError, TypeError.
        """
        return self._faults.add(
            Fault(
                api,
                topic=topic,
                partition=partition,
                client_id=client_id,
                count=count,
                skip=skip,
                error=error,
                delay_ms=delay_ms,
                disconnect=disconnect,
                half=half,
                drop=drop,
            )
        )

    def clear_faults(self) -> None:
        """Let all requests pass again."""
        self._faults.clear()

    def tear(self, topic: str, partition: int = 0, *, last_bytes: int = 10) -> None:
        """Cut bytes from the end of a partition's log, as a crash in the middle of a write leaves it. The broker must
        be stopped, after kill(); the next start() recovers the log. Raises RuntimeError, FileNotFoundError."""
        if self._broker.is_running:
            raise RuntimeError("the broker is running: call kill() first")
        home = os.path.join(self.directory, f"{topic}-{partition}")
        newest = max(name for name in os.listdir(home) if name.endswith(".log"))
        path = os.path.join(home, newest)
        os.truncate(path, max(0, os.path.getsize(path) - last_bytes))

    # ---- snapshots ---------------------------------------------------------------------------------------------------

    def snapshot(self, path: str | os.PathLike[str]) -> None:
        """Copy all that the broker has into a new directory. The broker is restarted for it: clients reconnect."""
        was_running = self._broker.is_running
        self.stop()
        shutil.copytree(self.directory, path, ignore=shutil.ignore_patterns(".lock"))
        if was_running:
            self.start()

    def restore(self, path: str | os.PathLike[str]) -> None:
        """Go back to a snapshot, or to a copy of any log.dir. The broker is restarted: clients reconnect."""
        if not os.path.isdir(path):
            raise FileNotFoundError(f"{os.fspath(path)}: no such directory; snapshot(path) makes one")
        was_running = self._broker.is_running
        self.stop()
        remove_tree(self.directory, RealFiles())
        shutil.copytree(path, self.directory, ignore=shutil.ignore_patterns(".lock"))
        if was_running:
            self.start()


def _topics(topics: Iterable[str] | Mapping[str, int | Mapping[str, Any]] | None) -> dict[str, dict[str, Any]]:
    """{name: the arguments of create_topic}."""
    if topics is None:
        return {}
    if isinstance(topics, str):
        raise TypeError(f"topics={topics!r}: a list of names, or a mapping, expected; write [{topics!r}]")
    if not hasattr(topics, "items"):
        return {name: {} for name in topics}
    return {name: {"partitions": value} if isinstance(value, int) else dict(value) for name, value in topics.items()}
