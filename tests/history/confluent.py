"""Workers over librdkafka: what programs use, with its retries, rebalances and transactions."""

from __future__ import annotations

import contextlib
import random
from collections import defaultdict
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition

from tests.history.operations import Commit, End, Outcome, Partition, Poll, Send
from tests.history.recording import History, Worker, now

_PATIENT = {
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 200,
    "socket.timeout.ms": 10_000,
    # The default, rebootstrap, hangs: librdkafka 2.16.0 forgets the only broker when it is down, but its cache of
    # coordinators keeps the dead one, and send_offsets_to_transaction never returns.
    "metadata.recovery.strategy": "none",
    "log_level": 0,
}


class Sender(Worker):
    """Sends unique values all the time. A delivery that failed may have happened."""

    def __init__(
        self, name: str, address: str, history: History, partitions: list[Partition], seed: int, *, idempotent: bool
    ) -> None:
        super().__init__(name, history)
        self.partitions = partitions
        self.chance = random.Random(seed)
        self.idempotent = idempotent
        self.producer = Producer(
            _PATIENT
            | {
                "bootstrap.servers": address,
                "client.id": name,
                "enable.idempotence": idempotent,
                "linger.ms": 2,
                "message.timeout.ms": 120_000,
            }
        )

    def step(self) -> None:
        for _ in range(self.chance.randrange(1, 4)):
            send(self.producer, self, self.chance.choice(self.partitions), idempotent=self.idempotent)
        self.producer.poll(0)
        self.ending.wait(self.chance.random() * 0.1)

    def close(self) -> None:
        left = self.producer.flush(60)
        if left:
            self.history.fail(f"{self.name}: {left} records were not delivered")


def send(
    producer: Any,
    worker: Worker,
    partition: Partition,
    what: str = "",
    undelivered: list[str] | None = None,
    **more: Any,
) -> None:
    """Record the outcome when it is known. undelivered: gets the value if the delivery fails."""
    number, client = worker.history.number(), worker.name
    value = f"{client}-{number}{what}"
    began = now()

    def delivered(error: Any, message: Any) -> None:
        if error is not None and undelivered is not None:
            undelivered.append(value)
        worker.history.add(
            Send(client=client, began=began, ended=now(), partition=partition, value=value, number=number,
                 outcome="unknown" if error is not None else "ok",
                 offset=message.offset() if error is None and message.offset() >= 0 else None, **more)
        )  # fmt: skip

    producer.produce(partition[0], value, key="k", partition=partition[1], on_delivery=delivered)


class Reading(Worker):
    """What all consumers share. A consumer that fails for good is closed and made again."""

    group: str | None = None
    committed_only = False

    def __init__(self, name: str, history: History) -> None:
        super().__init__(name, history)
        self.session = 0
        self.consumer: Any = None

    def opened(self) -> Any:
        raise NotImplementedError

    def read(self, timeout: float = 0.05) -> Any:
        """The next message, recorded; None if there is none."""
        if self.consumer is None:
            self.session += 1
            self.consumer = self.opened()
        began = now()
        message = self.consumer.poll(timeout)
        if message is None or message.error():
            return None
        self.history.add(
            Poll(client=self.name, began=began, ended=now(), partition=(message.topic(), message.partition()),
                 records=((message.offset(), message.value().decode()),), session=self.session,
                 number=self.history.number(), committed_only=self.committed_only, group=self.group)
        )  # fmt: skip
        return message

    def reopen(self) -> None:
        consumer, self.consumer = self.consumer, None
        if consumer is not None:
            consumer.close()

    def close(self) -> None:
        self.reopen()


class Reader(Reading):
    """Reads partitions that it chose, from the beginning."""

    def __init__(
        self, name: str, address: str, history: History, partitions: list[Partition], *, committed_only: bool
    ) -> None:
        super().__init__(name, history)
        self.address = address
        self.partitions = partitions
        self.committed_only = committed_only

    def opened(self) -> Any:
        consumer = Consumer(
            _PATIENT
            | {
                "bootstrap.servers": self.address,
                "group.id": "none",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "isolation.level": "read_committed" if self.committed_only else "read_uncommitted",
            }
        )
        consumer.assign([TopicPartition(*each, OFFSET_BEGINNING) for each in self.partitions])
        return consumer

    def step(self) -> None:
        self.read()


