"""AdminHandlers: requests of administrators and other brokers about transactions and producers.

    WriteTxnMarkers         CLUSTER ALTER or CLUSTER_ACTION
    DescribeTransactions    TRANSACTIONAL_ID DESCRIBE; only topics with TOPIC DESCRIBE are named
    ListTransactions        those with TRANSACTIONAL_ID DESCRIBE
    DescribeProducers       TOPIC READ

Kafka: KafkaApis, TransactionStateManager.listTransactionStates.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from klog.coordinator.pattern import InvalidPattern, Pattern
from klog.coordinator.transactions.handlers import Handler
from klog.coordinator.transactions.markers import Markers
from klog.coordinator.transactions.metadata import DEAD, EPOCH_MAX, STATES, VERSION_2, TransactionMetadata
from klog.coordinator.transactions.transactions import Transactions
from klog.errors import InvalidTopic, KlogError
from klog.manager.topics import check_topic_name
from klog.protocol import ApiKey, ErrorCode
from klog.protocol import messages as m
from klog.security.refusals import cluster_authorized

if TYPE_CHECKING:
    from collections.abc import Iterator

    from klog.clock import Clock
    from klog.security.context import Context, Topics

_UNKNOWN: Final = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class AdminHandlers:
    """Any thread."""

    def __init__(self, transactions: Transactions, markers: Markers, topics: Topics, clock: Clock) -> None:
        self._transactions = transactions
        self._markers = markers
        self._topics = topics
        self._clock = clock

    def handlers(self) -> dict[ApiKey, Handler]:
        """The APIs, each with what handles its requests."""
        return {
            ApiKey.WRITE_TXN_MARKERS: self.write_txn_markers,
            ApiKey.DESCRIBE_TRANSACTIONS: self.describe_transactions,
            ApiKey.LIST_TRANSACTIONS: self.list_transactions,
            ApiKey.DESCRIBE_PRODUCERS: self.describe_producers,
        }

    # ---- WriteTxnMarkers -------------------------------------------------------------------------------------------

    def write_txn_markers(self, context: Context, request: m.WriteTxnMarkers.Request) -> m.WriteTxnMarkers.Response:
        """WriteTxnMarkers 1 and 2, as of `kafka-transactions.sh abort`."""
        allowed = any(cluster_authorized(context.authorized, operation) for operation in ("ALTER", "CLUSTER_ACTION"))
        response = m.WriteTxnMarkers.Response
        results = []
        for marker in request.markers:
            topics = [
                response.Topic(
                    name=topic.name,
                    partitions=[
                        response.Partition(
                            partition_index=number,
                            error_code=self._write(marker, topic.name, number)
                            if allowed
                            else ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
                        )
                        for number in topic.partition_indexes
                    ],
                )
                for topic in marker.topics
            ]
            results.append(response.Marker(producer_id=marker.producer_id, topics=topics))
        return response(markers=results)

    def _write(self, marker: m.WriteTxnMarkers.Request.Marker, topic: str, partition: int) -> int:
        if marker.producer_id < 0 or marker.producer_epoch < 0:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        try:
            if marker.transaction_version >= VERSION_2 and self._is_late(marker, topic, partition):
                return ErrorCode.INVALID_PRODUCER_EPOCH
            self._markers.append(
                (topic, partition),
                marker.producer_id,
                marker.producer_epoch,
                marker.coordinator_epoch,
                marker.transaction_result,
            )
        except KlogError as error:
            return error.code
        except OSError:
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NONE

    def _is_late(self, marker: m.WriteTxnMarkers.Request.Marker, topic: str, partition: int) -> bool:
        """Would a marker of transaction version 2 end a transaction that began after it? Its epoch is the next one, so
        an open transaction has a lower epoch."""
        log = self._topics.log(topic, partition)
        state = None if log is None else log.producers.get(marker.producer_id)
        if state is None or state.current_txn_first_offset is None:
            return False
        return state.epoch == marker.producer_epoch != EPOCH_MAX

    # ---- transactions ----------------------------------------------------------------------------------------------

    def describe_transactions(
        self, context: Context, request: m.DescribeTransactions.Request
    ) -> m.DescribeTransactions.Response:
        """DescribeTransactions 0, each id once."""
        return m.DescribeTransactions.Response(
            transaction_states=[self._described(context, name) for name in dict.fromkeys(request.transactional_ids)]
        )

    def _described(self, context: Context, name: str) -> m.DescribeTransactions.Response.TransactionState:
        found = m.DescribeTransactions.Response.TransactionState(transactional_id=name)
        metadata = self._transactions.get(name)
        if not context.authorized("DESCRIBE", "TRANSACTIONAL_ID", name):
            found.error_code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        elif self._transactions.unavailable:
            found.error_code = self._transactions.unavailable
        elif not name:
            found.error_code = ErrorCode.INVALID_REQUEST
        elif metadata is None:
            found.error_code = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        else:
            found.transaction_state = metadata.state
            found.transaction_timeout_ms = metadata.timeout_ms
            found.transaction_start_time_ms = metadata.start_ms
            found.producer_id = metadata.producer_id
            found.producer_epoch = metadata.producer_epoch
            by_topic: dict[str, list[int]] = {}
            for topic, number in sorted(metadata.partitions):
                by_topic.setdefault(topic, []).append(number)
            found.topics = [
                m.DescribeTransactions.Response.Topic(topic=topic, partitions=numbers)
                for topic, numbers in by_topic.items()
                if context.authorized("DESCRIBE", "TOPIC", topic)
            ]
        return found

    def list_transactions(self, context: Context, request: m.ListTransactions.Request) -> m.ListTransactions.Response:
        """ListTransactions 0 to 2. A filter that is empty lets all pass."""
        if self._transactions.unavailable:
            return m.ListTransactions.Response(error_code=self._transactions.unavailable)
        pattern = None
        if request.transactional_id_pattern:
            try:
                characters = frozenset().union(*(each.transactional_id for each in self._transactions.all()))
                pattern = Pattern(request.transactional_id_pattern, characters)
            except InvalidPattern:
                return m.ListTransactions.Response(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
        found = [
            m.ListTransactions.Response.TransactionState(
                transactional_id=each.transactional_id, producer_id=each.producer_id, transaction_state=each.state
            )
            for each in self._listed(request, pattern)
            if context.authorized("DESCRIBE", "TRANSACTIONAL_ID", each.transactional_id)
        ]
        unknown = [state for state in request.state_filters if state not in STATES]
        return m.ListTransactions.Response(unknown_state_filters=unknown, transaction_states=found)

    def _listed(self, request: m.ListTransactions.Request, pattern: Pattern | None) -> Iterator[TransactionMetadata]:
        ids, states = set(request.producer_id_filters), set(request.state_filters)
        now_ms = self._clock.wall_ms()
        for each in self._transactions.all():
            if each.state == DEAD or (ids and each.producer_id not in ids) or (states and each.state not in states):
                continue
            if request.duration_filter >= 0 and now_ms - each.start_ms <= request.duration_filter:
                continue
            if pattern is None or pattern.matches(each.transactional_id):
                yield each

    # ---- producers -------------------------------------------------------------------------------------------------

    def describe_producers(
        self, context: Context, request: m.DescribeProducers.Request
    ) -> m.DescribeProducers.Response:
        """DescribeProducers 0: the producers of partitions, each once, as their logs have them."""
        response = m.DescribeProducers.Response
        topics = []
        asked: dict[str, dict[int, None]] = {}
        for topic in request.topics:
            asked.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
        for name, numbers in asked.items():
            refused = self._refused(context, name)
            partitions = [
                self._producers(name, number)
                if refused is None
                else response.Partition(partition_index=number, error_code=refused)
                for number in numbers
            ]
            topics.append(response.Topic(name=name, partitions=partitions))
        return response(topics=topics)

    def _refused(self, context: Context, topic: str) -> ErrorCode | None:
        """The error of all partitions of a topic, or None. It has no message: clients have better ones."""
        try:
            check_topic_name(topic)
        except InvalidTopic:
            return ErrorCode.INVALID_TOPIC_EXCEPTION
        if not context.authorized("READ", "TOPIC", topic):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return _UNKNOWN if self._topics.partitions(topic) is None else None

    def _producers(self, topic: str, partition: int) -> m.DescribeProducers.Response.Partition:
        response = m.DescribeProducers.Response
        try:
            log = self._topics.log(topic, partition)
            if log is None:
                return response.Partition(partition_index=partition, error_code=_UNKNOWN)
            producers = log.producers
        except KlogError as error:
            return response.Partition(partition_index=partition, error_code=error.code)
        except OSError:
            return response.Partition(partition_index=partition, error_code=ErrorCode.KAFKA_STORAGE_ERROR)
        return response.Partition(
            partition_index=partition,
            active_producers=[
                response.Producer(
                    producer_id=producer_id,
                    producer_epoch=state.epoch,
                    last_sequence=state.last_sequence,
                    last_timestamp=state.timestamp,
                    coordinator_epoch=state.coordinator_epoch,
                    current_txn_start_offset=-1
                    if state.current_txn_first_offset is None
                    else state.current_txn_first_offset,
                )
                for producer_id, state in producers.items()
            ],
        )
