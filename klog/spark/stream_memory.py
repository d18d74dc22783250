"""What a stream remembers besides its offsets: the ids of the topics, the leader epochs of the last records, and how it
went on after a loss of data.

    <checkpointLocation>/klog-source-<digest>.json :=
        {"version": 1, "topics": {"flights": "<id>"}, "epochs": {"flights": {"0": 3}}, "resumed": RESUMPTION,
         "next": RESUMPTION, "left": OFFSETS}
    RESUMPTION := null | {"start": OFFSETS, "positions": OFFSETS}
    digest := of the paths and the subscription: sources of one query that differ in these have a file each

  M1  It is not part of the offsets: these keep the Kafka source's form (offsets.py, F2).
  M2  Spark gives a Python source no way to its checkpoint. Without the option checkpointLocation on readStream the ids
      and epochs are kept only as long as the query runs: a topic that is deleted and created again, or a log that is
      truncated and written again, while the query is stopped is then noticed only if the stream's offset is outside
      the new log, as in Spark's Kafka source.
  M3  The file is replaced atomically, before the offsets that it belongs to are returned to Spark.
  M4  resumed: the batch that begins at `start` reads from `positions` instead. A batch that Spark repeats after a crash
      finds it here. It is dropped when the next batch begins. next: the same of the batch after the present one, whose
      start the log did not reach: when that batch is planned, the log may be longer.
  M5  Two sources of one query with the same paths and subscription share a file, and each may replace the resumption of
      the other: give them a checkpointLocation each, or read the topics once.
  M6  epochs: of the last record before the newest offsets that were returned. A batch that Spark repeats begins at
      earlier ones; the same epoch holds for them, since each later leader has a higher one.
  M7  left: where the stream was in partitions that have gone, with failOnDataLoss=false. One that comes back goes on
      there if its topic has the same id. It is kept until it goes again: a batch without it may be repeated.

Used by one process, the one that plans the query's batches.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Mapping
from typing import Any

from klog.disk import Files, RealFiles, make_directories, read_whole
from klog.log.directory import versioned
from klog.spark.bounds import TopicPartition
from klog.spark.offsets import Offsets, from_json, to_json

VERSION = 1
Resumption = tuple[Offsets, Offsets]
"""Start of a batch, and the positions that it reads from."""


class StreamMemory:
    """The ids and the resumption of one source. directory: of the checkpoint, None to keep both in this process."""

    def __init__(self, directory: str | None, source: object, files: Files | None = None) -> None:
        self._files = files or RealFiles()
        digest = hashlib.sha256(repr(source).encode("utf-8", "surrogateescape")).hexdigest()[:16]
        self._path = None if directory is None else os.path.join(directory, f"klog-source-{digest}.json")
        self._ids: dict[str, str] = {}
        self._epochs: dict[TopicPartition, int] = {}
        self._resumed: Resumption | None = None
        self._next: Resumption | None = None
        self._left: Offsets = {}
        if self._path is not None:
            with contextlib.suppress(FileNotFoundError):
                self._load(self._path)
                self._files.fsync_dir(os.path.dirname(self._path))  # M3: a process that was killed may have written it

    @property
    def ids(self) -> Mapping[str, str]:
        """Topic → id."""
        return self._ids

    @property
    def epochs(self) -> Mapping[TopicPartition, int]:
        """Partition → leader epoch (M6)."""
        return self._epochs

    def positions_of(self, start: Mapping[TopicPartition, int]) -> Offsets | None:
        """Where the batch that begins at `start` reads from, if that is not `start` (M4)."""
        return next(
            (found[1] for found in (self._resumed, self._next) if found is not None and found[0] == start), None
        )

    def begin(self, ids: Mapping[str, str]) -> None:
        """Forget all but these ids, for a query without a checkpoint. Durable on return."""
        self._ids, self._epochs, self._resumed, self._next, self._left = dict(ids), {}, None, None, {}
        self._save()

    def note(self, ids: Mapping[str, str], resumed: Resumption | None = None) -> None:
        """Set the ids of these topics, and the resumption of the present batch. Durable on return (M3)."""
        known = {**self._ids, **ids}
        if (known, resumed, None) != (self._ids, self._resumed, self._next):
            self._left = self.left(known)  # not those of a topic that was created again
            self._ids, self._resumed, self._next = known, resumed, None
            self._save()

    def note_epochs(self, epochs: Mapping[TopicPartition, int]) -> None:
        """Set the leader epochs of these partitions, after note(). Durable on return (M3)."""
        known = {**self._epochs, **epochs}
        if known != self._epochs:
            self._epochs = known
            self._save()

    def left(self, ids: Mapping[str, str]) -> Offsets:
        """Where the stream was in partitions that have gone, of those topics that still have these ids (M7)."""
        return {
            pair: offset
            for pair, offset in self._left.items()
            if pair.topic in ids and ids[pair.topic] == self._ids.get(pair.topic)
        }

    def note_left(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Set where the stream was in partitions that are gone now, before note(), which may drop them: a topic that
        was created again in the meantime has other offsets. Durable on return (M3)."""
        known = {**self._left, **offsets}
        if known != self._left:
            self._left = known
            self._save()

    def note_next(self, start: Offsets, positions: Offsets) -> None:
        """Set the resumption of the next batch, after note(). Durable on return (M3)."""
        self._next = start, positions
        self._save()

    def _save(self) -> None:
        if self._path is None:
            return
        document = {
            "version": VERSION,
            "topics": dict(sorted(self._ids.items())),
            "epochs": to_json(self._epochs),
            "resumed": _document(self._resumed),
            "next": _document(self._next),
            "left": to_json(self._left),
        }
        make_directories(os.path.dirname(self._path), self._files, 0o777)
        self._files.replace(self._path, versioned.encode(document))

    def _load(self, path: str) -> None:
        data = read_whole(path)
        try:
            document: Any = versioned.parse(data, path, VERSION)
            ids = dict(document["topics"])
            if not all(isinstance(text, str) for pair in ids.items() for text in pair):
                raise ValueError("topics")
            self._resumed, self._next = _resumption(document["resumed"]), _resumption(document.get("next"))
            self._epochs = from_json(document.get("epochs", {}))
            self._left = from_json(document.get("left", {}))
            self._ids = ids
        except versioned.MALFORMED as error:
            raise ValueError(
                f"{path} is not valid ({type(error).__name__}: {error}); delete it if no topic was deleted and created "
                f"again, and no log truncated, since the query ran last"
            ) from None


def _document(resumption: Resumption | None) -> dict[str, Any] | None:
    return resumption and {"start": to_json(resumption[0]), "positions": to_json(resumption[1])}


def _resumption(document: Any) -> Resumption | None:
    return None if document is None else (from_json(document["start"]), from_json(document["positions"]))