class GroupConsumer(Reading):
    """A member of a group that commits what it got, and now and then leaves and comes again."""

    committed_only = True

    def __init__(
        self, name: str, address: str, history: History, group: str, topics: list[str], seed: int, *,
        protocol: str, leaves: float = 0.0, assignor: str = "range",
    ) -> None:  # fmt: skip
        super().__init__(name, history)
        self.address = address
        self.group = group
        self.topics = topics
        self.chance = random.Random(seed)
        self.protocol = protocol
        self.leaves = leaves
        self.assignor = assignor
        self.positions: dict[Partition, int] = {}

    def opened(self) -> Any:
        settings: dict[str, Any] = {
            "bootstrap.servers": self.address,
            "group.id": self.group,
            "client.id": self.name,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "group.protocol": self.protocol,
        }
        if self.protocol == "classic":
            settings |= {
                "session.timeout.ms": 6000,
                "heartbeat.interval.ms": 200,
                "partition.assignment.strategy": self.assignor,
            }
        consumer = Consumer(_PATIENT | settings)
        self.positions.clear()
        consumer.subscribe(
            self.topics, on_assign=self._rebalanced, on_revoke=self._rebalanced, on_lost=self._rebalanced
        )
        return consumer

    def _rebalanced(self, _consumer: Any, partitions: list[TopicPartition]) -> None:
        """A cooperative rebalance names only the partitions that come or go: the client reads on in the others, and
        their positions are still to be committed."""
        self.session += 1
        for each in partitions:
            self.positions.pop((each.topic, each.partition), None)

    def step(self) -> None:
        message = self.read()
        if message is not None:
            self.positions[message.topic(), message.partition()] = message.offset() + 1
        if self.positions and self.chance.random() < 0.1:
            self.commit()
        if self.chance.random() < self.leaves:
            self.reopen()

    def commit(self) -> None:
        offsets, session, began = dict(self.positions), self.session, now()
        self.positions.clear()
        try:
            results = self.consumer.commit(
                offsets=[TopicPartition(*partition, offset) for partition, offset in offsets.items()],
                asynchronous=False,
            )
            outcomes = {(each.topic, each.partition): each.error is None for each in results}
        except KafkaException:
            outcomes = {}
        add_commits(self, offsets, began, {key: "ok" if good else "unknown" for key, good in outcomes.items()})
        if session == self.session:  # what failed is committed again; in another session it is read again
            self.positions = {key: at for key, at in offsets.items() if not outcomes.get(key)} | self.positions

    def close(self) -> None:
        if self.consumer is not None and self.positions:
            self.commit()
        super().close()


def add_commits(worker: Any, offsets: dict[Partition, int], began: float, outcomes: dict[Partition, Outcome]) -> None:
    for partition, offset in offsets.items():
        worker.history.add(
            Commit(client=worker.name, began=began, ended=now(), group=worker.group, partition=partition, offset=offset,
                   outcome=outcomes.get(partition, "unknown"))
        )  # fmt: skip


