"""ClientHandlers: the requests of producers. Authorization, and the errors that a request version knows.

    InitProducerId        TRANSACTIONAL_ID WRITE; without one CLUSTER IDEMPOTENT_WRITE, or WRITE of any topic
    AddPartitionsToTxn    TRANSACTIONAL_ID WRITE and TOPIC WRITE; from version 4 on, of brokers, CLUSTER CLUSTER_ACTION
    AddOffsetsToTxn       TRANSACTIONAL_ID WRITE and GROUP READ
    EndTxn                TRANSACTIONAL_ID WRITE

Kafka: KafkaApis.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from klog.coordinator.coordinator_log import CoordinatorLog
from klog.coordinator.transactions.decisions import Producer
from klog.coordinator.transactions.metadata import NO_EPOCH, NO_ID, VERSION_1, VERSION_2, Partition
from klog.coordinator.transactions.transactions import FAILURES, NO_PRODUCER, Transactions, error_of
from klog.internal_topics.names import CONSUMER_OFFSETS, INTERNAL_TOPICS
from klog.protocol import ApiKey, ErrorCode
from klog.protocol import messages as m
from klog.security.refusals import cluster_authorized

if TYPE_CHECKING:
    from collections.abc import Iterable

    from klog.protocol import Message
    from klog.security.context import Context, Topics

Handler = Callable[[Any, Any], "Message | None"]

# The first version that knows PRODUCER_FENCED; before it the error is INVALID_PRODUCER_EPOCH.
_FENCED_SINCE: Final = {
    ApiKey.INIT_PRODUCER_ID: 4,
    ApiKey.ADD_PARTITIONS_TO_TXN: 2,
    ApiKey.ADD_OFFSETS_TO_TXN: 2,
    ApiKey.END_TXN: 2,
}
_VERIFYING: Final = 4  # the first version of AddPartitionsToTxn that is for brokers
_EPOCH_BUMP: Final = 5  # the first version of EndTxn of transaction version 2


class ClientHandlers:
    """Any thread."""

    def __init__(self, transactions: Transactions, topics: Topics) -> None:
        self._transactions = transactions
        self._topics = topics
        self._offsets = CoordinatorLog(topics, CONSUMER_OFFSETS)

    def handlers(self) -> dict[ApiKey, Handler]:
        """The APIs, each with what handles its requests."""
        return {
            ApiKey.INIT_PRODUCER_ID: self.init_producer_id,
            ApiKey.ADD_PARTITIONS_TO_TXN: self.add_partitions_to_txn,
            ApiKey.ADD_OFFSETS_TO_TXN: self.add_offsets_to_txn,
            ApiKey.END_TXN: self.end_txn,
        }

    def init_producer_id(self, context: Context, request: m.InitProducerId.Request) -> m.InitProducerId.Response:
        """InitProducerId 0 to 5."""
        error, producer = self._init(context, request)
        return m.InitProducerId.Response(
            error_code=_known(context, error), producer_id=producer.id, producer_epoch=producer.epoch
        )

    def _init(self, context: Context, request: m.InitProducerId.Request) -> tuple[ErrorCode, Producer]:
        name = request.transactional_id
        if name is None:
            if not self._may_be_idempotent(context):
                return ErrorCode.CLUSTER_AUTHORIZATION_FAILED, NO_PRODUCER
        elif not context.authorized("WRITE", "TRANSACTIONAL_ID", name):
            return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, NO_PRODUCER
        if (request.producer_id == NO_ID) != (request.producer_epoch == NO_EPOCH):
            return ErrorCode.INVALID_REQUEST, NO_PRODUCER
        if name is None:
            return self._transactions.new_producer()
        expected = Producer(request.producer_id, request.producer_epoch)
        return self._transactions.init(
            name, request.transaction_timeout_ms, None if expected == NO_PRODUCER else expected
        )

    def _may_be_idempotent(self, context: Context) -> bool:
        if cluster_authorized(context.authorized, "IDEMPOTENT_WRITE"):
            return True
        return any(context.authorized("WRITE", "TOPIC", name) for name in self._topics.names())

    def add_partitions_to_txn(
        self, context: Context, request: m.AddPartitionsToTxn.Request
    ) -> m.AddPartitionsToTxn.Response:
        """AddPartitionsToTxn 0 to 5: of one transaction of a client, or of several of a broker, also to verify only."""
        if context.version < _VERIFYING:
            transaction = m.AddPartitionsToTxn.Request.Transaction(
                transactional_id=request.v3_and_below_transactional_id,
                producer_id=request.v3_and_below_producer_id,
                producer_epoch=request.v3_and_below_producer_epoch,
                topics=request.v3_and_below_topics,
            )
            return m.AddPartitionsToTxn.Response(results_by_topic_v3_and_below=self._add(context, transaction))
        if not cluster_authorized(context.authorized, "CLUSTER_ACTION"):
            return m.AddPartitionsToTxn.Response(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        return m.AddPartitionsToTxn.Response(
            results_by_transaction=[
                m.AddPartitionsToTxn.Response.TransactionResult(
                    transactional_id=transaction.transactional_id, topic_results=self._add(context, transaction)
                )
                for transaction in request.transactions
            ]
        )

    def _add(
        self, context: Context, transaction: m.AddPartitionsToTxn.Request.Transaction
    ) -> list[m.AddPartitionsToTxn.Response.TopicResult]:
        of_client = context.version < _VERIFYING
        name = transaction.transactional_id
        partitions = [(topic.name, number) for topic in transaction.topics for number in topic.partitions]
        if of_client and not context.authorized("WRITE", "TRANSACTIONAL_ID", name):
            return _by_topic((each, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED) for each in partitions)
        refused = self._refused(context, transaction.topics, of_client)
        if refused:
            return _by_topic((each, refused.get(each, ErrorCode.OPERATION_NOT_ATTEMPTED)) for each in partitions)
        producer = Producer(transaction.producer_id, transaction.producer_epoch)
        if transaction.verify_only:
            return _by_topic((each, self._transactions.verify(name, producer, each)) for each in partitions)
        version = VERSION_1 if of_client else VERSION_2
        error = _known(context, self._transactions.add(name, producer, frozenset(partitions), version))
        return _by_topic((each, error) for each in partitions)

    def _refused(
        self, context: Context, topics: Iterable[m.AddPartitionsToTxn.Request.Topic], of_client: bool
    ) -> dict[Partition, ErrorCode]:
        """The partitions that cannot be part of a transaction, with the reason."""
        found: dict[Partition, ErrorCode] = {}
        for topic in topics:
            allowed = not of_client or (
                topic.name not in INTERNAL_TOPICS and context.authorized("WRITE", "TOPIC", topic.name)
            )
            count = (self._topics.partitions(topic.name) or 0) if allowed else 0
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if allowed else ErrorCode.TOPIC_AUTHORIZATION_FAILED
            found.update(((topic.name, number), error) for number in topic.partitions if not 0 <= number < count)
        return found

    def add_offsets_to_txn(self, context: Context, request: m.AddOffsetsToTxn.Request) -> m.AddOffsetsToTxn.Response:
        """AddOffsetsToTxn 0 to 4: adds the partition of __consumer_offsets that has the group."""
        return m.AddOffsetsToTxn.Response(error_code=_known(context, self._add_offsets(context, request)))

    def _add_offsets(self, context: Context, request: m.AddOffsetsToTxn.Request) -> ErrorCode:
        name = request.transactional_id
        if not context.authorized("WRITE", "TRANSACTIONAL_ID", name):
            return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        if not context.authorized("READ", "GROUP", request.group_id):
            return ErrorCode.GROUP_AUTHORIZATION_FAILED
        try:
            partition = CONSUMER_OFFSETS, self._offsets.partition_for(request.group_id)
        except FAILURES as failure:
            return error_of(failure)
        producer = Producer(request.producer_id, request.producer_epoch)
        return self._transactions.add(name, producer, frozenset((partition,)), VERSION_1)

    def end_txn(self, context: Context, request: m.EndTxn.Request) -> m.EndTxn.Response:
        """EndTxn 0 to 5. Version 5 returns the producer's next epoch."""
        name = request.transactional_id
        if not context.authorized("WRITE", "TRANSACTIONAL_ID", name):
            return m.EndTxn.Response(error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        version = VERSION_2 if context.version >= _EPOCH_BUMP else VERSION_1
        producer = Producer(request.producer_id, request.producer_epoch)
        error, following = self._transactions.end(name, producer, request.committed, version)
        return m.EndTxn.Response(
            error_code=_known(context, error), producer_id=following.id, producer_epoch=following.epoch
        )


def _known(context: Context, error: ErrorCode) -> ErrorCode:
    """The error code of the request's version."""
    if error is ErrorCode.PRODUCER_FENCED and context.version < _FENCED_SINCE[context.api]:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error


def _by_topic(
    results: Iterable[tuple[Partition, ErrorCode]],
) -> list[m.AddPartitionsToTxn.Response.TopicResult]:
    by_topic: dict[str, dict[int, ErrorCode]] = {}
    for (topic, partition), error in results:
        by_topic.setdefault(topic, {})[partition] = error
    response = m.AddPartitionsToTxn.Response
    return [
        response.TopicResult(
            name=topic,
            results_by_partition=[
                response.PartitionResult(partition_index=partition, partition_error_code=error)
                for partition, error in errors.items()
            ],
        )
        for topic, errors in by_topic.items()
    ]
