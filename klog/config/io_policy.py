"""How a log's bytes are written to and read from the disk: the `klog.io.*` keys of a topic as one object.

Every policy keeps the promises of append and flush, and writes the same bytes. Policies differ in what they leave in
the page cache, and in which threads wait for the disk. docs/io.md describes when to use which.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Self

from klog.values import dataclass, fields

Write = Literal["buffered", "dontcache", "direct"]
Preallocate = Literal["steps", "none", "zeros"]
Read = Literal["buffered", "direct"]


@dataclass(frozen=True, slots=True)
class IoPolicy:
    """The type of LogConfig.io. One field per key, without the prefix `klog.io.`.

    write                   buffered: into the page cache. dontcache: write-back starts at once, and the pages leave the
                            cache (RWF_DONTCACHE). direct: whole pages of large appends bypass it (O_DIRECT). If kernel
                            or file system do not support it: buffered. Applies from the next segment on
    write_behind_bytes      write-back starts during appends, and pages this far before the log end leave the cache; 0
                            leaves both to the kernel
    preallocate             steps: blocks ahead of the log end, in steps that double; the file's length stays that of
                            its batches. zeros: the same steps as written zeros, for file systems that cannot allocate
                            blocks alone; the length is larger until roll or close. none: the file grows write by write
    preallocate_step_bytes  the largest step

    read                    buffered: through the page cache. direct: Log.read(), its chunks and columns bypass it
    read_ahead_bytes        largest read-ahead window for sequential readers; 0: only the kernel's own read-ahead
    read_cache_bytes        size of each log's cache of direct reads and decompressed batches; 0: no cache
    read_cache_ms           how long that cache keeps its entries
    warm_up_bytes           newest bytes to read when the log is opened; 0: none
    warm_up_ms              how long that may delay the opening
    scan_drop_behind        whether scans drop the pages that they have loaded into the page cache
    """

    write: Write = "buffered"
    write_behind_bytes: int = 0
    preallocate: Preallocate = "steps"
    preallocate_step_bytes: int = 16 << 20
    read: Read = "buffered"
    read_ahead_bytes: int = 0
    read_cache_bytes: int = 0
    read_cache_ms: int = 300_000
    warm_up_bytes: int = 0
    warm_up_ms: int = 1000
    scan_drop_behind: bool = True

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """Return the policy in the values of a topic."""
        return cls(**{one.name: values["klog.io." + one.name.replace("_", ".")] for one in fields(cls)})
