"""OffsetCommit, TxnOffsetCommit and OffsetDelete: what changes the offsets of a group.

A partition of a request gets its own error, or that of the group. Those that pass are appended in one batch, and are
stored when the append returns. Any thread. Kafka: KafkaApis.handleOffsetCommitRequest, OffsetMetadataManager.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from klog.coordinator.groups.classic_group import PREPARING, STABLE, ClassicGroup
from klog.coordinator.groups.offset_records import NO_ID, Committed, offset_key, offset_value
from klog.coordinator.groups.table import AppendFailed, GroupTable
from klog.errors import KlogError
from klog.internal_topics.names import CONSUMER_OFFSETS
from klog.protocol import ApiKey, ErrorCode, messages

if TYPE_CHECKING:
    import uuid

    from klog.coordinator.groups.group import Group, Handler
    from klog.coordinator.groups.rebalances import Rebalances
    from klog.protocol.messages import OffsetCommit, OffsetDelete, TxnOffsetCommit
    from klog.security.context import Context

_NONE = ErrorCode.NONE
_LATEST = 2**63 - 1  # of times in records
_TOPIC_ID_VERSION = 10
_NO_GROUP_VERSION = 9  # from this version of OffsetCommit on GROUP_ID_NOT_FOUND is an error that clients know
# Of TxnOffsetCommit:
_LOADING_VERSION = 2
_ABORTABLE_VERSION = 4
_TXN_V2_VERSION = 5


class TransactionCheck(Protocol):
    """What TxnOffsetCommit asks the transaction coordinator before it appends."""

    def check(
        self, transactional_id: str, producer_id: int, producer_epoch: int, topic: str, partition: int, *, adds: bool
    ) -> ErrorCode:
        """Is the partition in the producer's transaction? adds: add it if not (KIP-890, transactions v2)."""


class _Accepted:
    """A partition that passed its own checks: its part of the response, and what to store."""

    __slots__ = ("committed", "partition", "response", "topic")

    def __init__(self, response: Any, topic: str, partition: int, committed: Committed) -> None:
        self.response = response
        self.topic = topic
        self.partition = partition
        self.committed = committed


