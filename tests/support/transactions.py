"""A transaction coordinator over the logs of a LogManager, and the producers that use it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import klog
from klog.clock import ManualClock
from klog.coordinator.transactions import TransactionConfig, TransactionCoordinator
from klog.coordinator.transactions.registry import Registry
from klog.errors import TopicExists
from klog.log import Log
from klog.protocol import ApiKey, ErrorCode, Message, decode, encode, messages
from klog.scheduler import Scheduler
from tests.support.batches import batch
from tests.support.topics import ManagerTopics

NOW = 1_700_000_000_000
TOPIC = "events"
OFFSETS = "__consumer_offsets"
STATE = "__transaction_state"
ERRORS = {int(each): each for each in ErrorCode}


class Killed(BaseException):
    """The process was killed."""


class FaultyLog:
    """A log whose appends by a coordinator raise."""

    def __init__(self, log: Log, fault: BaseException) -> None:
        self._log = log
        self._fault = fault

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def append(self, *_: Any, **__: Any) -> Any:
        raise self._fault

    def append_batches(self, *_: Any, **__: Any) -> Any:
        raise self._fault


class FaultyTopics(ManagerTopics):
    """faults: {(topic, partition): what an append raises}"""

    def __init__(self, manager: klog.LogManager, *, internal_partitions: int = 1) -> None:
        super().__init__(manager, internal_partitions=internal_partitions)
        self.faults: dict[tuple[str, int], BaseException] = {}

    def ensure_internal(self, topic: str) -> None:
        """May be called by several threads at once, as for the broker's own topics."""
        with contextlib.suppress(TopicExists):
            super().ensure_internal(topic)

    def log(self, topic: str, partition: int) -> Log | None:
        found = super().log(topic, partition)
        fault = self.faults.get((topic, partition))
        return found if fault is None or found is None else FaultyLog(found, fault)  # type: ignore[return-value]


class Asking:
    """klog.security.context.Context of one request. denied: (operation, resource type, name or "*")."""

    client_id = "test"
    client_host = "/127.0.0.1"
    principal = "User:ANONYMOUS"
    listener = "PLAINTEXT"
    connection = None

    def __init__(self, api: ApiKey, version: int, denied: set[tuple[str, str, str]]) -> None:
        self.api = api
        self.version = version
        self._denied = denied

    def respond(self, response: Message, *, throttle_ms: int = 0) -> None:
        raise AssertionError("handlers of transactions return their responses")

    def authorized(self, operation: str, resource_type: str, name: str) -> bool:
        return not {(operation, resource_type, name), (operation, resource_type, "*")} & self._denied


class Cluster:
    """One broker's logs, clock and coordinator. restart() makes a new coordinator over the same logs."""

    def __init__(self, path: Path, *, partitions: int = 3, internal_partitions: int = 1, **config: int) -> None:
        self.path = path
        self.clock = ManualClock(NOW)
        self.manager = klog.open(path, create=True, clock=self.clock)
        self.topics = FaultyTopics(self.manager, internal_partitions=internal_partitions)
        if TOPIC not in self.manager.topics():
            self.manager.create_topic(TOPIC, partitions)
            self.manager.create_topic(OFFSETS, internal_partitions, config={"cleanup.policy": "compact"})
        self.config = TransactionConfig(**config)
        self.denied: set[tuple[str, str, str]] = set()
        self.markers: list[tuple[int, int, bool]] = []
        self.schedulers: list[Scheduler] = []
        self.coordinator = self.start()

    def start(self, *, load: bool = True) -> TransactionCoordinator:
        """A new coordinator, as after a start of the broker; the old one is not closed, as after a kill."""
        for old in self.schedulers:
            old.stop()
        self.schedulers[:] = [Scheduler(self.clock)]
        self.coordinator = TransactionCoordinator(
            self.topics,
            self.schedulers[0],
            self.clock,
            self.config,
            node_id=1,
            directory=str(self.path),
            on_marker=self._on_marker,
        )
        if load:
            self.coordinator.load()
        return self.coordinator

    def _on_marker(self, partition: int, producer_id: int, committed: bool, append: Callable[[], object]) -> None:
        append()
        self.markers.append((partition, producer_id, committed))

    def close(self) -> None:
        self.coordinator.close()
        self.schedulers[0].stop()
        self.manager.close()

    def ask(self, api: ApiKey, request: Any, version: int | None = None) -> Any:
        """Send a request. The response is what a client of this version decodes."""
        version = api.high if version is None else version
        name = type(request).__qualname__.split(".")[0]
        kind = getattr(messages, name)
        request = decode(kind.Request, version, encode(request, version))
        response = self.coordinator.handlers()[api](Asking(api, version, self.denied), request)
        assert response is not None
        return decode(kind.Response, version, encode(response, version))

    def log(self, partition: int, topic: str = TOPIC) -> Log:
        return self.manager.log(topic, partition)

    def values(self, partition: int, topic: str = TOPIC) -> list[bytes | None]:
        """The values that a read_committed consumer gets."""
        return [record.value for record in self.log(partition, topic).read(isolation="read_committed")]

    def control(self, partition: int, topic: str = TOPIC) -> list[tuple[str, int, int]]:
        """The markers of a partition: kind, producer id, epoch."""
        return [
            (str(batch.control_type), batch.producer_id, batch.producer_epoch)
            for batch in self.log(partition, topic).read(isolation="log_end", include_control=True).batches()
            if batch.is_control
        ]

    def is_hanging(self, partition: int, topic: str = TOPIC) -> bool:
        log = self.log(partition, topic)
        return log.last_stable_offset < log.log_end_offset

    def described(self, name: str) -> messages.DescribeTransactions.Response.TransactionState:
        request = messages.DescribeTransactions.Request(transactional_ids=[name])
        (state,) = self.ask(ApiKey.DESCRIBE_TRANSACTIONS, request).transaction_states
        return state  # type: ignore[no-any-return]

    def state(self, name: str) -> str:
        return self.described(name).transaction_state

    def states_in_log(self, name: str) -> list[tuple[str, int, int]]:
        """(state, producer id, epoch) of each record of a transactional id, oldest first."""
        found = []
        for partition in self.manager.topics()[STATE]:
            for record in self.log(partition, STATE).read():
                decoded = klog.internal_topics.decode(record, STATE)
                assert decoded is not None and decoded.key is not None
                if decoded.key["transactional_id"] == name and decoded.value is not None:
                    number = decoded.value["transaction_status"]
                    state = klog.internal_topics.transaction_state.STATES[number]
                    found.append((state, decoded.value["producer_id"], decoded.value["producer_epoch"]))
        return found

    @property
    def registry(self) -> Registry:
        return self.coordinator._registry


