"""Removal of a directory with all that is in it. Links are removed and not followed."""

from __future__ import annotations

import os

from klog.disk.faults import naming_the_next_step
from klog.disk.files import Files
from klog.disk.presence import is_directory


def remove_tree(path: str, files: Files) -> None:
    """Remove a directory with its content, in the order of the names, if it exists. Raises OSError, with the path
    that could not be removed."""
    if not is_directory(path, follow_symlinks=False):
        return
    with naming_the_next_step(path):
        names = sorted(os.listdir(path))
    for name in names:
        inside = os.path.join(path, name)
        if is_directory(inside, follow_symlinks=False):
            remove_tree(inside, files)
        else:
            files.unlink(inside)
    files.rmdir(path)
