"""Copies directories, durably and with owner, mode and times, and compares two of them."""

from __future__ import annotations

import contextlib
import os
import shutil

from klog.disk import Files, naming_the_next_step
from klog.inspect.files import WINDOW, ReadOnlyFile, classify
from klog.log.staged.layout import STAGING
from klog.manager.moving import copy_file


def copy_files(files: Files, source: str, target: str) -> None:
    """Copy the regular files of a partition's directory, and what jobs have staged there, into a new one, durably.
    Raises OSError."""
    files.mkdir(target)
    for name in _staging(source):
        copy_files(files, os.path.join(source, name), os.path.join(target, name))
    for name in regular_files(source):
        here, there = os.path.join(source, name), os.path.join(target, name)
        copy_file(files, here, there)
        _copy_stat(here, there)
    _copy_stat(source, target)
    files.fsync_dir(target)


def _copy_stat(source: str, target: str) -> None:
    with naming_the_next_step(target):
        shutil.copystat(source, target)


def regular_files(path: str) -> list[str]:
    """Return the names of the regular files in a directory."""
    with os.scandir(path) as entries:
        return sorted(entry.name for entry in entries if entry.is_file(follow_symlinks=False))


def _staging(path: str) -> list[str]:
    with os.scandir(path) as entries:
        return sorted(
            entry.name for entry in entries if entry.name.startswith(STAGING) and entry.is_dir(follow_symlinks=False)
        )


def others(path: str) -> list[str]:
    """Return the names of what has the name of a partition's file and is none, such as a FIFO or a link."""
    regular = set(regular_files(path))
    return sorted(name for name in os.listdir(path) if name not in regular and classify(name).kind != "unknown")


def make_durable(files: Files, path: str, like: str) -> None:
    """Sync every file of a directory and the directory, and give them the owner of another directory."""
    owner = os.stat(like)
    for name in _staging(path):
        make_durable(files, os.path.join(path, name), like)
    for name in regular_files(path):
        whole = os.path.join(path, name)
        with files.open(whole, write=True) as file:
            files.fsync(file)
        _give_to(whole, owner)
    _give_to(path, owner)
    files.fsync_dir(path)


def _give_to(path: str, owner: os.stat_result) -> None:
    with contextlib.suppress(PermissionError):  # only root may
        os.chown(path, owner.st_uid, owner.st_gid)


def changes(before: str, after: str) -> list[dict[str, object]]:
    """Return the files that differ: name, change (removed, created, truncated or rewritten), and sizes in bytes. What
    is not a file is removed: it is not copied."""
    found: list[dict[str, object]] = []
    old, new = set(regular_files(before)), set(regular_files(after))
    for name in sorted(old | new):
        sizes = [
            os.path.getsize(os.path.join(path, name)) if name in names else None
            for path, names in ((before, old), (after, new))
        ]
        if name not in new:
            change = "removed"
        elif name not in old:
            change = "created"
        else:
            same = _same_bytes(os.path.join(before, name), os.path.join(after, name))
            if same and sizes[0] == sizes[1]:
                continue
            change = "truncated" if same and (sizes[1] or 0) < (sizes[0] or 0) else "rewritten"
        found.append({"name": name, "change": change, "size_before": sizes[0], "size_after": sizes[1]})
    removed = {"change": "removed", "size_before": 0, "size_after": None}
    return found + [{"name": name, **removed} for name in others(before)]


def _same_bytes(a: str, b: str) -> bool:
    """Return whether one of the files is the beginning of the other."""
    with ReadOnlyFile(a, scan=True) as one, ReadOnlyFile(b, scan=True) as two:
        size = min(one.size, two.size)
        for position in range(0, size, WINDOW):
            count = min(WINDOW, size - position)
            one.passed(position)
            two.passed(position)
            if one.read_at(position, count) != two.read_at(position, count):
                return False
    return True
