"""RocksDB by its C interface: durable puts, batches, a compaction and a scan.

The library is that of the system (librocksdb of Debian), found at run time. The bindings that are published as wheels
hold the GIL during a put, so that two threads could never share a sync; ctypes releases it in every call.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import functools
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

_NO_COMPRESSION = 0
_POINTERS = (
    "options_create",
    "open",
    "writeoptions_create",
    "writebatch_create",
    "flushoptions_create",
    "readoptions_create",
    "create_iterator",
    "iter_key",
)


def library_name() -> str | None:
    """Return the file name of the library on this machine, or None."""
    return ctypes.util.find_library("rocksdb")


@functools.cache
def _library() -> ctypes.CDLL:
    """Load the library and declare the return types of its functions."""
    found = ctypes.CDLL(library_name())
    for function in _POINTERS:
        getattr(found, f"rocksdb_{function}").restype = ctypes.c_void_p
    found.rocksdb_iter_valid.restype = ctypes.c_ubyte
    return found


class RocksDb:
    """An open database, without compression and otherwise with RocksDB's defaults. Any thread."""

    def __init__(self, path: Path, *, write_buffer_bytes: int | None = None, auto_compactions: bool = True) -> None:
        options = self._pointer("options_create")
        self._call("options_set_create_if_missing", options, 1)
        self._call("options_set_compression", options, _NO_COMPRESSION)
        self._call("options_set_disable_auto_compactions", options, int(not auto_compactions))
        if write_buffer_bytes is not None:
            self._call("options_set_write_buffer_size", options, ctypes.c_size_t(write_buffer_bytes))
        self._db = self._checked("open", options, os.fsencode(path))
        self._call("options_destroy", options)
        self._plain, self._sync = self._pointer("writeoptions_create"), self._pointer("writeoptions_create")
        self._call("writeoptions_set_sync", self._sync, 1)

    def put_durably(self, key: bytes, value: bytes) -> None:
        self._checked("put", self._db, self._sync, *_bytes(key), *_bytes(value))

    def put_all(self, pairs: Iterable[tuple[bytes, bytes]]) -> None:
        """Put pairs in one batch, without a sync."""
        batch = self._pointer("writebatch_create")
        for key, value in pairs:
            self._call("writebatch_put", batch, *_bytes(key), *_bytes(value))
        self._checked("write", self._db, self._plain, batch)
        self._call("writebatch_destroy", batch)

    def flush(self) -> None:
        options = self._pointer("flushoptions_create")
        self._checked("flush", self._db, options)
        self._call("flushoptions_destroy", options)

    def compact(self) -> None:
        """Compact the whole database, in this thread and RocksDB's own threads."""
        self._call("compact_range", self._db, None, ctypes.c_size_t(0), None, ctypes.c_size_t(0))

    def keys(self, first: bytes) -> Iterator[bytes]:
        """Yield the keys from `first` on, in order."""
        options = self._pointer("readoptions_create")
        cursor = ctypes.c_void_p(self._call("create_iterator", self._db, options))
        self._call("iter_seek", cursor, *_bytes(first))
        size = ctypes.c_size_t()
        while self._call("iter_valid", cursor):
            yield ctypes.string_at(self._call("iter_key", cursor, ctypes.byref(size)), size.value)
            self._call("iter_next", cursor)
        self._call("iter_destroy", cursor)
        self._call("readoptions_destroy", options)

    def close(self) -> None:
        for options in (self._plain, self._sync):
            self._call("writeoptions_destroy", options)
        self._call("close", self._db)

    def _call(self, name: str, *arguments: Any) -> Any:
        return getattr(_library(), f"rocksdb_{name}")(*arguments)

    def _pointer(self, name: str) -> ctypes.c_void_p:
        return ctypes.c_void_p(self._call(name))

    def _checked(self, name: str, *arguments: Any) -> ctypes.c_void_p:
        """Call a function whose last argument receives an error text. Raises OSError with that text."""
        error = ctypes.c_char_p()
        result = self._call(name, *arguments, ctypes.byref(error))
        if error.value is not None:
            raise OSError(f"rocksdb_{name}: {error.value.decode(errors='replace')}")
        return ctypes.c_void_p(result)


def _bytes(data: bytes) -> tuple[bytes, ctypes.c_size_t]:
    return data, ctypes.c_size_t(len(data))
