"""Lists the partition directories that this process writes in. A second writer of one is refused, by whatever path.

The locks of LogManager and Log.open separate processes. Within one process a directory may be reached by another key,
by a link or by another mount. A directory is known by its device and inode, which stay the same when it is renamed.
"""

from __future__ import annotations

import os

from klog.errors import AlreadyLocked

_claims: dict[tuple[int, int], Claim] = {}  # setdefault() is a single step, for threads and for signal handlers


class Claim:
    """Held from take() to release(). The two steps let its owner release it wherever Ctrl-C ends take().

    A forked child holds nothing: its copies of the parent's claims are void.
    """

    def __init__(self, directory: str, identity: tuple[int, int] | None = None) -> None:
        """identity: that of the directory, if the caller knows it."""
        self._directory = directory
        if identity is None:
            found = os.stat(directory)
            identity = found.st_dev, found.st_ino
        self._key = identity

    def take(self) -> None:
        """Take the directory. Raises AlreadyLocked if another claim of this process holds it."""
        directory = self._directory
        if _claims.setdefault(self._key, self) is not self:
            real = os.path.realpath(directory)
            also = "" if real == directory else f" (a link to {real})"
            raise AlreadyLocked(
                f"{directory}{also} is open for writing in this process already: use that Log, or close it first; "
                "read_only=True opens the directory beside it",
                path=directory,
                holder=f"process {os.getpid()} (this one)",
            )

    @property
    def held(self) -> bool:
        """Does this claim hold the directory?"""
        return _claims.get(self._key) is self

    def release(self) -> None:
        """Release the directory; releasing twice is allowed."""
        if self.held:
            _claims.pop(self._key, None)


os.register_at_fork(after_in_child=_claims.clear)
