"""DescribeLogDirs and AlterReplicaLogDirs. Kafka: ReplicaManager.describeLogDirs, alterReplicaLogDirs."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, Any

from klog.broker.admin.failures import Refused, outcome
from klog.broker.partitions import find_log
from klog.protocol import ApiKey, ErrorCode, messages
from klog.security.refusals import cluster_authorized

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from klog.broker.admin.replica_moves import ReplicaMoves
    from klog.broker.catalog import TopicCatalogView
    from klog.manager import LogManager
    from klog.protocol import Message
    from klog.security import Context

_Found = dict[str, dict[str, list[messages.DescribeLogDirs.Response.Partition]]]


class LogDirs:
    """Any thread."""

    def __init__(self, logs: LogManager, topics: TopicCatalogView, moves: ReplicaMoves) -> None:
        self._logs = logs
        self._topics = topics
        self._moves = moves

    def handlers(self) -> dict[ApiKey, Callable[[Context, Any], Message | None]]:
        """The APIs of this component."""
        return {
            ApiKey.DESCRIBE_LOG_DIRS: self.describe_log_dirs,
            ApiKey.ALTER_REPLICA_LOG_DIRS: self.alter_replica_log_dirs,
        }

    # ---- describe ----------------------------------------------------------------------------------------------------

    def describe_log_dirs(self, context: Context, request: Any) -> Message:
        """The sizes of the partitions in each log directory, of all or of those that are asked for. May block on
        disks."""
        Response = messages.DescribeLogDirs.Response
        if not cluster_authorized(context.authorized, "DESCRIBE"):
            return Response(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        offline = self._logs.offline_directories
        found = self._partitions(self._asked(request))
        results = []
        for path in self._logs.paths:
            result = Response.Dir(log_dir=path)
            work = partial(self._describe, result, found.get(path, {}), is_offline=path in offline)
            result.error_code, _ = outcome(work, "DescribeLogDirs")
            results.append(result)
        return Response(results=results)

    def _asked(self, request: Any) -> Iterator[tuple[str, int]]:
        if request.topics is None:
            for info in self._topics.infos():
                for partition in range(info.partitions):
                    yield info.name, partition
        else:
            for topic in request.topics:
                for partition in dict.fromkeys(topic.partitions):
                    yield topic.topic, partition

    def _partitions(self, asked: Iterator[tuple[str, int]]) -> _Found:
        """{directory: {topic: its partitions and their copies there}}."""
        Partition = messages.DescribeLogDirs.Response.Partition
        moves = {(move.topic, move.partition): move for move in self._logs.moves()}
        found: _Found = {}
        for topic, number in asked:
            log = find_log(self._topics, topic, number)
            if isinstance(log, ErrorCode):
                continue
            lag = max(log.high_watermark - log.log_end_offset, 0)
            described = Partition(partition_index=number, partition_size=log.size, offset_lag=lag)
            found.setdefault(os.path.dirname(log.path), {}).setdefault(topic, []).append(described)
            move = moves.get((topic, number))
            if move is not None:
                lag = max(log.log_end_offset - move.next_offset, 0)
                copy = Partition(
                    partition_index=number, partition_size=move.bytes_copied, offset_lag=lag, is_future_key=True
                )
                found.setdefault(move.directory, {}).setdefault(topic, []).append(copy)
        return found

    def _describe(self, result: Any, topics: dict[str, Any], *, is_offline: bool) -> None:
        if is_offline:
            raise Refused(ErrorCode.KAFKA_STORAGE_ERROR)
        from klog.disk.device import disk_space  # few requests need it

        space = disk_space(result.log_dir)
        result.total_bytes, result.usable_bytes = space.total_bytes, space.free_bytes
        result.topics = [
            messages.DescribeLogDirs.Response.Topic(name=name, partitions=partitions)
            for name, partitions in topics.items()
        ]

    # ---- alter -------------------------------------------------------------------------------------------------------

    def alter_replica_log_dirs(self, context: Context, request: Any) -> Message:
        """Begin to move partitions to other log directories. The moves go on after the response: DescribeLogDirs shows
        them. May block on disks."""
        Response = messages.AlterReplicaLogDirs.Response
        allowed = cluster_authorized(context.authorized, "ALTER")
        results: dict[str, Any] = {}
        for directory in request.dirs:
            for topic in directory.topics:
                result = results.setdefault(topic.name, Response.Topic(topic_name=topic.name, partitions=[]))
                for partition in topic.partitions:
                    work = partial(self._move, directory.path, topic.name, partition, allowed=allowed)
                    code, _ = outcome(work, "AlterReplicaLogDirs")
                    result.partitions.append(Response.Partition(partition_index=partition, error_code=code))
        return Response(results=list(results.values()))

    def _move(self, directory: str, topic: str, partition: int, *, allowed: bool) -> None:
        if not allowed:
            raise Refused(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        path = os.path.normpath(directory)
        if path not in self._logs.paths:
            raise Refused(ErrorCode.LOG_DIR_NOT_FOUND)
        if path in self._logs.offline_directories:
            raise Refused(ErrorCode.KAFKA_STORAGE_ERROR)
        log = find_log(self._topics, topic, partition)
        if isinstance(log, ErrorCode):
            raise Refused(log)
        if os.path.dirname(log.path) == path:
            self._moves.forget(topic, partition)
        else:
            self._moves.ask(topic, partition, path)
