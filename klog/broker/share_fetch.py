"""ShareFetch, ShareAcknowledge: members of share groups acquire records and acknowledge them (KIP-932).

What a member acknowledges counts before its request waits for records. A fetch that finds nothing to acquire waits in
the purgatory for its partitions to change, or for records that another member gives back. Kafka: KafkaApis,
SharePartitionManager, DelayedShareFetch.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from klog.broker.fetch_sessions import FINAL_EPOCH, INITIAL_EPOCH
from klog.broker.partitions import code_of, find_log
from klog.broker.share_sessions import SessionKey, ShareSession, ShareSessions
from klog.coordinator.groups.refusal import Refused
from klog.coordinator.share.share_partition import RENEW, Acknowledgement
from klog.coordinator.share.state_log import ShareKey
from klog.errors import KlogError
from klog.logger import logger_of
from klog.protocol import ApiKey, ErrorCode, messages
from klog.values import NamedTuple

if TYPE_CHECKING:
    import uuid
    from collections.abc import Callable, Sequence

    from klog.broker.context import RequestContext
    from klog.broker.purgatory import Purgatory
    from klog.coordinator.share import ShareKind
    from klog.log import Log
    from klog.protocol import Message
    from klog.scheduler import Scheduler
    from klog.security import Topics

    TopicIdPartition = tuple[uuid.UUID, int]

_log = logger_of("broker")
_NONE = ErrorCode.NONE
_MEMBER_ID_MAX = 36
_RENEWING_VERSION = 2
_RECORD_LIMIT = 1


class Share(NamedTuple):
    """A partition that a member may read: of its group, its topic, and its log."""

    key: ShareKey
    topic: str
    log: Log


class ShareFetch:
    """Any thread. throttle: (context, bytes) -> ms that the client waits after them. quota_bytes: the most that a
    client's quota lets into one response: after more, its acknowledgements would come when its locks have timed out."""

    def __init__(
        self,
        topics: Topics,
        purgatory: Purgatory,
        scheduler: Scheduler,
        kind: ShareKind,
        *,
        max_bytes: int,
        throttle: Callable[[RequestContext, int], int] | None = None,
        quota_bytes: Callable[[RequestContext], int | None] | None = None,
    ) -> None:
        self._topics = topics
        self._purgatory = purgatory
        self._kind = kind
        self._max_bytes = max_bytes
        self._throttle = throttle
        self._quota_bytes = quota_bytes
        self.sessions = ShareSessions(kind.config.max_share_sessions, scheduler, self._release)
        kind.on_left(lambda group_id, member_id: self.sessions.close(SessionKey(group_id, member_id)))

    def handlers(self) -> dict[ApiKey, Callable[[RequestContext, Any], Message | None]]:
        """The APIs of this component."""
        return {ApiKey.SHARE_FETCH: self.fetch, ApiKey.SHARE_ACKNOWLEDGE: self.acknowledge}

    def metrics(self) -> dict[str, float]:
        """The sessions, under Kafka's names."""
        return self.sessions.metrics()

    def session_partitions(self, group_id: str, member_id: str) -> list[tuple[str, int]]:
        """(topic, partition) of all that the session of a member has; empty without one."""
        found = self.sessions.partitions(SessionKey(group_id, member_id))
        return [(self._topics.name_of(topic_id) or "", number) for topic_id, number in found]

    # ---- ShareFetch ------------------------------------------------------------------------------------------------

    def fetch(self, context: RequestContext, request: Any) -> Message | None:
        """Acknowledge, then respond with records now or wait for some."""
        try:
            key = _checked(context, request)
            renews = _check_renewal(context, request)
            asked = [(topic.topic_id, each.partition_index) for topic in request.topics for each in topic.partitions]
            session = self._session(context, request, key, asked)
        except Refused as refused:
            return messages.ShareFetch.Response(error_code=refused.code, error_message=str(refused))
        outcomes = self._acknowledge(context, key, request, renews)
        attempt = _Attempt(self, context, request, session, outcomes)
        if request.share_session_epoch == FINAL_EPOCH:
            self._end(session)
        idle = (
            request.share_session_epoch == FINAL_EPOCH
            or renews
            or not session.partitions
            or min(request.max_records, request.max_bytes) <= 0
        )
        if not attempt.try_complete(expired=idle or request.max_wait_ms <= 0):
            self._purgatory.watch(attempt, attempt.keys(), request.max_wait_ms)
        return None

    def _session(
        self, context: RequestContext, request: Any, key: SessionKey, asked: list[TopicIdPartition]
    ) -> ShareSession:
        epoch = request.share_session_epoch
        if epoch == FINAL_EPOCH:
            return self.sessions.find(key)
        if epoch == INITIAL_EPOCH:
            if any(each.acknowledgement_batches for topic in request.topics for each in topic.partitions):
                raise Refused(ErrorCode.INVALID_REQUEST, "Acknowledgements in the first request of a share session.")
            return self.sessions.open(key, context.connection, asked)
        forgotten = [(topic.topic_id, each) for topic in request.forgotten_topics_data for each in topic.partitions]
        return self.sessions.next(key, epoch, asked, forgotten)

    def share_of(self, context: RequestContext, group_id: str, pair: TopicIdPartition) -> Share:
        """A partition that a member asks for. Raises Refused."""
        topic_id, number = pair
        topic = self._topics.name_of(topic_id)
        if topic is None:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_ID.name)
        if not context.authorized("READ", "TOPIC", topic):
            raise Refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.TOPIC_AUTHORIZATION_FAILED.name)
        if context.refusal is not None and (refused := context.refusal(topic, number)):
            raise Refused(refused, refused.name)
        log = find_log(self._topics, topic, number)
        if isinstance(log, ErrorCode):
            raise Refused(log, log.name)
        return Share(ShareKey(group_id, topic_id, number), topic, log)

    def read(
        self, context: RequestContext, member_id: str, request: Any, shares: Sequence[Share], *, wait: bool
    ) -> tuple[dict[ShareKey, Any], int] | None:
        """The parts of a response by partition, and the bytes of their records. None: it is not enough, and the request
        can wait."""
        partitions = self._kind.partitions
        max_bytes = min(request.max_bytes, self._max_bytes)
        allowed = None if self._quota_bytes is None else self._quota_bytes(context)
        if allowed is not None:
            max_bytes = min(max_bytes, allowed)
        left, records, total, found = max_bytes, request.max_records, 0, {}
        with partitions.lock:
            wanted = min(request.min_bytes, max_bytes)  # more would never come
            if wait and wanted > 1:
                sizes = [_guarded(share, partitions.size) for share in shares]
                if sum(each if isinstance(each, int) else wanted for each in sizes) < wanted:
                    return None
            exact = request.share_acquire_mode == _RECORD_LIMIT
            for share in shares:
                if records <= 0 or (total and left <= 0):
                    break
                limits = max(left, 0), records, request.batch_size
                got = _guarded(share, partitions.acquire, *limits, member=member_id, exact=exact, min_one=total == 0)
                result = _part(share.key, got)
                if result is None:
                    continue
                found[share.key] = result
                size = getattr(result.records, "size", 0)
                left, total = left - size, total + size
                records -= sum(each.last_offset - each.first_offset + 1 for each in result.acquired_records)
        return None if wait and not found else (found, total)

    # ---- acknowledgements ------------------------------------------------------------------------------------------

    def acknowledge(self, context: RequestContext, request: Any) -> Message:
        """Acknowledge records."""
        Response = messages.ShareAcknowledge.Response
        try:
            key = _checked(context, request)
            epoch = request.share_session_epoch
            if epoch == INITIAL_EPOCH:
                raise Refused(ErrorCode.INVALID_SHARE_SESSION_EPOCH, "An acknowledgement opens no share session.")
            session = self.sessions.find(key) if epoch == FINAL_EPOCH else self.sessions.next(key, epoch)
        except Refused as refused:
            return Response(error_code=refused.code, error_message=str(refused))
        renews = context.version >= _RENEWING_VERSION and request.is_renew_ack
        outcomes = self._acknowledge(context, key, request, renews)
        if epoch == FINAL_EPOCH:
            self._end(session)
        topics: dict[uuid.UUID, Any] = {}
        for (topic_id, number), refusal in outcomes.items():
            topic = topics.setdefault(topic_id, Response.Topic(topic_id=topic_id, partitions=[]))
            part = Response.Partition(partition_index=number)
            if refusal is not None:
                part.error_code, part.error_message = refusal.code, str(refusal)
                part.current_leader = Response.Leader(leader_id=-1, leader_epoch=-1)
            topic.partitions.append(part)
        lock_ms = self._kind.config_of(key.group_id).record_lock_duration_ms
        return Response(acquisition_lock_timeout_ms=lock_ms, responses=list(topics.values()))

    def _acknowledge(
        self, context: RequestContext, key: SessionKey, request: Any, renews: bool
    ) -> dict[TopicIdPartition, Refused | None]:
        """Apply a member's acknowledgements. Returns, by partition, why they are refused, or None."""
        found: dict[TopicIdPartition, Refused | None] = {}
        partitions = self._kind.partitions
        for topic in request.topics:
            for each in topic.partitions:
                if not each.acknowledgement_batches:
                    continue
                pair = topic.topic_id, each.partition_index
                acknowledged = [
                    Acknowledgement(batch.first_offset, batch.last_offset, batch.acknowledge_types)
                    for batch in each.acknowledgement_batches
                ]
                try:
                    if not renews and any(RENEW in batch.types for batch in acknowledged):
                        raise Refused(ErrorCode.INVALID_REQUEST, "A renewal in a request that announces none.")
                    share = self.share_of(context, key.group_id, pair)
                    with partitions.lock:
                        partitions.acknowledge(share.key, key.member_id, acknowledged)
                except Refused as refused:
                    found[pair] = refused
                    continue
                found[pair] = None
                self._purgatory.check(share.key)
        return found

    def _end(self, session: ShareSession) -> None:
        self.sessions.close(session.key)
        self._release(session)

    def _release(self, session: ShareSession) -> None:
        """A session has ended: the records that its member has acquired are available again."""
        group_id, member_id = session.key
        keys = frozenset(ShareKey(group_id, *pair) for pair in list(session.partitions))
        self._kind.partitions.release(group_id, member_id, keys)

    # ---- responses -------------------------------------------------------------------------------------------------

    def respond(
        self,
        context: RequestContext,
        group_id: str,
        outcomes: dict[TopicIdPartition, Refused | None],
        parts: dict[ShareKey, Any],
        size: int,
    ) -> None:
        """Send the response: partitions with records or an error, and those that were acknowledged."""
        Response = messages.ShareFetch.Response
        for (topic_id, number), refusal in outcomes.items():
            part = parts.setdefault(ShareKey(group_id, topic_id, number), Response.Partition(partition_index=number))
            if refusal is not None:
                part.acknowledge_error_code, part.acknowledge_error_message = refusal.code, str(refusal)
        topics: dict[uuid.UUID, Any] = {}
        for key, part in parts.items():
            topics.setdefault(key.topic_id, Response.Topic(topic_id=key.topic_id, partitions=[])).partitions.append(
                part
            )
        lock_ms = self._kind.config_of(group_id).record_lock_duration_ms
        response = Response(acquisition_lock_timeout_ms=lock_ms, responses=list(topics.values()))
        throttle_ms = 0 if self._throttle is None else self._throttle(context, size)
        context.respond(response, throttle_ms=throttle_ms)


