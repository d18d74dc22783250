"""disk: bytes to and from the kernel. Takes paths and buffers, gives open files, mappings and syncs that mean it.

The only room that makes system calls on files. Its door: Files (what a disk must do), RealFiles (this machine's),
LogFile, HandleCache, read_whole, read_parts; DirectoryLock and directory_turn, which keep processes apart; what takes
stored bytes on without a copy: view_of, send_slice; what sleeps until there is news: Bell, Waiter; what counts how many
bytes of reads came from memory: ReadSampler. What of a file is in the page cache is in the modules residency and
monitor, loaded by those who look.
"""

from klog.disk._batch_read import read_parts
from klog.disk._io import AlignedBuffer, LogFile
from klog.disk._residency import ReadSampler
from klog.disk._views import view_of
from klog.disk.files import Files, RealFiles, read_whole
from klog.disk.handles import HandleCache
from klog.disk.lock import DirectoryLock, directory_turn
from klog.disk.send import encrypts, send_slice, writable
from klog.disk.watch import Bell, Waiter

__all__ = [
    "AlignedBuffer",
    "Bell",
    "DirectoryLock",
    "Files",
    "HandleCache",
    "LogFile",
    "ReadSampler",
    "RealFiles",
    "Waiter",
    "directory_turn",
    "encrypts",
    "read_parts",
    "read_whole",
    "send_slice",
    "view_of",
    "writable",
]
