"""metadata(path): the state of a cluster, from the metadata log of a stopped broker or controller.

It is read from the newest complete snapshot and the log after it, or, if no controller has run on the directory yet,
from bootstrap.checkpoint. Nothing is locked or changed. In a quorum of several voters the log of a node may end with
records that the others have not accepted: read the directory of the last leader.

Kafka: KafkaMetadataLog, SnapshotFileReader, BootstrapDirectory.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from typing import Final

from klog.disk import check_directory, exists, is_directory
from klog.errors import CorruptData, HandoverRefused
from klog.handover.cluster import ClusterMetadata
from klog.handover.replay import Replay
from klog.inspect.batches import Found, Item, scan
from klog.inspect.files import ReadOnlyFile
from klog.inspect.partition_files import bases, damage_of, items
from klog.internal_topics import decode
from klog.internal_topics.names import CLUSTER_METADATA
from klog.manager.directory_set import Paths, as_paths
from klog.record import RecordBatch

METADATA_LOG: Final = f"{CLUSTER_METADATA}-0"
BOOTSTRAP: Final = "bootstrap.checkpoint"
_SNAPSHOT: Final = re.compile(r"(\d{20})-(\d{10})\.checkpoint")


def metadata(path: Paths) -> ClusterMetadata:
    """Return the cluster's metadata in a log.dir, or in the one of several that has it (metadata.log.dir).

    Raises HandoverRefused if there is none; CorruptData for a record that klog cannot decode, or for damage before the
    end of the log; OSError.
    """
    paths = [check_directory(each) for each in as_paths(path)]
    for each in paths:
        if has_metadata_log(each):
            found = _read_log(os.path.join(each, METADATA_LOG))
            if found is not None:
                return found
    for each in paths:
        bootstrap = os.path.join(each, BOOTSTRAP)
        if exists(bootstrap):
            return read_bootstrap(bootstrap)
    raise HandoverRefused(
        f"{paths[0]} has neither {METADATA_LOG} nor {BOOTSTRAP}: it is not the directory of a KRaft node with its "
        "metadata; if the node has several log.dirs, name the one of metadata.log.dir too"
    )


def read_bootstrap(path: str) -> ClusterMetadata:
    """Return the content of a bootstrap.checkpoint. Raises CorruptData for an incomplete one; OSError."""
    replay = _read_snapshot(path)
    if replay is None:
        raise CorruptData("the snapshot is incomplete: its footer is missing", path=path)
    return replay.state(None)


def has_metadata_log(directory: str) -> bool:
    """True if the directory of the metadata log has a snapshot, or a log that is not empty."""
    path = os.path.join(directory, METADATA_LOG)
    return is_directory(path) and any(
        _SNAPSHOT.fullmatch(name) or (name.endswith(".log") and os.path.getsize(os.path.join(path, name)))
        for name in os.listdir(path)
    )


def _read_log(path: str) -> ClusterMetadata | None:
    """Return the state of a metadata log; None if no controller has written its first records."""
    replay, offset = _newest_snapshot(path)
    for file, item in items(path, offset) if bases(path) else ():
        error = damage_of(item)
        if error is not None:
            raise error
        if not isinstance(item, Found):
            break  # an incomplete batch, which a crash has left at the end
        if item.batch.base_offset > offset:
            raise CorruptData(
                f"offset {offset} expected, {item.batch.base_offset} found: records are missing, or a snapshot is",
                path=file,
                position=item.position,
                offset=offset,
            )
        _add(replay, item.batch, offset)
        offset = max(offset, item.batch.next_offset)
    found = replay.state(offset)
    return found if found.features else None  # the first records set metadata.version


def _newest_snapshot(path: str) -> tuple[Replay, int]:
    """Return the records of the newest complete snapshot, and the offset at which the log continues."""
    found = sorted(name for name in os.listdir(path) if _SNAPSHOT.fullmatch(name))
    for name in reversed(found):
        replay = _read_snapshot(os.path.join(path, name))
        if replay is not None:
            return replay, int(name[:20])
    return Replay(), 0


def _read_snapshot(path: str) -> Replay | None:
    """Return the records of a snapshot; None if it is incomplete."""
    replay, complete = Replay(), False
    with ReadOnlyFile(path) as file:
        for batch in _sound(scan(file)):
            complete = batch.is_control and batch.control_type == "snapshot_footer"
            _add(replay, batch, 0)
    return replay if complete else None


def _sound(found: Iterable[Item]) -> Iterator[RecordBatch]:
    """Yield the batches before the first damaged one."""
    for item in found:
        if not isinstance(item, Found) or item.error is not None:
            return
        yield item.batch


def _add(replay: Replay, batch: RecordBatch, offset: int) -> None:
    """Add the records of a batch from an offset on."""
    if batch.is_control:
        return
    for record in batch:
        decoded = decode(record, CLUSTER_METADATA)
        if decoded is not None and record.offset is not None and record.offset >= offset:
            replay.add(decoded)
