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

NO_ID = uuid.UUID(int=0)
_NO_EPOCH = -1
_CODES = {int(code): code for code in ErrorCode}


class NotLeader(KlogError):
    """Another broker leads the partition. log: of the partition."""

    code = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def __init__(self, log: Log) -> None:
        super().__init__(f"another broker leads {log.name}")
        self.log = log


def find_log(topics: Topics, topic: str, partition: int, current_leader_epoch: int = _NO_EPOCH) -> Log | ErrorCode:
    """The log of a partition, or the code to respond with. current_leader_epoch: the client's; -1: unknown. As in Kafka
    a wrong one is noticed first."""
    found = ErrorCode.NONE
    try:
        log = topics.log(topic, partition)
    except NotLeader as error:
        log, found = error.log, ErrorCode.NOT_LEADER_OR_FOLLOWER
    except KlogError as error:
        return code_of(error)
    except OSError:
        return ErrorCode.KAFKA_STORAGE_ERROR
    if log is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if current_leader_epoch != _NO_EPOCH:
        ours = log.leader_epoch
        if current_leader_epoch < ours:
            return ErrorCode.FENCED_LEADER_EPOCH
        if current_leader_epoch > ours:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
    return found or log


def end_of_epoch(log: Log, epoch: int) -> tuple[int, int]:
    """The largest known leader epoch up to this one, and the offset at which it ends; (-1, -1) if there is none."""
    if epoch == log.leader_epoch:  # also of a log without records, whose epochs are not written yet
        return epoch, log.log_end_offset
    return log.end_offset_for(epoch)


def code_of(error: BaseException) -> ErrorCode:
    """The code to respond with for an exception of the engine. Kafka: Errors.forException."""
    if isinstance(error, KlogError):
        return _CODES.get(error.code, ErrorCode.UNKNOWN_SERVER_ERROR)
    return ErrorCode.KAFKA_STORAGE_ERROR if isinstance(error, OSError) else ErrorCode.UNKNOWN_SERVER_ERROR
