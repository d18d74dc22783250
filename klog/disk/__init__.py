"""disk: bytes to and from the kernel. Takes paths and buffers, gives open files, mappings and syncs that mean it.

The only room that makes system calls on files. Its door: Files (what a disk must do), RealFiles (this machine's),
LogFile, HandleCache, read_whole, read_parts; past the page cache: DirectFile, DirectWriter, DirectReader, and
WriteBehind, which keeps a growing file from filling it; DirectoryLock and directory_lock, which keep processes apart;
Claim, which keeps the writers of one process apart;
what takes stored bytes on without a copy: view_of, let_go, send_slice, in an event loop send_yielding; what sleeps
until there is news: Bell, Waiter; what counts how many bytes of reads came from memory: ReadSampler; what an OSError
means: is_final and its like. What of a file is in the page cache is in the modules residency and monitor, loaded by
those who look.
"""

from klog.disk._batch_read import read_parts
from klog.disk._direct import DirectFile
from klog.disk._io import AlignedBuffer, LogFile
from klog.disk._lru import Lru
from klog.disk._residency import ReadSampler
from klog.disk._send import SendCounts, Target, check_target
from klog.disk._views import let_go, view_of
from klog.disk.claim import Claim
from klog.disk.direct import DirectReader, DirectWriter
from klog.disk.faults import failed_sync_in, is_final, is_full, lacks_descriptors, naming_the_next_step, os_error
from klog.disk.files import Files, RealFiles, read_whole
from klog.disk.handles import HandleCache
from klog.disk.lock import DirectoryLock, check_directory_lock, directory_lock
from klog.disk.send import YIELD_BYTES, HasFileno, cork, send_bytes, send_slice, send_yielding
from klog.disk.watch import Bell, Waiter
from klog.disk.write_behind import BehindCounts, WriteBackFailed, WriteBehind

__all__ = [
    "YIELD_BYTES",
    "AlignedBuffer",
    "BehindCounts",
    "Bell",
    "Claim",
    "DirectFile",
    "DirectReader",
    "DirectWriter",
    "DirectoryLock",
    "Files",
    "HandleCache",
    "HasFileno",
    "LogFile",
    "Lru",
    "ReadSampler",
    "RealFiles",
    "SendCounts",
    "Target",
    "Waiter",
    "WriteBackFailed",
    "WriteBehind",
    "check_directory_lock",
    "check_target",
    "cork",
    "directory_lock",
    "failed_sync_in",
    "is_final",
    "is_full",
    "lacks_descriptors",
    "let_go",
    "naming_the_next_step",
    "os_error",
    "read_parts",
    "read_whole",
    "send_bytes",
    "send_slice",
    "send_yielding",
    "view_of",
]
