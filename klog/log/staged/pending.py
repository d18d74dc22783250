"""What commits in progress hide from readers of a log.dir: the records that they append, the topics that they create.

The directory is listed again when it has changed.
"""

from __future__ import annotations

import os
from collections.abc import Set

from klog.disk import settled_change
from klog.log.directory.checkpoint import Partition
from klog.log.options import ReaderBounds
from klog.log.staged import layout
from klog.log.staged.manifest import Manifest, read_all


class PendingCommits:
    """The manifests of one log.dir, for readers. Any thread."""

    def __init__(self, log_dir: str) -> None:
        self._log_dir = log_dir
        self._listed: tuple[int, list[Manifest]] | None = None  # at this time of the last change

    def manifests(self) -> list[Manifest]:
        """Those that are there now. Raises CorruptCheckpoint, NewerFormat, OSError."""
        changed, listed = settled_change(self._log_dir), self._listed
        if listed is not None and listed[0] == changed:
            return listed[1]
        found = read_all(self._log_dir, os.listdir(self._log_dir))
        # A manifest is replaced when it is applied, which changes the directory, too.
        self._listed = None if changed is None else (changed, found)
        return found

    def bounds(self, key: Partition) -> ReaderBounds | None:
        """The bounds of a partition that is in a manifest; None: in none."""
        return self.bounds_of({key}).get(key)

    def bounds_of(self, keys: Set[Partition]) -> dict[Partition, ReaderBounds]:
        """The bounds of those partitions that are in a manifest, at one moment."""
        found: dict[Partition, ReaderBounds] = {}
        for manifest in self._concerning(keys):
            for part in manifest.parts:
                if part.key in keys and manifest.state == "committed":
                    found.setdefault(part.key, ReaderBounds(part.base_offset, 0))
                elif part.key in keys and part.overwrite:
                    found.setdefault(part.key, ReaderBounds(None, part.base_offset))
        return found

    def _concerning(self, keys: Set[Partition]) -> list[Manifest]:
        """Those that may have a part in a partition. A log.dir that this user may enter but not list: those of the jobs
        that have staged files there, which are all that append."""
        try:
            return self.manifests()
        except PermissionError:
            paths = [layout.partition_path(self._log_dir, *key) for key in keys]
            tokens = {token for path in paths for token in layout.staged_in(os.listdir(path))}
            return read_all(self._log_dir, [os.path.basename(layout.commit_path("", token)) for token in tokens])

    def hidden_topics(self) -> set[str]:
        """The topics that are being created."""
        return {name for manifest in self.manifests() if manifest.state == "committed" for name in manifest.topics}
