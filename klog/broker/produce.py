"""Produce: appends batches of clients. Kafka: KafkaApis.handleProduceRequest, ReplicaManager.appendRecords.

acks 0    no response; after an error the connection is closed, so that the client notices
acks 1    a response after the append
acks -1   the same: a partition has one copy, so its high watermark follows the log end. Of several brokers in one
          process at least min.insync.replicas must run

Of a partition that a request names twice the last entry counts, and has the only result, as in Kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from klog.broker.partitions import code_of, find_log
from klog.codec import CODECS
from klog.errors import KlogError, OutOfOrderSequence
from klog.internal_topics.names import INTERNAL_TOPICS
from klog.logger import logger_of
from klog.protocol import ApiKey, ErrorCode, messages
from klog.record import unchecked_header

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from klog.broker.context import RequestContext
    from klog.broker.metadata import Placement
    from klog.broker.purgatory import Purgatory
    from klog.broker.transaction_check import TransactionCheck
    from klog.log import Log
    from klog.protocol import Message
    from klog.record import UncheckedHeader
    from klog.security import Topics

_log = logger_of("broker")
_ZSTD_VERSION = 7
_TXN_V2_VERSION = 12
_IDS_VERSION = 13
_ACKS = (-1, 0, 1)
_ZSTD = CODECS.index("zstd")
_NONE = ErrorCode.NONE


class Produce:
    """Any thread. throttle: (context, bytes) -> ms. placement: of partitions by several brokers; None: there is one."""

    def __init__(
        self,
        topics: Topics,
        purgatory: Purgatory,
        transactions: TransactionCheck,
        throttle: Callable[[RequestContext, int], int] | None = None,
        placement: Callable[[str, int], Placement] | None = None,
    ) -> None:
        self._topics = topics
        self._purgatory = purgatory
        self._transactions = transactions
        self._throttle = throttle
        self._placement = placement

    def handlers(self) -> dict[ApiKey, Callable[[RequestContext, Any], Message | None]]:
        """The APIs of this component."""
        return {ApiKey.PRODUCE: self.produce}

    def produce(self, context: RequestContext, request: Any) -> Message | None:
        """Append, then respond."""
        throttle_ms = 0 if self._throttle is None else self._throttle(context, context.request_bytes)
        responses, failed, appended = [], False, []
        asked, is_transactional = _asked(request, with_ids=context.version >= _IDS_VERSION)
        refusal, transactional_id = _NONE, request.transactional_id
        if is_transactional and (
            transactional_id is None or not context.authorized("WRITE", "TRANSACTIONAL_ID", transactional_id)
        ):
            refusal = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        is_valid = request.acks in _ACKS
        Response = messages.Produce.Response
        for topic, partitions in asked:
            name, code = topic.name, refusal
            if context.version >= _IDS_VERSION:
                found = self._topics.name_of(topic.topic_id)
                name = found or ""
                if found is None and code is _NONE:
                    code = ErrorCode.UNKNOWN_TOPIC_ID
            if code is _NONE and not context.authorized("WRITE", "TOPIC", name):
                code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            if code is _NONE and name in INTERNAL_TOPICS:
                code = ErrorCode.INVALID_TOPIC_EXCEPTION
            if code is _NONE and not is_valid:
                is_known = self._topics.partitions(name) is not None
                code = ErrorCode.INVALID_REQUIRED_ACKS if is_known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            done = []
            for partition, header in partitions.values():
                if code is _NONE:
                    result = self._append(context, request, name, partition, header)
                else:
                    result = _failed(partition, code)
                if result.error_code:
                    failed = True
                else:
                    appended.append((name, partition.index))
                done.append(result)
            responses.append(Response.Topic(name=topic.name, topic_id=topic.topic_id, partition_responses=done))
        response = Response(responses=responses, throttle_time_ms=throttle_ms)
        if request.acks == 0:
            if failed:
                codes = [each.error_code for topic in responses for each in topic.partition_responses]
                context.metrics.count_errors(filter(None, codes))
                context.close()
            else:
                context.no_response(throttle_ms=throttle_ms)
        else:
            context.respond(response, throttle_ms=throttle_ms)
        for key in appended:
            self._purgatory.check(key)
        return None

    def _append(
        self, context: RequestContext, request: Any, topic: str, partition: Any, header: UncheckedHeader | None
    ) -> Any:
        records, index = partition.records, partition.index
        log = find_log(self._topics, topic, index)
        if isinstance(log, ErrorCode):
            return _failed(partition, log)
        if header is None:
            return _failed(partition, ErrorCode.INVALID_RECORD, "one record batch expected")
        if header.codec == _ZSTD and context.version < _ZSTD_VERSION:
            return _failed(partition, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Produce 7 or newer")
        if self._placement is not None and request.acks == -1:
            place, wanted = self._placement(topic, index), int(log.config["min.insync.replicas"])
            if len(place.in_sync) < min(wanted, len(place.replicas)):
                return _failed(partition, ErrorCode.NOT_ENOUGH_REPLICAS)
        try:
            if header.is_transactional:
                with self._transactions.hold(request.transactional_id):
                    code = self._check_transaction(context, request, topic, index, header)
                    if code is not _NONE:
                        return _failed(partition, code)
                    if header.base_sequence > 0 and context.version >= _TXN_V2_VERSION:
                        _check_first_sequence(log, header)
                    info = log.append_batches(records)
            else:
                info = log.append_batches(records)
        except (KlogError, OSError) as error:
            code = code_of(error)
            if code is ErrorCode.UNKNOWN_SERVER_ERROR:
                _log.exception("event=append_failed topic=%s partition=%d", topic, index)
            return _failed(partition, code, str(error), getattr(error, "record_errors", ()))
        return messages.Produce.Response.Partition(
            index=index,
            error_code=0,
            base_offset=info.first_offset,
            log_append_time_ms=-1 if info.log_append_time is None else info.log_append_time,
            log_start_offset=log.log_start_offset,
        )

    def _check_transaction(
        self, context: RequestContext, request: Any, topic: str, partition: int, header: UncheckedHeader
    ) -> ErrorCode:
        """May a transactional batch be appended? Kafka: KIP-890."""
        code = self._transactions.check(
            request.transactional_id,
            header.producer_id,
            header.producer_epoch,
            topic,
            partition,
            adds=context.version >= _TXN_V2_VERSION,
        )
        if code is _NONE:
            return code
        from klog.coordinator.transactions import as_produce_error

        return as_produce_error(code, context.version)


def _check_first_sequence(log: Log, header: UncheckedHeader) -> None:
    """In a transaction of version 2 the sequence numbers begin at 0: other batches were lost before this one, and the
    producer sends it again after them. Raises OutOfOrderSequence. Kafka: ProducerAppendInfo.checkSequence."""
    if not log.has_producer(header.producer_id):
        raise OutOfOrderSequence(
            f"{log.name}: producer {header.producer_id} is new and begins at sequence number {header.base_sequence}: "
            "0 expected"
        )


def _asked(request: Any, *, with_ids: bool) -> tuple[Iterable[tuple[Any, dict[int, Any]]], bool]:
    """([(topic, {partition: (the entry for it, its header or None)})], is any batch transactional?)."""
    found: dict[Any, tuple[Any, dict[int, Any]]] = {}
    is_transactional = False
    for topic in request.topic_data:
        _, partitions = found.setdefault(topic.topic_id.int if with_ids else topic.name, (topic, {}))
        for each in topic.partition_data:
            header = None if each.records is None else unchecked_header(each.records)
            partitions[each.index] = each, header
            if header is not None and header.is_transactional:
                is_transactional = True
    return found.values(), is_transactional


def _failed(partition: Any, code: ErrorCode, message: str | None = None, errors: Any = ()) -> Any:
    Response = messages.Produce.Response
    return Response.Partition(
        index=partition.index,
        error_code=code,
        base_offset=-1,
        log_append_time_ms=-1,
        log_start_offset=-1,
        record_errors=[
            Response.RecordError(batch_index=each.batch_index, batch_index_error_message=each.message)
            for each in errors
        ],
        error_message=message,
    )
