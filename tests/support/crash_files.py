"""A disk that can lose power: it tracks unsynced changes, so that a power cut can lose any of them (crash_states.py).

Reads see every write at once, as through a page cache. In addition, each file keeps its durable content and the changes
since its last fsync, and each directory does the same for its names. For any thread: the operations reach the disk in
the order of their calls.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import random
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from unittest import mock

from klog.disk import LogFile, RealFiles
from klog.disk._os import ffi, lib
from tests.support.crash_states import PAGE, Cut, Inode, NameChange, State, apply, is_mapped
from tests.support.faulty_io import FUNCTIONS

if TYPE_CHECKING:
    from typing_extensions import Buffer

directory_of = functools.lru_cache(maxsize=4096)(os.path.dirname)  # of the same few names, at every step


T = TypeVar("T")


class PowerCut(BaseException):
    """The machine stops here. It is a BaseException, so that `except Exception` does not catch it."""


class MappedFiles:
    """The durable content of mapped files, whose stores are invisible. By inode number, since names change.

    table: address of a kl_io_t whose fsync reports to this object.
    """

    def __init__(self) -> None:
        self._durable: dict[tuple[int, int], bytes] = {}
        self._call = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)(self._fsync)
        kernel = int(ffi.cast("uintptr_t", lib.kl_io_kernel()))
        self._table = (ctypes.c_void_p * len(FUNCTIONS)).from_buffer_copy(
            ctypes.string_at(kernel, ctypes.sizeof(ctypes.c_void_p) * len(FUNCTIONS))
        )
        self._table[FUNCTIONS.index("fsync")] = ctypes.cast(self._call, ctypes.c_void_p).value
        self.table = ctypes.addressof(self._table)

    def _fsync(self, fd: int) -> int:
        status = os.fstat(fd)
        self._durable[status.st_dev, status.st_ino] = os.pread(fd, status.st_size, 0)
        return 0

    def synced(self, file: LogFile) -> None:
        self._fsync(file.fileno())

    def keep(self, path: str) -> None:
        """Record the file's current content as durable."""
        fd = os.open(path, os.O_RDONLY)
        try:
            self._fsync(fd)
        finally:
            os.close(fd)

    def forget(self, path: str) -> None:
        """Forget the inode number of a file that is to lose this name: it may be reused, if this is the last one."""
        status = os.stat(path)
        if status.st_nlink == 1:
            self._durable.pop((status.st_dev, status.st_ino), None)

    def now_and_durable(self, path: str) -> tuple[bytes, bytes | None]:
        """The content now, and the last synced content; None: the file was never synced."""
        fd = os.open(path, os.O_RDONLY)
        try:
            status = os.fstat(fd)
            data = os.pread(fd, status.st_size, 0)
        finally:
            os.close(fd)
        return data, self._durable.get((status.st_dev, status.st_ino))


def _alone(method: Callable[..., T]) -> Callable[..., T]:
    """One operation of the disk at a time."""

    @functools.wraps(method)
    def operation(self: CrashFiles | CrashFile, *args: Any, **more: Any) -> T:
        with self.disk.lock if isinstance(self, CrashFile) else self.lock:
            return method(self, *args, **more)

    return operation


class CrashFile(LogFile):
    disk: CrashFiles
    inode: Inode

    @_alone
    def write(self, data: bytes, position: int) -> None:
        self.disk.step(f"write {os.path.basename(self.path)} {position}+{len(memoryview(data))}")
        super().write(data, position)
        self.inode.pending.append((position, bytes(data)))

    def write_parts(self, parts: Iterable[Buffer], position: int) -> int:
        """A cut may leave any of the parts."""
        at = position
        for part in parts:
            self.write(bytes(part), at)
            at += len(memoryview(part))
        return at - position

    def write_behind(self, position: int, size: int, wait: bool = False) -> None:
        """Does nothing: a cut may still lose any of the bytes."""
        self.disk.step(f"write behind {os.path.basename(self.path)} {position}+{size} {wait=}")

    def preallocate(self, position: int, size: int, zeros: bool = False) -> None:
        """Preallocation changes neither bytes nor length."""
        if zeros:
            self.write(bytes(size), position)