class _Attempt:
    """One ShareFetch until its response is sent."""

    __slots__ = ("_context", "_done", "_fetch", "_lock", "_outcomes", "_pairs", "_request", "_session")

    def __init__(
        self,
        fetch: ShareFetch,
        context: RequestContext,
        request: Any,
        session: ShareSession,
        outcomes: dict[TopicIdPartition, Refused | None],
    ) -> None:
        self._fetch = fetch
        self._context = context
        self._request = request
        self._session = session
        self._outcomes = outcomes
        pairs = list(session.partitions)
        first = request.share_session_epoch % len(pairs) if pairs else 0
        self._pairs = [*pairs[first:], *pairs[:first]]  # each partition comes first at times
        self._lock = threading.Lock()
        self._done = False

    def keys(self) -> set[Any]:
        """The keys whose changes may complete it."""
        group_id = self._session.key.group_id
        keys: set[Any] = {ShareKey(group_id, *pair) for pair in self._pairs}
        for pair in self._pairs:
            try:
                share = self._fetch.share_of(self._context, group_id, pair)
            except Refused:
                continue
            keys.add((share.topic, pair[1]))
        return keys

    def on_disconnect(self, callback: Callable[[], object]) -> None:
        """Call callback() if the client closes its connection before the response."""
        self._context.network.on_disconnect(callback)

    def try_complete(self, *, expired: bool) -> bool:
        """Acquire, and respond if there is anything, or if the time is up; not to a connection that is closed."""
        with self._lock:
            if self._done or self._context.connection.closed:
                return True
            group_id, member_id = self._session.key
            parts: dict[ShareKey, Any] = {}
            size = 0
            if self._fetch.sessions.is_current(self._session):
                shares = []
                for pair in self._pairs:
                    try:
                        shares.append(self._fetch.share_of(self._context, group_id, pair))
                    except Refused as refused:
                        key = ShareKey(group_id, *pair)
                        parts[key] = _part(key, refused)
                wait = not expired and not parts
                found = self._fetch.read(self._context, member_id, self._request, shares, wait=wait)
                if found is None:
                    return False
                parts, size = parts | found[0], found[1]
            self._done = True
        self._fetch.respond(self._context, group_id, self._outcomes, parts, size)
        return True