class Producer:
    """A transactional producer. version: 1 adds a partition by AddPartitionsToTxn, 2 by its first Produce to it."""

    def __init__(self, cluster: Cluster, name: str = "t", version: int = 2, timeout_ms: int = 60_000) -> None:
        self.cluster = cluster
        self.name = name
        self.version = version
        self.timeout_ms = timeout_ms
        self.id, self.epoch = -1, -1
        self._sequences: dict[tuple[str, int], int] = {}

    def init(self, *, resume: bool = False, api_version: int | None = None) -> ErrorCode:
        request = messages.InitProducerId.Request(transactional_id=self.name, transaction_timeout_ms=self.timeout_ms)
        if resume:
            request.producer_id, request.producer_epoch = self.id, self.epoch
        response = self.cluster.ask(ApiKey.INIT_PRODUCER_ID, request, api_version)
        if not response.error_code:
            self._become(response.producer_id, response.producer_epoch)
        return ERRORS[response.error_code]

    def _become(self, producer_id: int, epoch: int) -> None:
        if (producer_id, epoch) != (self.id, self.epoch):
            self._sequences.clear()
        self.id, self.epoch = producer_id, epoch

    def add(self, *partitions: int, topic: str = TOPIC, api_version: int = 3) -> list[ErrorCode]:
        """AddPartitionsToTxn, the error of each partition."""
        request = messages.AddPartitionsToTxn.Request
        topics = [request.Topic(name=topic, partitions=list(partitions))]
        asked = request(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=topics,
        )
        response = self.cluster.ask(ApiKey.ADD_PARTITIONS_TO_TXN, asked, api_version)
        (result,) = response.results_by_topic_v3_and_below
        return [ERRORS[each.partition_error_code] for each in result.results_by_partition]

    def add_offsets(self, group: str = "g", api_version: int = 4) -> ErrorCode:
        request = messages.AddOffsetsToTxn.Request(
            transactional_id=self.name, producer_id=self.id, producer_epoch=self.epoch, group_id=group
        )
        return ERRORS[self.cluster.ask(ApiKey.ADD_OFFSETS_TO_TXN, request, api_version).error_code]

    def send(self, partition: int, *values: bytes, topic: str = TOPIC) -> ErrorCode:
        """Produce, as the broker handles it."""
        coordinator = self.cluster.coordinator
        where = self.name, self.id, self.epoch, topic, partition
        if self.version == 1:
            (error,) = self.add(partition, topic=topic)
            if error:
                return error
        with coordinator.hold(self.name):
            error = coordinator.verify(*where) if self.version == 1 else coordinator.add_partition_implicitly(*where)
            if error:
                return error
            self.append(partition, *values, topic=topic)
        return ErrorCode.NONE

    def append(self, partition: int, *values: bytes, topic: str = TOPIC) -> None:
        """Append without asking the coordinator."""
        key = topic, partition
        sequence = self._sequences.get(key, 0)
        data = batch(
            values,
            producer_id=self.id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        self.cluster.log(partition, topic).append_batches(data)
        self._sequences[key] = sequence + len(values)

    def end(self, committed: bool, *, api_version: int | None = None) -> ErrorCode:
        request = messages.EndTxn.Request(
            transactional_id=self.name, producer_id=self.id, producer_epoch=self.epoch, committed=committed
        )
        version = (4 if self.version == 1 else 5) if api_version is None else api_version
        response = self.cluster.ask(ApiKey.END_TXN, request, version)
        if version >= 5 and not response.error_code:
            self._become(response.producer_id, response.producer_epoch)
        return ERRORS[response.error_code]

    def commit(self) -> ErrorCode:
        return self.end(True)

    def abort(self) -> ErrorCode:
        return self.end(False)