class CrashDirectFile(CrashFile):
    """A file with O_DIRECT. The whole pages of a write bypass the cache: its head, pages and tail may reach the disk in
    any order. The parts that go through the cache are written back by page, together with earlier writes to that
    page."""

    def write(self, data: bytes, position: int) -> None:
        view, end = memoryview(data), position + len(memoryview(data))
        low, high = -(-position // PAGE) * PAGE, end // PAGE * PAGE
        pieces = ((position, low), (low, high), (high, end)) if low < high else ((position, end),)
        for start, stop in pieces:
            if start < stop:
                page = start // PAGE * PAGE
                before = bytes(self.read(page, start - page))
                super().write(before + view[start - position : stop - position], page)


class Exchange:
    """Two directories that have exchanged their names. unsynced: their parents that were not synced since then."""

    def __init__(self, *names: str) -> None:
        self.names = names
        self.unsynced = {directory_of(name) for name in names}


class CrashFiles(RealFiles):
    """A Files that loses power at operation number `stop_at` (None: never). `steps` counts operations; `log` names
    them.

    before_step: called before each operation, with the disk as the previous operations left it.
    """

    def __init__(self, stop_at: int | None = None, before_step: Callable[[], None] | None = None) -> None:
        self._mapped = MappedFiles()
        super().__init__(self._mapped.table)
        self.lock = threading.RLock()
        self.stop_at = stop_at
        self.before_step = before_step
        self.steps = 0
        self.log: list[str] = []
        self.names: dict[str, Inode] = {}
        self.durable_names: dict[str, Inode] = {}
        self._unsynced: dict[str, list[NameChange]] = {}  # by directory
        self._directories: dict[str, str | None] = {}  # those whose own name is not synced: the synced one, if any
        self._known_directories: dict[str, int] = {}  # and their inode numbers
        self._exchanges: list[Exchange] = []

    def step(self, what: str) -> None:
        if self.stop_at is not None and self.steps >= self.stop_at:
            raise PowerCut(what)
        if self.before_step is not None:
            self.before_step()
        self.steps += 1
        self.log.append(what)

    def inode(self, path: str) -> Inode:
        """The file of this name, created if there is none."""
        if path not in self.names:
            self._name(Inode(mapped=is_mapped(path)), None, path)
        return self.names[path]

    def _name(self, inode: Inode | None, gone: str | None, there: str | None) -> None:
        """Change names as every process sees them; a cut may undo that until the directory is synced."""
        if gone is not None:
            self.names.pop(gone, None)
        if there is not None and inode is not None:
            self.names[there] = inode
        change = NameChange(inode, gone, there)
        for directory in {directory_of(name) for name in (gone, there) if name is not None}:
            self._unsynced.setdefault(directory, []).append(change)

    def keep(self, directory: Path) -> None:
        """Record a directory, every file below it, and their names, as durable."""
        known: dict[int, Inode] = {}
        for place, _, names in os.walk(directory):
            self._known_directories[place] = os.stat(place).st_ino
            for path in [f"{place}/{name}" for name in names]:
                status, mapped = os.stat(path), is_mapped(path)
                inode = known.get(status.st_ino) if status.st_nlink > 1 else None
                if inode is None:
                    data = b"" if mapped else Path(path).read_bytes()
                    inode = known[status.st_ino] = Inode(bytearray(data), mapped=mapped)
                self.names[path] = self.durable_names[path] = inode
                if mapped:
                    self._mapped.keep(path)

    def is_synced(self, path: str) -> bool:
        """Whether a cut leaves the bytes of this file as they are, if it leaves its name."""
        if is_mapped(path):
            now, durable = self._mapped.now_and_durable(path)
            return now == durable
        return not self.names[path].pending

    def open(self, path: str, *, write: bool = False, create: bool = False) -> LogFile:
        return self._opened(CrashFile, path, write, create)

    def open_direct(self, path: str, *, write: bool = False, create: bool = False) -> LogFile:
        return self._opened(CrashDirectFile, path, write, create)

    @_alone
    def _opened(self, kind: type[CrashFile], path: str, write: bool, create: bool) -> LogFile:
        if create and not os.path.exists(path):
            self.step(f"create {os.path.basename(path)}")
            self.inode(path)
        plain = super().open(path, write=write, create=create)
        return self._as(kind, plain, self.inode(path) if write and not is_mapped(path) else Inode(), write)

    @_alone
    def create(self, path: str) -> LogFile:
        self.step(f"create {os.path.basename(path)}")
        plain = super().create(path)
        self._name(Inode(), None, path)
        return self._as(CrashFile, plain, self.names[path], True)

    def _as(self, kind: type[CrashFile], plain: LogFile, inode: Inode, write: bool) -> CrashFile:
        file = kind(os.dup(plain.fileno()), plain.path, write)
        plain.close()
        file.disk, file.inode = self, inode
        return file

    @staticmethod
    def _synced(inode: Inode) -> None:
        for change in inode.pending:
            apply(inode.durable, change)
        inode.pending.clear()

    @_alone
    def fsync(self, file: LogFile) -> None:
        assert isinstance(file, CrashFile)
        self.step(f"fsync {os.path.basename(file.path)}")
        if is_mapped(file.path):
            self._mapped.synced(file)
        self._synced(file.inode)

    def fdatasync(self, file: LogFile) -> None:
        self.fsync(file)

    @_alone
    def truncate(self, file: LogFile, size: int) -> None:
        assert isinstance(file, CrashFile)
        self.step(f"truncate {os.path.basename(file.path)} {size}")
        super().truncate(file, size)
        file.inode.pending.append(size)

    @_alone
    def replace(self, path: str, data: bytes, *, private: bool = False) -> None:
        temporary, inode = path + ".tmp", Inode()
        self.step(f"create {os.path.basename(temporary)}")
        Path(temporary).touch(0o600 if private else 0o640)
        self._name(inode, None, temporary)
        self.step(f"write {os.path.basename(temporary)} 0+{len(data)}")
        Path(temporary).write_bytes(data)
        inode.pending.append((0, data))
        self.step(f"fsync {os.path.basename(temporary)}")
        self._synced(inode)
        self.rename(temporary, path)
        self.fsync_dir(directory_of(path))

    @_alone
    def rename(self, source: str, target: str) -> None:
        self.step(f"rename {os.path.basename(source)} {os.path.basename(target)}")
        if os.path.isdir(source):
            self._rename_directory(source, target)
            return
        if os.path.exists(source):
            self._known(source)
            self._loses_its_name(target)
        os.rename(source, target)
        self._name(self.names[source], source, target)

    def _rename_directory(self, source: str, target: str) -> None:
        """Rename a directory. Its files then have the new path; until the parent is synced, a cut may undo that."""
        self._notice_directories(directory_of(source))
        os.rename(source, target)
        self._directories[target] = self._directories.pop(source, source)
        self._known_directories[target] = self._known_directories.pop(source)
        self._have_moved({source: target})

    @_alone
    def exchange(self, path: str, other: str) -> None:
        """Exchange the names of two directories. Until the parents of both are synced, a cut may undo the exchange for
        both."""
        self.step(f"exchange {os.path.basename(path)} {os.path.basename(other)}")
        for directory in (path, other):
            self._notice_directories(directory_of(directory))
            assert directory not in self._directories, f"{directory}: exchanged before its own name is synced"
        super().exchange(path, other)
        self._directories |= {path: other, other: path}
        self._exchanges.append(Exchange(path, other))
        known = self._known_directories
        known[path], known[other] = known[other], known[path]
        self._have_moved({path: other, other: path})

    @_alone
    def link(self, source: str, target: str) -> None:
        self.step(f"link {os.path.basename(source)} {os.path.basename(target)}")
        super().link(source, target)
        self._name(self._known(source), None, target)

    @_alone
    def mkdir(self, path: str, mode: int = 0o750) -> None:
        self.step(f"mkdir {os.path.basename(path)}/")
        super().mkdir(path, mode)
        self._notice_directories(directory_of(path))

    @_alone
    def rmdir(self, path: str) -> None:
        self.step(f"rmdir {os.path.basename(path)}/")
        super().rmdir(path)
        self._notice_directories(directory_of(path))

    def _have_moved(self, moves: Mapping[str, str]) -> None:
        """Use the new paths of moved directories for their files from now on."""

        def moved(path: str | None) -> str | None:
            for source, target in moves.items():
                if path is not None and path.startswith(source + "/"):
                    return target + path[len(source) :]
            return path

        for names in (self.names, self.durable_names):
            found = {path: names.pop(path) for path in [*names] if moved(path) != path}
            names.update((moved(path) or path, inode) for path, inode in found.items())
        changes = {moves[path]: self._unsynced.pop(path) for path in moves if path in self._unsynced}
        for path, of in changes.items():
            self._unsynced[path] = [NameChange(one.inode, moved(one.gone), moved(one.there)) for one in of]

    def _notice_directories(self, parent: str) -> None:
        """Find directories that were created or removed without a call of this object. A new directory is not on disk
        until its parent is synced."""
        there = {entry.path: entry.inode() for entry in os.scandir(parent) if entry.is_dir()}
        for path, number in there.items():
            if self._known_directories.get(path) != number:
                self._known_directories[path] = number
                self._directories[path] = None
        for path in [path for path in self._known_directories if directory_of(path) == parent and path not in there]:
            del self._known_directories[path]
            self._directories.pop(path, None)
            for name in [name for name in self.names if directory_of(name) == path]:
                self._name(None, name, None)

    @_alone
    def unlink(self, path: str) -> None:
        if os.path.exists(path):
            self.step(f"unlink {os.path.basename(path)}")
            self._known(path)
            self._loses_its_name(path)
            os.unlink(path)
        if path in self.names:
            self._name(None, path, None)

    def _known(self, path: str) -> Inode:
        """The inode of a path. The creation of a mapped file is invisible, so it is registered here."""
        if path not in self.names:
            self._name(Inode(mapped=is_mapped(path)), None, path)
        return self.names[path]

    def _loses_its_name(self, path: str) -> None:
        """Handle a mapped file that loses its name: after a cut the old name may exist, with the current content."""
        if is_mapped(path) and os.path.exists(path):
            self._known(path).durable = bytearray(Path(path).read_bytes())
            self._mapped.forget(path)

    @_alone
    def fsync_dir(self, path: str) -> None:
        self.step(f"fsync {os.path.basename(path)}/")
        self._notice_directories(path)
        synced = {one for one in self._directories if directory_of(one) == path}
        for exchange in self._exchanges:
            exchange.unsynced.discard(path)
            if exchange.unsynced:
                synced.difference_update(exchange.names)
            else:
                synced.update(exchange.names)
        self._exchanges = [exchange for exchange in self._exchanges if exchange.unsynced]
        for directory in synced:
            self._directories.pop(directory, None)
        for name in filter(is_mapped, os.listdir(path)):
            self._known(os.path.join(path, name))
        removed = {name for name in map(directory_of, self.durable_names) if self._is_removed(name, path)}
        for name in list(self.durable_names):
            if directory_of(name) in {path, *removed}:
                del self.durable_names[name]  # removed, or its directory was
        self.durable_names.update({name: inode for name, inode in self.names.items() if directory_of(name) == path})
        for directory in [one for one in self._unsynced if one == path or self._is_removed(one, path)]:
            del self._unsynced[directory]

    @staticmethod
    def _is_removed(directory: str, path: str) -> bool:
        """Whether the sync of `path` has made the removal of a directory somewhere below it durable."""
        return directory.startswith(path + "/") and not os.path.isdir(
            f"{path}/{directory[len(path) + 1 :].split('/', 1)[0]}"
        )

    # ---- after the cut -------------------------------------------------------------------------------------------

    def states(self, root: Path, out: Path, seed: int, randoms: int = 2) -> Iterator[tuple[str, Path]]:
        """Yields (name, directory) for each crash state of the tree at root, with its files in a directory under
        out."""
        for cut in self.cuts(root, seed, randoms):
            yield cut.name, cut.lay_out(out / cut.name)

    def cuts(self, root: Path, seed: int, randoms: int = 2) -> Iterator[State]:
        """Yields crash states of the tree at root, each content once. "all" comes first: only the process has died."""
        cut, rng = self.cut(root), random.Random(seed)
        seen: set[int] = set()
        for state in cut.states(rng, randoms):
            if state.key not in seen:
                seen.add(state.key)
                yield state

    def cut(self, root: Path) -> Cut:
        """A power cut at this moment."""
        there = []
        for directory, _, names in os.walk(root):
            there.append(directory)
            self._notice_directories(directory)
            for name in filter(is_mapped, names):
                self._known(f"{directory}/{name}")
        return Cut(
            root,
            self.steps,
            self.names,
            self.durable_names,
            self._unsynced.values(),
            self._mapped_now(),
            there,
            self._directories,
            [exchange.names for exchange in self._exchanges],
        )

    def _mapped_now(self) -> dict[Inode, tuple[bytes, bytes | None]]:
        """The current and the last synced content of each mapped file."""
        found: dict[Inode, tuple[bytes, bytes | None]] = {}
        for path, inode in self.names.items():
            if inode.mapped:
                found[inode] = self._mapped.now_and_durable(path)
        changed = (change.inode for changes in self._unsynced.values() for change in changes)
        for inode in {*self.durable_names.values(), *changed}:
            if inode is not None and inode.mapped and inode not in found:
                found[inode] = bytes(inode.durable), bytes(inode.durable)
        return found


@contextlib.contextmanager
def dying(files: CrashFiles, left: int, counted: tuple[str, ...] = ("",)) -> Iterator[None]:
    """The process dies before the operation of the disk that follows `left` operations, if there are so many. counted:
    how those begin that are counted; all by default."""
    plain = files.step

    def step(what: str) -> None:
        nonlocal left
        if left <= 0:
            raise PowerCut(what)
        plain(what)
        left -= what.startswith(counted)

    with mock.patch.object(files, "step", step), contextlib.suppress(PowerCut):
        yield


def until_done(files: CrashFiles, deaths: Iterable[int], work: Callable[[], object]) -> None:
    """Do work() in a process that dies inside it, and again in the next one, which goes on with what it finds. deaths:
    for each process that dies, the operation of the disk before which it does. The last process does not."""
    for left in deaths:
        with dying(files, left):
            work()
    work()


def random_deaths(rng: random.Random, steps_max: int) -> Iterator[int]:
    """For until_done(): any number of deaths, each before one of steps_max operations, mostly one of the first."""
    while rng.random() < 0.7:
        yield rng.randrange(rng.randrange(steps_max) + 1)
