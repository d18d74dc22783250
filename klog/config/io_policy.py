"""How a log's bytes go to the disk and come from it: the `klog.io.*` keys of a topic as one object.

Every policy keeps the promises of append and flush, and writes the same bytes. They differ in what they leave in the
page cache, and in what they make others wait for. docs/io.md says which is for what.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, Self

Write = Literal["buffered", "dontcache", "direct"]
Preallocate = Literal["steps", "none", "zeros"]
Read = Literal["buffered", "direct"]


@dataclass(frozen=True, slots=True)
class IoPolicy:
    """LogConfig.io. A field per key, without the `klog.io.` in front.

    write                   buffered: into the page cache. dontcache: the disk begins at once, and nothing stays in the
                            cache (RWF_DONTCACHE). direct: whole pages of large appends go past it (O_DIRECT). Where
                            kernel or file system cannot, buffered. It holds for segments from the next one on
    write_behind_bytes      the disk begins with what was written, and what lies further behind than this leaves the
                            cache; 0 leaves all that to the kernel
    preallocate             steps: blocks ahead of the log end, in steps that double; the file's length stays that of
                            its batches. zeros: the same steps as written zeros, for file systems that cannot give
                            blocks alone; the length runs ahead until roll or close. none: the file grows write by write
    preallocate_step_bytes  the largest step

    read                    buffered: through the page cache. direct: Log.read(), its chunks and columns go past it
    read_ahead_bytes        largest window that is asked for ahead of a reader in order; 0: the kernel's own read-ahead
    read_cache_bytes        how much of direct reads and of decompressed batches each log keeps; 0: nothing
    read_cache_ms           how long
    warm_up_bytes           of the newest segments, read when the log is opened; 0: nothing
    warm_up_ms              how long that may delay the opening
    scan_drop_behind        do scans drop what they brought into the page cache?
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
        """The policy among the values of a topic."""
        return cls(**{one.name: values["klog.io." + one.name.replace("_", ".")] for one in fields(cls)})