class Copier(GroupConsumer):
    """Copies a topic: reads, writes copies and commits its offsets in one transaction, or aborts it and reads again.

    A copy is "<copier>-<number><<partition>/<offset>", so that a test sees of what it is the copy.
    """

    def __init__(
        self, name: str, address: str, history: History, group: str, topic: str, out: list[Partition], seed: int, *,
        protocol: str, leaves: float = 0.0,
    ) -> None:  # fmt: skip
        super().__init__(name, address, history, group, [topic], seed, protocol=protocol, leaves=leaves)
        self.out = out
        self.producer: Any = None
        self._retired: list[Any] = []
        self.must_rewind = False

    def step(self) -> None:
        try:
            if self.producer is None:
                self.producer = self._producer()
            if self.must_rewind:
                self._rewind()
            self._read_and_copy()
        except KafkaException:
            self._end_producer()
            self.reopen()
        if self.chance.random() < self.leaves:
            self._end_producer()
            self.reopen()

    def _read_and_copy(self) -> None:
        batch: list[Any] = []
        session = self.session
        for _ in range(self.chance.choice((1, 5, 50))):
            message = self.read(0.02)
            if batch and self.session != session:
                self.must_rewind = True
                return
            session = self.session
            if message is None:
                break
            batch.append(message)
        if batch:
            self._copy(batch)

    def _rewind(self) -> None:
        """Read again from the committed offsets."""
        if self.consumer is not None:
            self.session += 1
            for each in self.consumer.committed(self.consumer.assignment(), 20):
                # A number also for the beginning: librdkafka 2.16.0 asks for the offset of OFFSET_BEGINNING again after
                # half a second if the broker was away, and then goes there, whatever it has read or sought since.
                self.consumer.seek(TopicPartition(each.topic, each.partition, max(each.offset, 0)))
        self.must_rewind = False

    def opened(self) -> Any:
        self.must_rewind = False
        return super().opened()

    def _producer(self) -> Any:
        producer = Producer(
            _PATIENT
            | {
                "bootstrap.servers": self.address,
                "client.id": self.name,
                "transactional.id": self.name,
                "transaction.timeout.ms": 20_000,
                "linger.ms": 1,
            }
        )
        producer.init_transactions(20)
        return producer

    def _copy(self, batch: list[Any]) -> None:
        transaction = f"{self.name}/{self.history.number()}"
        self.producer.begin_transaction()
        offsets: dict[Partition, int] = defaultdict(int)
        undelivered: list[str] = []
        for message in batch:
            source = f"<{message.partition()}/{message.offset()}"
            send(
                self.producer, self, self.chance.choice(self.out), source, undelivered,
                idempotent=True, transaction=transaction,
            )  # fmt: skip
            key = message.topic(), message.partition()
            offsets[key] = max(offsets[key], message.offset() + 1)
        began = now()
        outcome: Outcome = "unknown"
        try:
            self.producer.send_offsets_to_transaction(
                [TopicPartition(*partition, offset) for partition, offset in offsets.items()],
                self.consumer.consumer_group_metadata(),
                20,
            )
            began = now()
            if self.chance.random() < 0.2:
                outcome = self._abort()
            else:
                outcome = self._commit()
        except KafkaException as error:
            if error.args[0].txn_requires_abort():
                with contextlib.suppress(KafkaException):
                    outcome = self._abort()
        finally:
            # After an abort librdkafka 2.16.0 gives the sequences of records whose response was lost to others: the broker
            # takes these for the earlier ones. A new epoch tells them apart.
            if outcome == "unknown" or undelivered:
                self._end_producer()  # its deliveries are known before the transaction's end
            self.history.add(End(client=self.name, began=began, ended=now(), transaction=transaction, outcome=outcome))
        add_commits(self, offsets, began, dict.fromkeys(offsets, outcome))
        self.must_rewind = outcome != "ok"

    def _commit(self) -> Outcome:
        for _ in range(3):
            try:
                self.producer.commit_transaction(20)
                return "ok"
            except KafkaException as error:
                kind: KafkaError = error.args[0]
                if not kind.retriable():
                    raise
        return "unknown"

    def _abort(self) -> Outcome:
        for _ in range(3):
            try:
                self.producer.abort_transaction(20)
                return "fail"
            except KafkaException as error:
                if not error.args[0].retriable():
                    return "unknown"
        return "unknown"

    def _end_producer(self) -> None:
        """Without destroying it: librdkafka 2.16.0 may wait for ever for its threads while the broker is down."""
        producer, self.producer = self.producer, None
        if producer is not None:
            producer.purge()
            producer.flush(5)
            self._retired.append(producer)

    def commit(self) -> None:
        """Its offsets are committed by its transactions."""

    def close(self) -> None:
        self._end_producer()
        self.reopen()
        self._retired.clear()
