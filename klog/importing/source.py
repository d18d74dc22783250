"""One input that can be read twice: a file, a .gz file, or standard input kept in a temporary file.

Lines are found in bytes and decoded one by one, so that invalid UTF-8 is reported with its line number. A line longer
than LINE_BYTES_MAX is rejected. Progress is counted in bytes of the file as stored, compressed or not.
"""

from __future__ import annotations

import errno
import gzip
import io
import os
import shutil
import stat
import sys
import tempfile
import zlib
from collections.abc import Iterator
from types import TracebackType
from typing import BinaryIO, Self, cast

from klog.disk import FileState, file_state
from klog.errors import KlogError
from klog.importing.errors import RowError, UnknownFormat

LINE_BYTES_MAX = 64 << 20
FORMATS = ("csv", "tsv", "jsonl", "parquet")
_SUFFIXES = {
    ".csv": "csv", ".tsv": "tsv", ".tab": "tsv",
    ".json": "jsonl", ".jsonl": "jsonl", ".ndjson": "jsonl",
    ".parquet": "parquet", ".pq": "parquet",
}  # fmt: skip
_BOM = b"\xef\xbb\xbf"
_GZIP_ERRORS = (EOFError, zlib.error, gzip.BadGzipFile)


class Source:
    """One input. One reader at a time; any thread may read `position`."""

    def __init__(self, path: str | os.PathLike[str], *, stdin: BinaryIO | None = None) -> None:
        self.name = os.fspath(path)
        self._spool: BinaryIO | None = None
        self._raw: BinaryIO | None = None
        self._state: FileState | None = None  # both passes must see the same file
        if self.name == "-":
            self.name = "<stdin>"
            self._spool = cast(BinaryIO, tempfile.TemporaryFile(prefix="klog-import-"))
            shutil.copyfileobj(stdin if stdin is not None else sys.stdin.buffer, self._spool, 1 << 20)
            self.size = self._spool.tell()
        else:
            try:
                info = os.stat(self.name)
            except FileNotFoundError:
                raise FileNotFoundError(
                    errno.ENOENT, "no such file; name a CSV, JSON lines or Parquet file", self.name
                ) from None
            if stat.S_ISDIR(info.st_mode):
                raise IsADirectoryError(errno.EISDIR, "is a directory; name one file", self.name)
            if not stat.S_ISREG(info.st_mode):
                raise UnknownFormat(f"{self.name} is not a regular file; pipe it in: klog import - < {self.name}")
            self.size = info.st_size
        self.compressed = self._open_raw().read(2) == b"\x1f\x8b"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        if self._raw is not None and self._raw is not self._spool:
            self._raw.close()
        if self._spool is not None:
            self._spool.close()
        self._raw = self._spool = None

    @property
    def position(self) -> int:
        """Bytes of the file, as stored, that have been read so far."""
        return self._raw.tell() if self._raw is not None and not self._raw.closed else 0

    def format(self) -> str:
        """Return the format by the file's suffix; without a known suffix, by the first bytes."""
        if not self.name.startswith("<"):
            stem, suffix = os.path.splitext(self.name)
            if suffix.lower() == ".gz":
                suffix = os.path.splitext(stem)[1]
            known = _SUFFIXES.get(suffix.lower())
            if known is not None:
                return known
        try:
            head = self.open().read(4096)
        except _GZIP_ERRORS as error:
            raise RowError(f"the .gz data is damaged or incomplete ({error})", path=self.name, line=1) from error
        if head.startswith(b"PAR1"):
            return "parquet"
        text = head.removeprefix(_BOM).lstrip()
        if text.startswith(b"{"):
            return "jsonl"
        if b"\0" in head:
            raise UnknownFormat(f"{self.name} is neither CSV, JSON lines nor Parquet; name its format with --format")
        return "csv"

    def open(self) -> BinaryIO:
        """Return a stream of the decompressed bytes from the start. The source closes it, and closes an earlier
        stream."""
        raw = self._open_raw()
        if self.compressed:
            return cast(BinaryIO, io.BufferedReader(cast(io.RawIOBase, gzip.GzipFile(fileobj=raw)), 1 << 20))
        return raw

    def lines(self) -> Iterator[tuple[int, str]]:
        """Yield (line number from 1, text with line end). Raises RowError for invalid UTF-8, a line that is
        too long, a damaged .gz."""
        stream = self.open()
        number = 0
        while True:
            number += 1
            try:
                raw = stream.readline(LINE_BYTES_MAX + 1)
            except _GZIP_ERRORS as error:
                raise RowError(
                    f"the .gz data is damaged or incomplete ({error})", path=self.name, line=number
                ) from error
            if not raw:
                return
            if len(raw) > LINE_BYTES_MAX:
                raise RowError(f"a line longer than {LINE_BYTES_MAX >> 20} MiB", path=self.name, line=number)
            if number == 1:
                raw = raw.removeprefix(_BOM)
            try:
                yield number, raw.decode()
            except UnicodeDecodeError as error:
                raise RowError(
                    f"byte {error.start + 1} of the line, 0x{raw[error.start]:02x}, is not UTF-8; "
                    f"convert the file first (iconv -f latin1 -t utf-8)",
                    path=self.name,
                    line=number,
                ) from error

    def _open_raw(self) -> BinaryIO:
        if self._spool is not None:
            self._spool.seek(0)
            self._raw = self._spool
        else:
            if self._raw is not None:
                self._raw.close()
            self._raw = open(self.name, "rb", buffering=1 << 20)
            state = file_state(self._raw.fileno())
            if self._state not in (None, state):
                raise KlogError(f"{self.name} changed while it was being imported; import it again when it is complete")
            self._state = state
        return self._raw
