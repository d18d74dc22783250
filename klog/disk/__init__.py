"""disk: bytes to and from the kernel. Takes paths and buffers, gives open files, mappings and syncs that mean it.

The only room that makes system calls on files. Its door: Files (what a disk must do), RealFiles (this machine's),
LogFile, HandleCache, DirectoryLock.
"""

from klog.disk._io import AlignedBuffer, LogFile
from klog.disk.files import Files, RealFiles
from klog.disk.handles import HandleCache
from klog.disk.lock import DirectoryLock

__all__ = ["AlignedBuffer", "DirectoryLock", "Files", "HandleCache", "LogFile", "RealFiles"]
