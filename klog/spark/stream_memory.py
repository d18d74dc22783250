"""What a stream remembers besides its offsets: the ids of the topics, and how it went on after a loss of data.

    <checkpointLocation>/klog-source-<digest>.json :=
        {"version": 1, "topics": {"flights": "<id>"}, "resumed": null | {"start": OFFSETS, "positions": OFFSETS}}
    digest := of the paths and the subscription: two sources of one query have a file each

  M1  It is not part of the offsets: these keep the Kafka source's form (offsets.py, F2).
  M2  Spark gives a Python source no way to its checkpoint. Without the option checkpointLocation on readStream the ids
      are kept only as long as the query runs: a topic that is deleted and created again while the query is stopped is
      then noticed only if the stream's offset is outside the new log, as in Spark's Kafka source.
  M3  The file is replaced atomically, before the offsets that it belongs to are returned to Spark.
  M4  resumed: the batch that begins at `start` reads from `positions` instead. A batch that Spark repeats after a crash
      finds it here. It is dropped when the next batch begins.

Used by one process, the one that plans the query's batches.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from typing import Any

from klog.disk import RealFiles
from klog.log.directory import versioned
from klog.spark.bounds import TopicPartition
from klog.spark.offsets import Offsets, from_json, to_json

VERSION = 1


class StreamMemory:
    """The ids and the resumption of one source. directory: of the checkpoint, None to keep both in this process."""

    def __init__(self, directory: str | None, source: object) -> None:
        digest = hashlib.sha256(repr(source).encode("utf-8", "surrogateescape")).hexdigest()[:16]
        self._path = None if directory is None else os.path.join(directory, f"klog-source-{digest}.json")
        self._ids: dict[str, str] = {}
        self._resumed: tuple[Offsets, Offsets] | None = None
        if self._path is not None and os.path.exists(self._path):
            self._load(self._path)

    @property
    def ids(self) -> Mapping[str, str]:
        """Topic → id."""
        return self._ids

    def positions_of(self, start: Mapping[TopicPartition, int]) -> Offsets | None:
        """Where the batch that begins at `start` reads from, if that is not `start` (M4)."""
        return self._resumed[1] if self._resumed is not None and self._resumed[0] == start else None

    def begin(self, ids: Mapping[str, str]) -> None:
        """Forget all but these ids, for a query without a checkpoint. Durable on return."""
        self._ids, self._resumed = dict(ids), None
        self._save()

    def note(self, ids: Mapping[str, str], resumed: tuple[Offsets, Offsets] | None = None) -> None:
        """Set the ids of these topics, and the resumption of the present batch. Durable on return (M3)."""
        known = {**self._ids, **ids}
        if (known, resumed) != (self._ids, self._resumed):
            self._ids, self._resumed = known, resumed
            self._save()

    def _save(self) -> None:
        if self._path is None:
            return
        resumed = self._resumed and {"start": to_json(self._resumed[0]), "positions": to_json(self._resumed[1])}
        document = {"version": VERSION, "topics": dict(sorted(self._ids.items())), "resumed": resumed or None}
        os.makedirs(os.path.dirname(self._path), exist_ok=True)
        RealFiles().replace(self._path, json.dumps(document).encode())

    def _load(self, path: str) -> None:
        with open(path, "rb") as file:
            data = file.read()
        try:
            document: Any = versioned.parse(data, path, VERSION)
            ids, resumed = dict(document["topics"]), document["resumed"]
            if document["version"] != VERSION or not all(
                isinstance(text, str) for pair in ids.items() for text in pair
            ):
                raise ValueError("version or topics")
            self._resumed = resumed and (from_json(resumed["start"]), from_json(resumed["positions"]))
            self._ids = ids
        except versioned.MALFORMED as error:
            raise ValueError(
                f"{path} is not valid ({type(error).__name__}: {error}); delete it if no topic was deleted and created "
                f"again since the query ran last"
            ) from None
