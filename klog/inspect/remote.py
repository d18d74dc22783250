"""Files of a log directory by URL: in an object store or another file system that pyarrow knows (extra [arrow]).

    file:///path  s3://bucket/path  gs://bucket/path  abfs://container@account/path  hdfs://host/path

Credentials and endpoints are those of pyarrow: in its usual environment variables, or in the URL, as in
s3://bucket/path?endpoint_override=localhost:9000&scheme=http.
"""

from __future__ import annotations

import errno
import os
import posixpath
import re
from collections.abc import Iterator
from contextlib import contextmanager

from klog import extras
from klog.scratch import scratch_directory


def is_url(path: str) -> bool:
    """Return whether this is a URL and not a path."""
    return re.match(r"[a-z][a-z0-9+.-]*://", path) is not None


class RemoteFiles:
    """A file or a directory by URL. shown: the URL without a password. Raises ImportError, ValueError: a URL that
    pyarrow does not know."""

    def __init__(self, url: str) -> None:
        named = re.sub("//.*@", "//", url, flags=re.DOTALL).partition("?")[0]  # a password may have been left unescaped
        try:
            from pyarrow import ArrowInvalid, fs
        except ImportError as error:
            raise extras.missing(f"a URL, {named},", "pyarrow", "arrow", error) from error
        try:
            self._system, path = fs.FileSystem.from_uri(url)
        except ArrowInvalid as error:
            raise ValueError(f"{named}: {str(error).replace(url, named)}") from None
        self._path = path.rstrip("/")
        if not self._path:
            raise ValueError(f"{named}: name a file or a directory, such as s3://bucket/flights-0")
        self.shown = re.sub("//[^/@]*:[^/@]*@", "//", url.partition("?")[0]).rstrip("/")

    @contextmanager
    def copied(self) -> Iterator[str]:
        """Yield the path of a copy, which is removed afterwards. The directory for temporary files needs space for it.
        Raises OSError."""
        from pyarrow import fs

        kind = self._system.get_file_info(self._path).type
        if kind == fs.FileType.NotFound:
            raise FileNotFoundError(errno.ENOENT, "no such file or directory", self.shown)
        parent, name = posixpath.split(self._path)
        with scratch_directory("klog-dump-") as scratch:
            # The name of a file's directory is kept: its topic decides how records are decoded.
            local = os.path.join(scratch, posixpath.basename(parent), name)
            os.makedirs(local if kind == fs.FileType.Directory else os.path.dirname(local), exist_ok=True)
            fs.copy_files(self._path, local, source_filesystem=self._system)
            yield local
