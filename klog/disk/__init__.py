"""disk: bytes to and from the kernel. Takes paths and buffers, gives open files, mappings and syncs that mean it.

The only room that makes system calls on files. Its door: Files (what a disk must do), RealFiles (this machine's),
LogFile, HandleCache, DirectoryLock, and what takes stored bytes on without a copy: view_of, send_slice.
"""

from klog.disk._io import AlignedBuffer, LogFile
from klog.disk._views import view_of
from klog.disk.files import Files, RealFiles
from klog.disk.handles import HandleCache
from klog.disk.lock import DirectoryLock
from klog.disk.send import encrypts, send_slice, writable

__all__ = [
    "AlignedBuffer",
    "DirectoryLock",
    "Files",
    "HandleCache",
    "LogFile",
    "RealFiles",
    "encrypts",
    "send_slice",
    "view_of",
    "writable",
]
