"""StagedWriter: a task encodes records into files beside the logs; a commit appends them later.

    <topic>-<partition>/.klog-staging-TOKEN/<task>-<attempt> := record batches back to back, offsets from 0

  S1  a file is on disk, with the names that lead to it, before finish() returns it
  S2  a name is used once: a file that exists is never opened to write. What an attempt leaves goes with the job's
      staging; what it stages after that stays until an open for writing finds that the job is over

Batches are those of an append with the topic's configuration: the same codec, limits and checks of each record.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Any

from klog.clock import Clock, SystemClock
from klog.codec import crc32c
from klog.config import LogConfig
from klog.disk import Files, LogFile, RealFiles, exists, os_error
from klog.log.staged import layout
from klog.log.staged.manifest import StagedFile
from klog.log.staged.writers import Driver, make_staging
from klog.log.state._append_policy import policy_of

if TYPE_CHECKING:
    from klog.log.options import Compression
    from klog.record import Records

GROUP_BYTES = 8 << 20


class StagedWriter:
    """The files of one attempt of one task. One thread. name: <task>-<attempt>, unique among all runs of
    the job."""

    def __init__(
        self,
        log_dir: str,
        token: str,
        name: str,
        process: Driver | None,
        *,
        files: Files | None = None,
        clock: Clock | None = None,
    ) -> None:
        if not layout.is_file_name(name):
            raise ValueError(f"name={name!r}: <task>-<attempt> expected, such as 3-17")
        self._log_dir = os.path.abspath(log_dir)
        self._token = layout.check_token(token)
        self._name = name
        self._process = process
        self._files = files or RealFiles()
        self._clock = clock or SystemClock()
        self._open: dict[tuple[str, int], _PartitionFile] = {}

    def append(
        self, topic: str, partition: int, records: Records, config: LogConfig, compression: Compression = None
    ) -> None:
        """Encode records for a partition, after those of earlier calls. config: that of the topic, with its defaults.
        compression: None for that of the topic.

        Raises what Log.append raises for the records; OSError.
        """
        policy = policy_of(config)
        encoder = policy.encoder(records, compression, self._clock.wall_ms())
        file = self._open.get((topic, partition))
        while (group := policy.next_group(encoder, GROUP_BYTES)) is not None:
            if file is None:
                file = self._open[topic, partition] = _PartitionFile(self._create(topic, partition))
            file.write(group)

    def _create(self, topic: str, partition: int) -> LogFile:
        path = make_staging(self._log_dir, topic, partition, self._token, self._process, self._files)
        whole = os.path.join(path, self._name)
        if exists(whole, follow_symlinks=False):
            raise os_error(errno.EEXIST, whole)
        return self._files.open(whole, write=True, create=True)

    def finish(self) -> list[StagedFile]:
        """Make every file durable and close it. Returns them, sorted by topic and partition."""
        found = []
        try:
            for (topic, partition), file in sorted(self._open.items()):
                self._files.fsync(file.file)
                staging = os.path.dirname(file.file.path)
                self._files.fsync_dir(staging)
                self._files.fsync_dir(os.path.dirname(staging))
                found.append(file.staged(topic, partition, self._name))
            if found:
                self._files.fsync_dir(self._log_dir)
        finally:
            self.close()
        return found

    def close(self) -> None:
        """Close the files. Those that finish() has not returned stay where they are and do not count."""
        for file in self._open.values():
            file.file.close()
        self._open = {}


class _PartitionFile:
    """A file being written, and what a commit must know of it."""

    def __init__(self, file: LogFile) -> None:
        self.file = file
        self._records = self._bytes = self._crc = 0
        self._max_timestamp = -1

    def write(self, group: Any) -> None:
        group.assign(self._records, 0)
        with memoryview(group) as data:
            self.file.write(data, self._bytes)
            self._crc = crc32c(data, self._crc)
            self._bytes += data.nbytes
        self._records += group.count
        self._max_timestamp = max(self._max_timestamp, group.max_timestamp)

    def staged(self, topic: str, partition: int, name: str) -> StagedFile:
        return StagedFile(topic, partition, name, self._records, self._bytes, self._crc, self._max_timestamp)