def _part(key: ShareKey, got: Any) -> Any:
    """The part of a response for what was found of a partition; None if there is nothing to say."""
    Response = messages.ShareFetch.Response
    Partition = Response.Partition
    if isinstance(got, Refused):
        leader = Response.Leader(leader_id=-1, leader_epoch=-1)  # the client asks for the metadata
        return Partition(
            partition_index=key.partition, error_code=got.code, error_message=str(got), current_leader=leader
        )
    if got.data is None:
        return None
    AcquiredRecords = Response.AcquiredRecords
    return Partition(
        partition_index=key.partition,
        records=got.data,
        acquired_records=[
            AcquiredRecords(first_offset=each.first, last_offset=each.last, delivery_count=each.deliveries)
            for each in got.acquired
        ],
    )


def _guarded(share: Share, call: Callable[..., Any], *arguments: Any, **more: Any) -> Any:
    """What a call about a partition returns, or the Refused for its exception."""
    try:
        return call(share.key, share.log, *arguments, **more)
    except Refused as refused:
        return refused
    except (KlogError, OSError) as error:
        code = code_of(error)
        if code is ErrorCode.UNKNOWN_SERVER_ERROR:
            _log.exception("event=share_fetch_failed partition=%s", share.key)
        return Refused(code, code.name)


def _checked(context: RequestContext, request: Any) -> SessionKey:
    """Group and member of a request. Raises Refused."""
    if request.group_id is None:
        raise Refused(ErrorCode.INVALID_REQUEST, "Invalid group id in the request.")
    if not context.authorized("READ", "GROUP", request.group_id):
        raise Refused(ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.GROUP_AUTHORIZATION_FAILED.name)
    if not request.member_id or len(request.member_id) > _MEMBER_ID_MAX:
        raise Refused(ErrorCode.INVALID_REQUEST, "Invalid member id in the request.")
    return SessionKey(request.group_id, request.member_id)


def _check_renewal(context: RequestContext, request: Any) -> bool:
    """Does a fetch renew acquisitions? Then it gets no records. Raises Refused."""
    if context.version < _RENEWING_VERSION or not request.is_renew_ack:
        return False
    for name in ("max_bytes", "min_bytes", "max_records", "max_wait_ms"):
        if getattr(request, name) != 0:
            raise Refused(ErrorCode.INVALID_REQUEST, f"{name} must be zero in a request that renews acquisitions.")
    return True
