"""Fetch: batches for consumers, as slices of files. Kafka: KafkaApis.handleFetchRequest, ReplicaManager.fetchMessages,
DelayedFetch.

A fetch with fewer than min_bytes waits in the purgatory for its partitions to change. Each try reads its partitions
again, of a session those that have changed: a read is one native call, which finds a slice of a file and copies
nothing.

Requests of replicas are refused: a copy of a partition would count as one of its in-sync replicas, and this broker
keeps none.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final

from klog.broker.fetch_sessions import FetchedPartition, FetchSessions, is_final, is_incremental
from klog.broker.partitions import NO_ID, code_of, end_of_epoch, find_log
from klog.errors import KlogError
from klog.logger import logger_of
from klog.protocol import ApiKey, ErrorCode, messages
from klog.security.refusals import cluster_authorized

if TYPE_CHECKING:
    from collections.abc import Callable

    from klog.broker.context import RequestContext
    from klog.broker.fetch_sessions import FetchSession
    from klog.broker.purgatory import Purgatory
    from klog.clock import Clock
    from klog.log import Log
    from klog.log.read.isolation import Isolation
    from klog.protocol import Message
    from klog.security import Topics

_log = logger_of("broker")
_IDS_VERSION = 13
_SESSIONS_VERSION = 7
_ZSTD_VERSION = 10
_STORAGE_ERROR_VERSION = 6
_NONE = ErrorCode.NONE
_NO_OFFSET: Final = -1


class Fetch:
    """Any thread. throttle: (context, bytes) -> ms that the client waits before it gets them. quota_bytes: the most
    that a client's quota lets into one response."""

    def __init__(
        self,
        topics: Topics,
        purgatory: Purgatory,
        clock: Clock,
        *,
        max_bytes: int,
        session_slots: int,
        throttle: Callable[[RequestContext, int], int] | None = None,
        quota_bytes: Callable[[RequestContext], int | None] | None = None,
    ) -> None:
        self._topics = topics
        self._purgatory = purgatory
        self.max_bytes = max_bytes
        self._quota_bytes = quota_bytes
        self._throttle = throttle
        self._sessions = FetchSessions(session_slots, clock, purgatory)

    def handlers(self) -> dict[ApiKey, Callable[[RequestContext, Any], Message | None]]:
        """The APIs of this component."""
        return {ApiKey.FETCH: self.fetch}

    def metrics(self) -> dict[str, float]:
        """The sessions, under Kafka's names."""
        return self._sessions.metrics()

    def session_partitions(self, session_id: int) -> list[tuple[str, int]]:
        """(topic, partition) of all that a session has; empty for an unknown one."""
        return self._sessions.partitions(session_id)

    def fetch(self, context: RequestContext, request: Any) -> Message | None:
        """Respond now, or wait for the partitions."""
        replica_id = request.replica_state.replica_id if context.version >= 15 else request.replica_id
        if replica_id >= 0:
            is_broker = cluster_authorized(context.authorized, "CLUSTER_ACTION")
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER if is_broker else ErrorCode.TOPIC_AUTHORIZATION_FAILED
            return _all_failed(request, code)
        asked = self._asked(context, request)
        session: FetchSession | None = None
        incremental = False
        if context.version >= _SESSIONS_VERSION:
            uses_ids = context.version >= _IDS_VERSION
            if is_incremental(request.session_epoch):
                found = self._sessions.next(request.session_id, request.session_epoch, uses_ids)
                if isinstance(found, ErrorCode):
                    return messages.Fetch.Response(error_code=found)
                session, incremental = found, True
                session.change(asked, self._forgotten(request))
                if not len(session):
                    self._sessions.close(session.number)
                    session, asked, incremental = None, [], False
            else:
                if request.session_id:
                    self._sessions.close(request.session_id)
                if not is_final(request.session_epoch):
                    session = self._sessions.create(uses_ids, asked)
        attempt = _Attempt(self, context, request, asked, session, incremental)
        at_once = request.max_wait_ms <= 0 or not (incremental or asked)
        # What has changed in a session is read first: only a fetch that finds nothing there checks all of it (S2).
        if (incremental or not at_once) and attempt.try_complete(expired=False):
            return None
        if at_once:
            attempt.try_complete(expired=True)
        else:
            keys = {(each.topic, each.partition) for each in asked} if session is None else (session,)
            self._purgatory.watch(attempt, keys, request.max_wait_ms)
        return None

    def _asked(self, context: RequestContext, request: Any) -> list[FetchedPartition]:
        """The partitions of a request, each once; of one that it repeats the last entry counts, as in Kafka."""
        asked = {}
        with_ids = context.version >= _IDS_VERSION
        for topic in request.topics:
            name = (self._topics.name_of(topic.topic_id) or "") if with_ids else topic.topic
            topic_id = topic.topic_id if with_ids else NO_ID
            for each in topic.partitions:
                made = FetchedPartition(name, topic_id, each)
                asked[made.key] = made
        return list(asked.values())

    def _forgotten(self, request: Any) -> list[tuple[int | str, int]]:
        return [
            (topic.topic_id.int or topic.topic, partition)
            for topic in request.forgotten_topics_data
            for partition in topic.partitions
        ]

    def read(
        self, context: RequestContext, asked: FetchedPartition, isolation: Isolation, max_bytes: int, min_one: bool
    ) -> Any:
        """One partition of a response."""
        topic, has_id = asked.topic, context.version >= _IDS_VERSION
        if has_id and not topic:
            topic = asked.topic = self._topics.name_of(asked.topic_id) or ""
            if not topic:
                return _failed(asked, ErrorCode.UNKNOWN_TOPIC_ID)
        if not context.authorized("READ", "TOPIC", topic):
            return _failed(asked, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        if context.refusal is not None and (refused := context.refusal(topic, asked.partition)):
            return _failed(asked, refused)
        log = find_log(self._topics, topic, asked.partition, asked.current_leader_epoch)
        if isinstance(log, ErrorCode):
            is_gone = has_id and self._topics.name_of(asked.topic_id) != topic
            return _failed(asked, ErrorCode.UNKNOWN_TOPIC_ID if is_gone else _known(log, context.version))
        if log is not asked.log:
            # The name may be that of an earlier request, and the topic deleted since, with another one of that name.
            is_new = asked.log is None and asked.session is None
            if not is_new and has_id and self._topics.name_of(asked.topic_id) != topic:
                return _failed(asked, ErrorCode.UNKNOWN_TOPIC_ID)
            asked.log = log
        if context.version < _ZSTD_VERSION and log.config["compression.type"] == "zstd":
            return _failed(asked, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        try:
            if asked.last_fetched_epoch >= 0:
                diverging = _diverging(log, asked)
                if diverging is not None:
                    return diverging
            # The engine returns a first batch of more than max_bytes whole; the protocol has no partial batches.
            data = log.fetch(asked.fetch_offset, max(0, max_bytes), isolation=isolation, min_one_message=min_one)
        except (KlogError, OSError) as error:
            code = code_of(error)
            if code is ErrorCode.UNKNOWN_SERVER_ERROR:
                _log.exception("event=fetch_failed topic=%s partition=%d", topic, asked.partition)
            return _failed(asked, _known(code, context.version), log)
        committed = isolation == "read_committed"
        Response = messages.Fetch.Response
        return Response.Partition(
            partition_index=asked.partition,
            high_watermark=data.high_watermark,
            last_stable_offset=data.last_stable_offset if committed else log.last_stable_offset,
            log_start_offset=data.log_start_offset,
            aborted_transactions=[
                Response.AbortedTransaction(producer_id=each.producer_id, first_offset=each.first_offset)
                for each in sorted(data.aborted_transactions, key=lambda each: each.first_offset)
            ]
            if committed
            else None,
            records=data if data.size else b"",
        )

    def read_all(
        self, context: RequestContext, request: Any, asked: list[FetchedPartition]
    ) -> tuple[list[Any], int, bool]:
        """(results in the order of `asked`, bytes of records, whether any has an error or a diverging epoch)."""
        isolation = _isolation(request)
        left = min(request.max_bytes, self.max_bytes)
        allowed = None if self._quota_bytes is None else self._quota_bytes(context)
        if allowed is not None:
            left = min(left, allowed)
        results, total, urgent = [], 0, False
        for each in asked:
            result = self.read(context, each, isolation, min(each.partition_max_bytes, left), total == 0)
            size = _size(result)
            left = max(0, left - size)
            total += size
            urgent = urgent or result.error_code != 0 or result.diverging_epoch.end_offset >= 0
            results.append(result)
        return results, total, urgent

    def has(self, request: Any, pairs: list[tuple[FetchedPartition, Any]], min_bytes: int) -> bool:
        """Can consumers have this many bytes of partitions, of which these results have fewer? A result ends before the
        batch that does not fit, and with its segment: an older segment is enough. Kafka: DelayedFetch.tryComplete."""
        isolation, available = _isolation(request), 0
        for asked, result in pairs:
            log, data = asked.log, result.records
            bound = result.last_stable_offset if isolation == "read_committed" else result.high_watermark
            if log is None or asked.fetch_offset >= bound:
                continue
            position_of = log.maybe_convert_to_offset_metadata
            try:
                size = (data.position if data else position_of(asked.fetch_offset)).bytes_until(position_of(bound))
            except (KlogError, OSError):
                return True  # the next read has the error
            if size is None:
                return True
            available += min(size, asked.partition_max_bytes)
        return available >= min_bytes

    def knows(self, topic: str) -> bool:
        """Is there a topic of this name?"""
        return self._topics.partitions(topic) is not None

    def forget(self, session: FetchSession) -> None:
        """Close a session whose id was not sent to its client."""
        self._sessions.close(session.number)

    def throttle(self, context: RequestContext, size: int) -> int:
        """How long the client has to wait after a response of this many bytes, in ms."""
        return 0 if self._throttle is None else self._throttle(context, size)


class _Attempt:
    """One request until it is answered."""

    __slots__ = ("_asked", "_context", "_done", "_fetch", "_incremental", "_lock", "_min_bytes", "_request", "_session")

    def __init__(
        self,
        fetch: Fetch,
        context: RequestContext,
        request: Any,
        asked: list[FetchedPartition],
        session: FetchSession | None,
        incremental: bool,
    ) -> None:
        self._lock = threading.Lock()
        self._done = False
        self._fetch = fetch
        self._context = context
        self._request = request
        self._asked = asked
        self._session = session
        self._incremental = incremental
        self._min_bytes = min(request.min_bytes, request.max_bytes, fetch.max_bytes)  # more would never come

    def on_disconnect(self, callback: Callable[[], object]) -> None:
        """Call callback() if the client closes its connection before the response."""
        self._context.network.on_disconnect(callback)

    def try_complete(self, *, expired: bool) -> bool:
        """Read, and respond if there is enough, or if the time is up; not to a connection that is closed."""
        with self._lock:
            if self._done or self._context.connection.closed:
                return True
            asked = self._to_read(everything=expired)
            results, total, urgent = self._fetch.read_all(self._context, self._request, asked)
            pairs = list(zip(asked, results, strict=True))
            enough = expired or urgent or total >= self._min_bytes
            if not (enough or (total and self._fetch.has(self._request, pairs, self._min_bytes))):
                if self._session is not None:
                    self._session.not_sent(pairs)
                return False
            self._done = True
        self._respond(pairs, total)
        return True

    def _to_read(self, *, everything: bool) -> list[FetchedPartition]:
        session = self._session
        if session is None:
            return self._asked
        context = self._context
        refuses = context.refusal is not None
        changed = session.take(
            lambda topic: not refuses and context.authorized("READ", "TOPIC", topic) and self._fetch.knows(topic),
            everything=everything or refuses or not self._incremental,
        )
        return changed if self._incremental else self._asked

    def _respond(self, pairs: list[tuple[FetchedPartition, Any]], total: int) -> None:
        throttle_ms = self._fetch.throttle(self._context, total)
        session = self._session
        if throttle_ms:
            if session is not None:
                session.not_sent(pairs)
            self._respond_nothing(throttle_ms)
            return
        if session is not None:
            pairs = session.send(pairs, all_of_them=not self._incremental)
        topics: dict[Any, Any] = {}
        Response = messages.Fetch.Response
        for asked, result in pairs:
            key = asked.key[0]
            topic = topics.get(key)
            if topic is None:
                topic = topics[key] = Response.Topic(topic=asked.topic, topic_id=asked.topic_id, partitions=[])
            topic.partitions.append(result)
        number = 0 if session is None else session.number
        self._context.respond(Response(session_id=number, responses=list(topics.values())))

    def _respond_nothing(self, throttle_ms: int) -> None:
        """The client has to wait before it gets the records."""
        session = self._session
        if session is not None and not self._incremental:
            self._fetch.forget(session)
            session = None
        number = 0 if session is None else session.number
        self._context.respond(
            messages.Fetch.Response(throttle_time_ms=throttle_ms, session_id=number), throttle_ms=throttle_ms
        )


def _isolation(request: Any) -> Isolation:
    return "read_committed" if request.isolation_level == 1 else "high_watermark"


def _known(code: ErrorCode, version: int) -> ErrorCode:
    """The code for a client of this version: an older one would not retry a storage error."""
    is_known = code is not ErrorCode.KAFKA_STORAGE_ERROR or version >= _STORAGE_ERROR_VERSION
    return code if is_known else ErrorCode.NOT_LEADER_OR_FOLLOWER


def _size(result: Any) -> int:
    records = result.records
    return 0 if not records else records.size


def _diverging(log: Log, asked: FetchedPartition) -> Any:
    """The response to a consumer whose last batch is not in this log any more; None if it is. Below the log start, and
    with an epoch that the log does not know, it is out of range."""
    epoch, end = end_of_epoch(log, asked.last_fetched_epoch)
    if end == _NO_OFFSET or asked.fetch_offset < log.log_start_offset:
        return _failed(asked, ErrorCode.OFFSET_OUT_OF_RANGE, log)
    if epoch == asked.last_fetched_epoch and end >= asked.fetch_offset:
        return None
    Response = messages.Fetch.Response
    return Response.Partition(
        partition_index=asked.partition,
        high_watermark=log.high_watermark,
        last_stable_offset=log.last_stable_offset,
        log_start_offset=log.log_start_offset,
        diverging_epoch=Response.EpochEndOffset(epoch=epoch, end_offset=end),
        aborted_transactions=None,
        records=b"",
    )


def _failed(asked: FetchedPartition, code: ErrorCode, log: Log | None = None) -> Any:
    found = messages.Fetch.Response.Partition(
        partition_index=asked.partition, error_code=code, high_watermark=-1, aborted_transactions=None, records=b""
    )
    if log is not None and code is ErrorCode.OFFSET_OUT_OF_RANGE:
        found.log_start_offset = log.log_start_offset
    return found


def _all_failed(request: Any, code: ErrorCode) -> Message:
    """The same error for all partitions."""
    Response = messages.Fetch.Response
    topics = []
    for topic in request.topics:
        partitions = [
            Response.Partition(
                partition_index=each.partition,
                error_code=code,
                high_watermark=-1,
                aborted_transactions=None,
                records=b"",
            )
            for each in topic.partitions
        ]
        topics.append(Response.Topic(topic=topic.topic, topic_id=topic.topic_id, partitions=partitions))
    return Response(responses=topics)
