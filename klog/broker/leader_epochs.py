"""Leader epochs: that of a partition rises when another broker leads it, and when a broker starts after a crash.

Clients then notice that what they know is out of date: of the leader, by FENCED_LEADER_EPOCH, and of records, which a
crash may have taken. The logs keep the epochs. After a clean stop that of a single broker stays, since nothing changed;
Kafka's rises with each restart. Nor does a crash raise those in a directory of Kafka's: its controller counts on its
own, and must not find later ones there. Kafka: PartitionRegistration.merge in the controller, Partition.makeLeader.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from klog.errors import KlogError
from klog.logger import logger_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from klog.broker.catalog import TopicCatalogView
    from klog.broker.nodes import Nodes
    from klog.log import Log

_log = logger_of("broker")


class LeaderEpochs:
    """Those of all partitions, in all starts of a broker. Any thread."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._moving = threading.Lock()
        self._at_stop: dict[tuple[str, int], tuple[int, int]] = {}  # leader epoch and log end

    def start(self, topics: TopicCatalogView, *, after_crash: bool) -> None:
        """Begin the epochs of a start. They rise if there are several brokers, which may have led other partitions
        before; if the directory is in an earlier state than at the last stop; and after_crash, after a crash. Before
        the first request."""
        several = len(self._nodes.ids) > 1
        for key, log in _logs(topics):
            before = self._at_stop.get(key, (0, 0))
            has_lost = (log.leader_epoch, log.log_end_offset) < before
            rises = several or has_lost or (after_crash and not log.recovery.clean_shutdown)
            _begin(log, max(log.leader_epoch, before[0]) + rises)

    def stop(self, topics: TopicCatalogView) -> None:
        """The logs are about to be closed."""
        self._at_stop = {key: (log.leader_epoch, log.log_end_offset) for key, log in _logs(topics)}

    @contextmanager
    def move(self, topics: TopicCatalogView) -> Iterator[None]:
        """Leaders move within the block: the epochs of their partitions rise at its end. One block at a time."""
        with self._moving:
            placement = self._nodes.placement
            before = {key: placement(*key).leader for key, _ in _logs(topics)}
            try:
                yield
            finally:
                for key, log in _logs(topics):
                    leader = placement(*key).leader
                    if before.get(key, leader) != leader:
                        _begin(log, log.leader_epoch + 1)


def _logs(topics: TopicCatalogView) -> Iterator[tuple[tuple[str, int], Log]]:
    """All partitions that are online."""
    for info in topics.infos():
        for number in range(info.partitions):
            with suppress(KlogError, OSError):
                log = topics.log(info.name, number)
                if log is not None and log.offline is None:
                    yield (info.name, number), log


def _begin(log: Log, epoch: int) -> None:
    """Begin an epoch, unless it is that of the newest records."""
    epochs = log.leader_epochs
    if epoch != (epochs[-1][0] if epochs else 0):
        try:
            log.begin_leader_epoch(epoch)
        except (KlogError, OSError) as error:  # it goes on with the one that it has, or is offline
            _log.warning("event=leader_epoch_not_raised log=%s error=%s", log.name, error)
