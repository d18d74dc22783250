"""The last batch that a stream has committed to a log.dir: what makes the replay of a batch a no-op.

klog-stream-QUERY.json := {"version": 1, "query_id": QUERY, "batch_id": 7}
"""

from __future__ import annotations

from klog.disk import Files, read_whole
from klog.errors import CorruptCheckpoint
from klog.log.directory import versioned
from klog.log.staged import layout

VERSION = 1


def last_batch(log_dir: str, query: str) -> int:
    """The last committed batch of a stream, -1 if there is none. Raises CorruptCheckpoint, NewerFormat."""
    path = layout.stream_path(log_dir, query)
    try:
        return decode(read_whole(path), path, query)
    except FileNotFoundError:
        return -1


def decode(data: bytes, path: str, query: str) -> int:
    """The batch that a stream's file names. Raises CorruptCheckpoint, NewerFormat."""
    try:
        document = versioned.parse(data, path, VERSION)
        batch = document["batch_id"]
        if document["query_id"] != query or type(batch) is not int or batch < 0:
            raise ValueError(f"batch_id {batch!r} of query {document['query_id']!r}")
        return batch
    except versioned.MALFORMED as error:
        raise CorruptCheckpoint(
            f"not the last batch of a stream ({error}); restore it: without it a replayed batch is appended again",
            path=path,
        ) from None


def committed(log_dir: str, query: str, batch: int, files: Files) -> None:
    """Note a committed batch, durably. An earlier one than the last changes nothing."""
    if batch > last_batch(log_dir, query):
        document = {"version": VERSION, "query_id": query, "batch_id": batch}
        files.replace(layout.stream_path(log_dir, query), versioned.encode(document))
