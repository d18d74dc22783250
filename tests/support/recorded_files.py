"""The disk of a machine, with a record of the removals and syncs of names."""

from __future__ import annotations

from klog.disk import RealFiles


class RecordedFiles(RealFiles):
    """calls: ("unlink" or "sync", path), in order."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[str, str]] = []

    def unlink(self, path: str) -> None:
        self.calls.append(("unlink", path))
        super().unlink(path)

    def fsync_dir(self, path: str) -> None:
        self.calls.append(("sync", path))
        super().fsync_dir(path)
