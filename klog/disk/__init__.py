"""disk: file I/O. Takes paths and buffers, returns open files, mappings and syncs that are checked.

The only package that makes system calls on files. Its API:

  files              Files (the protocol), RealFiles (this machine's), LogFile, HandleCache, read_whole, read_parts
  new files          NewFile: a stream of bytes that appears as a whole file; FileSink: a stream of bytes
  direct I/O         DirectFile, DirectWriter, DirectReader; WriteBehind bounds the page cache that a growing file uses
  private files      Files.replace(private=True), read_private: mode 0600, for keys
  names              exists, is_directory: unlike os.path's, they raise if the disk cannot be read; remove_tree;
                     file_state: whether a file has changed; settled_change: how long a listing of a directory lasts;
                     make_directories, sync_name: names of directories that survive a power cut
  locks              DirectoryLock, directory_lock and Leases between processes, Claim between the writers of one
                     process
  zero copy          view_of, let_go, send_slice, and send_yielding in an event loop
  wake-ups           Notifier, Waiter
  page cache hits    ReadSampler counts the bytes that reads got from memory
  errors             is_final, is_full, lacks_descriptors classify an OSError

The modules residency and monitor report what is in the page cache. They are imported only where they are used.
"""

from klog import lazy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from klog.disk._batch_read import read_parts
    from klog.disk._direct import DirectFile
    from klog.disk._directory import identity_of
    from klog.disk._handles import Handles, Reusable
    from klog.disk._io import AlignedBuffer, LogFile
    from klog.disk._residency import ReadSampler
    from klog.disk._send import SendCounts, Target, check_target, send_slice
    from klog.disk._views import let_go, view_of
    from klog.disk._watched import Watched
    from klog.disk._whole import read_whole
    from klog.disk.claim import Claim
    from klog.disk.direct import DirectReader, DirectWriter
    from klog.disk.faults import failed_sync_in, is_final, is_full, lacks_descriptors, naming_the_next_step, os_error
    from klog.disk.files import Files, RealFiles
    from klog.disk.handles import HandleCache
    from klog.disk.leases import NUMBERS, Holder, Leases
    from klog.disk.lock import DirectoryLock, check_directory_lock, directory_lock, holder_of
    from klog.disk.new_directories import make_directories, sync_name
    from klog.disk.new_file import FileSink, NewFile
    from klog.disk.presence import (
        FileState,
        check_directory,
        exists,
        file_state,
        is_directory,
        refuse_link,
        settled_change,
    )
    from klog.disk.private import read_private
    from klog.disk.removal import remove_tree
    from klog.disk.send import YIELD_BYTES, HasFileno, cork, send_bytes, send_yielding
    from klog.disk.watch import Notifier, Waiter
    from klog.disk.write_behind import BehindCounts, WriteBackFailed, WriteBehind

__all__ = [
    "NUMBERS",
    "YIELD_BYTES",
    "AlignedBuffer",
    "BehindCounts",
    "Claim",
    "DirectFile",
    "DirectReader",
    "DirectWriter",
    "DirectoryLock",
    "FileSink",
    "FileState",
    "Files",
    "HandleCache",
    "Handles",
    "HasFileno",
    "Holder",
    "Leases",
    "LogFile",
    "NewFile",
    "Notifier",
    "ReadSampler",
    "RealFiles",
    "Reusable",
    "SendCounts",
    "Target",
    "Waiter",
    "Watched",
    "WriteBackFailed",
    "WriteBehind",
    "check_directory",
    "check_directory_lock",
    "check_target",
    "cork",
    "directory_lock",
    "exists",
    "failed_sync_in",
    "file_state",
    "holder_of",
    "identity_of",
    "is_directory",
    "is_final",
    "is_full",
    "lacks_descriptors",
    "let_go",
    "make_directories",
    "naming_the_next_step",
    "os_error",
    "read_parts",
    "read_private",
    "read_whole",
    "refuse_link",
    "remove_tree",
    "send_bytes",
    "send_slice",
    "send_yielding",
    "settled_change",
    "sync_name",
    "view_of",
]
_PLACES = {
    "AlignedBuffer": "_io",
    "BehindCounts": "write_behind",
    "Claim": "claim",
    "DirectFile": "_direct",
    "DirectReader": "direct",
    "DirectWriter": "direct",
    "DirectoryLock": "lock",
    "FileSink": "new_file",
    "FileState": "presence",
    "Files": "files",
    "HandleCache": "handles",
    "Handles": "_handles",
    "HasFileno": "send",
    "Holder": "leases",
    "Leases": "leases",
    "LogFile": "_io",
    "NUMBERS": "leases",
    "NewFile": "new_file",
    "Notifier": "watch",
    "ReadSampler": "_residency",
    "RealFiles": "files",
    "Reusable": "_handles",
    "SendCounts": "_send",
    "Target": "_send",
    "Waiter": "watch",
    "Watched": "_watched",
    "WriteBackFailed": "write_behind",
    "WriteBehind": "write_behind",
    "YIELD_BYTES": "send",
    "check_directory": "presence",
    "check_directory_lock": "lock",
    "check_target": "_send",
    "cork": "send",
    "directory_lock": "lock",
    "exists": "presence",
    "failed_sync_in": "faults",
    "file_state": "presence",
    "holder_of": "lock",
    "identity_of": "_directory",
    "is_directory": "presence",
    "is_final": "faults",
    "is_full": "faults",
    "lacks_descriptors": "faults",
    "let_go": "_views",
    "make_directories": "new_directories",
    "naming_the_next_step": "faults",
    "os_error": "faults",
    "read_parts": "_batch_read",
    "read_private": "private",
    "read_whole": "_whole",
    "refuse_link": "presence",
    "remove_tree": "removal",
    "send_bytes": "send",
    "send_slice": "_send",
    "send_yielding": "send",
    "settled_change": "presence",
    "sync_name": "new_directories",
    "view_of": "_views",
}

__getattr__ = lazy.attributes(globals(), _PLACES)


def __dir__() -> list[str]:
    return sorted(__all__)
