"""The directory of a materialized table: its lock, its commit, and what readers see there.

    <target>/klog-<partition>-<slot>-<name>.parquet  the table for any reader of Parquet: hard links of the files below
    <target>/_klog/.lock                         held by the materialize that runs
    <target>/_klog/manifest.json                 the table (table_manifest.py)
    <target>/_klog/files/<name>                  the files by names that are used once; tasks write here

  A1  Replacing the manifest is the commit. All that it names is on disk before.
  A2  After it the target is made to show the manifest: a file that takes the slot of another one replaces its name in
      one step (rename), partition by partition, in the order of the slots. So a listing of the target shows each
      partition up to some offset between two commits, each record once (latest=true: each bucket before or after the
      commit; while a bucket is split, the keys that move may be missing for a moment).
  A3  A process that stops between A1 and A2 leaves that to the next call: locked() does it, from any state. First the
      names that the stopped call has changed go to disk: a power cut takes back no commit that a later call has
      returned, or that the target shows.
  A4  What no manifest names, of tasks that failed, is removed by the next call. `kept` (T4) by the next commit.

Spark and pyarrow ignore names that begin with an underscore, and nothing below _klog is named .parquet.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from klog.disk import DirectoryLock, Files, RealFiles, exists, is_directory, make_directories, read_whole
from klog.errors import AlreadyLocked, CorruptData
from klog.spark.table_manifest import Manifest, from_bytes, to_bytes

_OWN = "_klog"


class TableStore:
    """One target. Any process may load(); everything else is for the one that has locked() it."""

    def __init__(self, target: str, files: Files | None = None) -> None:
        self.target = target
        self._files = files or RealFiles()
        self._own = os.path.join(target, _OWN)
        self._manifest = os.path.join(self._own, "manifest.json")
        self.directory = os.path.join(self._own, "files")
        """Where tasks write."""

    def load(self) -> Manifest | None:
        """Return the manifest, None if there is none. Raises NewerFormat, CorruptData, OSError."""
        try:
            return from_bytes(read_whole(self._manifest), self._manifest)
        except FileNotFoundError:
            return None

    def path(self, name: str) -> str:
        """Where a file of the manifest is."""
        return os.path.join(self.directory, name)

    @contextmanager
    def locked(self) -> Iterator[Manifest | None]:
        """Lock the target, create it if it does not exist, and finish what an interrupted call left.

        Yields the manifest. Raises AlreadyLocked, which names the holder, and ValueError for a directory with other
        files.
        """
        self._create()
        try:
            lock = DirectoryLock(self._own)
        except AlreadyLocked as error:
            holder = error.holder or "another process"
            raise AlreadyLocked(
                f"{self.target} is being materialized by {holder}: call it again when that has ended",
                path=self.target,
                holder=error.holder,
            ) from None
        try:
            for directory in (os.path.dirname(self.target), self.target, self._own):  # A3
                self._files.fsync_dir(directory)
            manifest = self.load()
            if manifest is not None:
                self._show(manifest)
            self._sweep(manifest)
            yield manifest
        finally:
            lock.release()

    def commit(self, manifest: Manifest) -> None:
        """Make this the table (A1, A2). Raises OSError; after the commit its note says that it is done."""
        self._files.fsync_dir(self.directory)
        for file in manifest.files:
            if not exists(self.path(file.name)):
                raise FileNotFoundError(
                    f"{self.path(file.name)}: a task wrote it, but the driver does not see it; nothing was added. All "
                    f"machines of a cluster must see the target"
                )
        self._files.replace(self._manifest, to_bytes(manifest))
        try:
            self._show(manifest)
            self._sweep(manifest)
        except OSError as error:
            error.add_note(f"{self.target}: commit {manifest.number} is done; the next call will show the rest of it")
            raise

    def _create(self) -> None:
        if is_directory(self.target) and not is_directory(self._own) and os.listdir(self.target):
            raise ValueError(
                f"target {self.target!r} is not empty, and klog.spark.materialize has not written it: give it a "
                f"directory of its own"
            )
        make_directories(self.directory, self._files, 0o777)

    def _show(self, manifest: Manifest) -> None:
        """Make the target show a manifest (A2, A3)."""
        changed = False
        shown = {name.rpartition("-")[0]: name for name in os.listdir(self.target)}
        for file in sorted(manifest.files, key=lambda file: (file.partition, file.slot)):
            changed |= self._link(self.path(file.name), shown.get(file.place, file.shown), file.shown)
        if changed:
            self._files.fsync_dir(self.target)

    def _link(self, source: str, before: str, shown: str) -> bool:
        """Make `shown` a name of the file `source`, in place of the file that is shown as `before`. False if it is.

        First that file is renamed: a query that has listed it fails, since a name that it knows with another size and
        content would have it leave out rows.
        """
        before, shown = os.path.join(self.target, before), os.path.join(self.target, shown)
        try:
            there = os.stat(source)
        except FileNotFoundError:
            raise CorruptData(
                "a file of the table is missing; materialize the topic into another directory", path=source
            ) from None
        if exists(shown) and os.path.samestat(there, os.stat(shown)):
            return False
        link = os.path.join(self._own, "link")
        self._files.unlink(link)
        try:
            self._files.link(source, link)
        except OSError as error:
            error.add_note(f"{self.target}: a materialized table needs a file system with hard links")
            raise
        if before != shown:
            self._files.rename(before, shown)
        self._files.rename(link, shown)
        return True

    def _sweep(self, manifest: Manifest | None) -> None:
        named = set() if manifest is None else {*(file.name for file in manifest.files), *manifest.kept}
        for name in os.listdir(self.directory):
            if name not in named:
                self._files.unlink(self.path(name))
