"""What requests name: topics by name or id, partitions, leader epochs. Each lookup gives a log or an error code.

Kafka: ReplicaManager.getPartitionOrError, Partition.checkCurrentLeaderEpoch.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from klog.errors import KlogError
from klog.protocol import ErrorCode

if TYPE_CHECKING:
    from klog.log import Log
    from klog.security import Topics

INTERNAL_TOPICS = frozenset(("__consumer_offsets", "__transaction_state", "__share_group_state"))
NO_ID = uuid.UUID(int=0)
_NO_EPOCH = -1
_CODES = {int(code): code for code in ErrorCode}


def leader_epoch(log: Log) -> int:
    """The leader epoch of a partition that this broker leads: the latest of its log."""
    epochs = log.leader_epochs
    return epochs[-1][0] if epochs else 0


def find_log(topics: Topics, topic: str, partition: int, current_leader_epoch: int = _NO_EPOCH) -> Log | ErrorCode:
    """The log of a partition, or the code to respond with. current_leader_epoch: the client's; -1: unknown."""
    try:
        log = topics.log(topic, partition)
    except KlogError as error:
        return code_of(error)
    except OSError:
        return ErrorCode.KAFKA_STORAGE_ERROR
    if log is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if current_leader_epoch != _NO_EPOCH:
        ours = leader_epoch(log)
        if current_leader_epoch < ours:
            return ErrorCode.FENCED_LEADER_EPOCH
        if current_leader_epoch > ours:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
    return log


def code_of(error: BaseException) -> ErrorCode:
    """The code to respond with for an exception of the engine. Kafka: Errors.forException."""
    if isinstance(error, KlogError):
        return _CODES.get(error.code, ErrorCode.UNKNOWN_SERVER_ERROR)
    return ErrorCode.KAFKA_STORAGE_ERROR if isinstance(error, OSError) else ErrorCode.UNKNOWN_SERVER_ERROR