class OffsetCommits:
    """The commits to all groups of a table. transactions: None accepts every transaction."""

    def __init__(self, table: GroupTable, rebalances: Rebalances, transactions: TransactionCheck | None) -> None:
        self._table = table
        self._topics = table.topics
        self._rebalances = rebalances
        self._transactions = transactions

    def handlers(self) -> dict[ApiKey, Handler]:
        return {
            ApiKey.OFFSET_COMMIT: self.commit,
            ApiKey.TXN_OFFSET_COMMIT: self.commit_in_transaction,
            ApiKey.OFFSET_DELETE: self.delete,
        }

    # ---- OffsetCommit ------------------------------------------------------------------------------------------------

    def commit(self, context: Context, request: OffsetCommit.Request) -> OffsetCommit.Response:
        """Store offsets."""
        now = self._table.clock.wall_ms()
        expires = min(now + request.retention_time_ms, _LATEST) if request.retention_time_ms >= 0 else -1
        allowed = context.authorized("READ", "GROUP", request.group_id)
        code = _NONE if allowed else ErrorCode.GROUP_AUTHORIZATION_FAILED
        topics, accepted = self._sort(context, request, messages.OffsetCommit.Response, code, now, expires)
        if accepted:
            with self._table.lock:
                code = self._commit_locked(context, request, accepted)
            if code is not _NONE:
                _refuse(accepted, code)
        response: OffsetCommit.Response = messages.OffsetCommit.Response(topics=topics)
        return response

    def _commit_locked(self, context: Context, request: OffsetCommit.Request, accepted: list[_Accepted]) -> ErrorCode:
        table, group_id = self._table, request.group_id
        if table.unavailable is not _NONE:
            return table.unavailable
        group = table.get(group_id)
        epoch = request.generation_id_or_member_epoch
        if group is None:
            if epoch >= 0:
                known = context.version >= _NO_GROUP_VERSION
                return ErrorCode.GROUP_ID_NOT_FOUND if known else ErrorCode.ILLEGAL_GENERATION
        else:
            code = group.validate_commit(
                request.member_id, request.group_instance_id, epoch, transactional=False, version=context.version
            )
            if code is not _NONE and not _is_under_way(code, group, request.member_id, epoch, accepted):
                return code
            if group.kind == "classic":
                _keep_alive(group, request.member_id)
        try:
            first = table.append(
                group_id,
                [(offset_key(group_id, each.topic, each.partition), offset_value(each.committed)) for each in accepted],
            )
        except AppendFailed as failed:
            return failed.code
        self._ensure_group(group_id, group)
        put = table.offsets.put
        for number, each in enumerate(accepted, first):
            put(group_id, each.topic, each.partition, each.committed._replace(record_offset=number))
        return _NONE

    def _ensure_group(self, group_id: str, group: Group | None) -> None:
        """A group without members and record, for a consumer that assigns its partitions itself."""
        if group is None:
            self._table.put(self._rebalances.new_group(group_id))

    # ---- TxnOffsetCommit ---------------------------------------------------------------------------------------------

    def commit_in_transaction(self, context: Context, request: TxnOffsetCommit.Request) -> TxnOffsetCommit.Response:
        """Store offsets that count once the producer's transaction is committed."""
        if not context.authorized("WRITE", "TRANSACTIONAL_ID", request.transactional_id):
            code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        elif not context.authorized("READ", "GROUP", request.group_id):
            code = ErrorCode.GROUP_AUTHORIZATION_FAILED
        elif not request.group_id:
            code = ErrorCode.INVALID_GROUP_ID
        elif request.producer_id < 0 or request.producer_epoch < 0:
            code = ErrorCode.INVALID_PRODUCER_ID_MAPPING
        else:
            code = _NONE
        now = self._table.clock.wall_ms()
        topics, accepted = self._sort(context, request, messages.TxnOffsetCommit.Response, code, now, -1)
        if accepted:
            code = self._check_transaction(context, request)
            if code is _NONE:
                with self._table.lock:
                    code = self._commit_in_transaction_locked(context, request, accepted)
            code = _as_known(code, context.version)
            if code is not _NONE:
                _refuse(accepted, code)
        response: TxnOffsetCommit.Response = messages.TxnOffsetCommit.Response(topics=topics)
        return response

    def _check_transaction(self, context: Context, request: TxnOffsetCommit.Request) -> ErrorCode:
        """Ask the transaction coordinator, which may call complete_transaction(): without the lock."""
        if self._transactions is None:
            return _NONE
        try:
            partition = self._table.log.partition_for(request.group_id)
        except (KlogError, OSError):
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return self._transactions.check(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            CONSUMER_OFFSETS,
            partition,
            adds=context.version >= _TXN_V2_VERSION,
        )

    def _commit_in_transaction_locked(
        self, context: Context, request: TxnOffsetCommit.Request, accepted: list[_Accepted]
    ) -> ErrorCode:
        table, group_id = self._table, request.group_id
        if table.unavailable is not _NONE:
            return table.unavailable
        group = table.get(group_id)
        if group is None:
            code = ErrorCode.ILLEGAL_GENERATION if request.generation_id >= 0 else _NONE
        else:
            code = group.validate_commit(
                request.member_id,
                request.group_instance_id,
                request.generation_id,
                transactional=True,
                version=context.version,
            )
        if code is not _NONE and not (
            group is not None and _is_under_way(code, group, request.member_id, request.generation_id, accepted)
        ):
            return ErrorCode.ILLEGAL_GENERATION if code is ErrorCode.STALE_MEMBER_EPOCH else code
        records = [
            (offset_key(group_id, each.topic, each.partition), offset_value(each.committed)) for each in accepted
        ]
        try:
            first = table.append(group_id, records, (request.producer_id, request.producer_epoch))
        except AppendFailed as failed:
            return failed.code
        self._ensure_group(group_id, group)
        transaction = table.log.partition_for(group_id), request.producer_id
        for number, each in enumerate(accepted, first):
            place = group_id, each.topic, each.partition
            table.offsets.put_pending(transaction, place, each.committed._replace(record_offset=number))
        return _NONE

    # ---- OffsetDelete ------------------------------------------------------------------------------------------------

    def delete(self, context: Context, request: OffsetDelete.Request) -> OffsetDelete.Response:
        """Delete offsets of partitions that no member reads."""
        Response = messages.OffsetDelete.Response
        if not context.authorized("DELETE", "GROUP", request.group_id):
            return Response(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
        if not request.group_id:
            return Response(error_code=ErrorCode.INVALID_GROUP_ID)
        topics, accepted = [], []
        for topic in request.topics:
            count = self._topics.partitions(topic.name) or 0
            allowed = context.authorized("READ", "TOPIC", topic.name)
            partitions = []
            for asked in topic.partitions:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                if not allowed:
                    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                elif 0 <= asked.partition_index < count:
                    code = _NONE
                answer = Response.Partition(partition_index=asked.partition_index, error_code=code)
                partitions.append(answer)
                if code is _NONE:
                    accepted.append((answer, topic.name))
            topics.append(Response.Topic(name=topic.name, partitions=partitions))
        with self._table.lock:
            code = self._delete_locked(request.group_id, accepted)
        return Response(error_code=code) if code is not _NONE else Response(error_code=code, topics=topics)

    def _delete_locked(self, group_id: str, accepted: list[tuple[OffsetDelete.Response.Partition, str]]) -> ErrorCode:
        table = self._table
        if table.unavailable is not _NONE:
            return table.unavailable
        group = table.get(group_id)
        if group is None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        code = group.validate_offset_delete()
        if code is not _NONE:
            return code
        existing = set(table.offsets.partitions_of(group_id))
        places = []
        for answer, topic in accepted:
            if group.subscribes(topic):
                answer.error_code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            elif (topic, answer.partition_index) in existing:
                places.append((topic, answer.partition_index))
        if places:
            try:
                table.append(group_id, [(offset_key(group_id, *place), None) for place in places])
            except AppendFailed as failed:
                return failed.code
            for place in places:
                table.offsets.remove(group_id, *place)
        return _NONE

    # ---- checks of partitions ----------------------------------------------------------------------------------------

    def _sort(
        self, context: Context, request: Any, response: Any, code: ErrorCode, now: int, expires: int
    ) -> tuple[list[Any], list[_Accepted]]:
        """The topics of the response, and the partitions that may be stored. code: an error for all of them."""
        by_id = context.version >= _TOPIC_ID_VERSION and context.api is ApiKey.OFFSET_COMMIT
        longest = self._table.config.offset_metadata_max_bytes
        Topic, Partition = response.Topic, response.Partition
        topics: list[Any] = []
        accepted: list[_Accepted] = []
        for topic in request.topics:
            topic_id = topic.topic_id if by_id else NO_ID
            name, topic_code, count = self._topic(context, topic, by_id) if code is _NONE else ("", code, 0)
            partitions = []
            for asked in topic.partitions:
                number, metadata = asked.partition_index, asked.committed_metadata or ""
                error = topic_code
                if error is _NONE:
                    if not 0 <= number < count:
                        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                    elif len(metadata) > longest:
                        error = ErrorCode.OFFSET_METADATA_TOO_LARGE
                answer = Partition(partition_index=number, error_code=error)
                partitions.append(answer)
                if error is _NONE:
                    committed = Committed(
                        asked.committed_offset, asked.committed_leader_epoch, metadata, now, expires, -1, topic_id
                    )
                    accepted.append(_Accepted(answer, name, number, committed))
            if by_id:
                topics.append(Topic(topic_id=topic.topic_id, partitions=partitions))
            else:
                topics.append(Topic(name=topic.name, partitions=partitions))
        return topics, accepted

    def _topic(self, context: Context, topic: Any, by_id: bool) -> tuple[str, ErrorCode, int]:
        """Name, error and number of partitions of a topic of a request."""
        name: str = topic.name
        if by_id:
            topic_id: uuid.UUID = topic.topic_id
            found = self._topics.name_of(topic_id)
            if found is None:
                return "", ErrorCode.UNKNOWN_TOPIC_ID, 0
            name = found
        if not context.authorized("READ", "TOPIC", name):
            return name, ErrorCode.TOPIC_AUTHORIZATION_FAILED, 0
        count = self._topics.partitions(name)
        return (name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0) if count is None else (name, _NONE, count)


def _as_known(code: ErrorCode, version: int) -> ErrorCode:
    """The code of a TxnOffsetCommit response that producers of this version know. Kafka: AddPartitionsToTxnManager."""
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < _ABORTABLE_VERSION:
        return ErrorCode.INVALID_TXN_STATE
    if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < _LOADING_VERSION:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return code


def _keep_alive(group: Group, member_id: str) -> None:
    """A commit is a sign of life of a classic member, unless the group waits for assignments."""
    if isinstance(group, ClassicGroup) and group.state in (STABLE, PREPARING):
        member = group.members.get(member_id)
        if member is not None:
            member.alive()


def _refuse(accepted: list[_Accepted], code: ErrorCode) -> None:
    for each in accepted:
        each.response.error_code = code


def _is_under_way(code: ErrorCode, group: Group, member_id: str, epoch: int, accepted: list[_Accepted]) -> bool:
    """Was the commit refused for its epoch only, and has the member owned all the partitions since that? Kafka 4.3."""
    return code in (ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.ILLEGAL_GENERATION) and all(
        group.has_owned_since(member_id, epoch, each.topic, each.partition) for each in accepted
    )
