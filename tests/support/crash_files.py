"""A disk that can lose power: it tracks unsynced changes, and builds the directories that a power cut could leave.

Reads see every write at once, as through a page cache. In addition, each file keeps its durable content and the changes
since its last fsync, and each directory keeps its names in the same way. What a cut leaves is chosen independently:

    names    of a directory's creations, renames and unlinks since its fsync: all, none, or the first few, in the order
             in which the journals of ext4, xfs and btrfs keep them; independently for each directory
    bytes    of a file's changes since its fsync, also of a file under an old name: all, none, any subset of
             pages; each sector as any of its writes left it; any subset of the writes; the last one torn
    length   where bytes are chosen by pages or sectors: the durable length, the newest, or as far as bytes have landed;
             bytes below it that have not landed are NULs
    indexes  mapped files, whose stores are invisible, only their syncs: each as it is, as it was some entries before,
    any
             of its pages as they are and the others as synced or zeros, or missing

`states()` yields a few fixed states and some that a seed chooses, all different.
"""

from __future__ import annotations

import ctypes
import dataclasses
import hashlib
import os
import random
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from klog.disk import LogFile, RealFiles
from klog.disk._os import ffi, lib
from tests.support.faulty_io import FUNCTIONS

if TYPE_CHECKING:
    from typing_extensions import Buffer

PAGE = 4096
SECTOR = 512
INDEXES = {".index": 8, ".timeindex": 12}
"""Suffixes of mapped files, and the size of an entry of each."""


class PowerCut(BaseException):
    """The machine stops here. An `except Exception` must not catch it."""


Change = tuple[int, bytes] | int
"""A write (position, data), or a new length."""


@dataclasses.dataclass(eq=False)
class Inode:
    """A file's durable bytes, and its pending changes. mapped: the content is in the real file; the bytes here count
    once it has no name."""

    durable: bytearray = dataclasses.field(default_factory=bytearray)
    pending: list[Change] = dataclasses.field(default_factory=list)
    mapped: bool = False


def apply(content: bytearray, change: Change) -> None:
    if isinstance(change, int):
        del content[change:]
        content.extend(bytes(change - len(content)))
        return
    position, data = change
    content.extend(bytes(max(0, position + len(data) - len(content))))
    content[position : position + len(data)] = data


@dataclasses.dataclass(frozen=True)
class NameChange:
    """A change of a directory's names in one step: `gone` is removed, `there` is the new name."""

    inode: Inode | None
    gone: str | None
    there: str | None


@dataclasses.dataclass(frozen=True)
class State:
    """What a cut before operation `stop_at` may leave below a directory. files: bytes by relative path.

    by_sectors: part of a page may have landed without the rest, which "strict" cannot always tell from damage."""

    name: str
    stop_at: int
    files: dict[str, bytes]
    directories: tuple[str, ...]
    by_sectors: bool

    @property
    def key(self) -> bytes:
        """Equal for equal content."""
        digest = hashlib.blake2b(digest_size=16)
        for path, data in sorted(self.files.items()):
            digest.update(b"%d %d " % (len(path), len(data)) + path.encode() + data)
        return digest.digest()

    def lay_out(self, out: Path) -> Path:
        """Write the files below `out`, which is created."""
        for directory in self.directories:
            (out / directory).mkdir(parents=True, exist_ok=True)
        for path, data in self.files.items():
            (out / path).parent.mkdir(parents=True, exist_ok=True)  # one whose removal is not on disk either
            (out / path).write_bytes(data)
        return out


class MappedFiles:
    """The durable content of files whose stores are invisible; by inode number, since names change.

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

    def keep(self, path: Path) -> None:
        """Record the file's current content as durable."""
        status = path.stat()
        self._durable[status.st_dev, status.st_ino] = path.read_bytes()

    def forget(self, path: str) -> None:
        """Forget the inode number, which may be reused."""
        status = os.stat(path)
        self._durable.pop((status.st_dev, status.st_ino), None)

    def durable(self, path: Path) -> bytes | None:
        """None: it was never synced."""
        status = path.stat()
        return self._durable.get((status.st_dev, status.st_ino))


class CrashFile(LogFile):
    disk: CrashFiles
    inode: Inode

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
        """Promises nothing: a cut may still leave any of it."""
        self.disk.step(f"write behind {os.path.basename(self.path)} {position}+{size} {wait=}")

    def preallocate(self, position: int, size: int, zeros: bool = False) -> None:
        """Preallocation changes neither bytes nor length."""
        if zeros:
            self.write(bytes(size), position)


class CrashDirectFile(CrashFile):
    """Its whole pages bypass the cache: head, pages and tail of a write may land in any order. The part through the
    cache lands by the page, with earlier writes to that page."""

    def write(self, data: bytes, position: int) -> None:
        view, end = memoryview(data), position + len(memoryview(data))
        low, high = -(-position // PAGE) * PAGE, end // PAGE * PAGE
        pieces = ((position, low), (low, high), (high, end)) if low < high else ((position, end),)
        for start, stop in pieces:
            if start < stop:
                page = start // PAGE * PAGE
                before = bytes(self.read(page, start - page))
                super().write(before + view[start - position : stop - position], page)


class CrashFiles(RealFiles):
    """A Files that loses power at operation number `stop_at` (None: never). `steps` counts operations; `log` names
    them.

    before_step: called before each operation, with the disk as the previous operations left it.
    """

    def __init__(self, stop_at: int | None = None, before_step: Callable[[], None] | None = None) -> None:
        self._mapped = MappedFiles()
        super().__init__(self._mapped.table)
        self.stop_at = stop_at
        self.before_step = before_step
        self.steps = 0
        self.log: list[str] = []
        self.names: dict[str, Inode] = {}
        self.durable_names: dict[str, Inode] = {}
        self._unsynced: dict[str, list[NameChange]] = {}  # by directory

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
            self._name(Inode(), None, path)
        return self.names[path]

    def _name(self, inode: Inode | None, gone: str | None, there: str | None) -> None:
        """Change names as every process sees them; a cut may undo that until the directory is synced."""
        if gone is not None:
            self.names.pop(gone, None)
        if there is not None and inode is not None:
            self.names[there] = inode
        for directory in {os.path.dirname(name) for name in (gone, there) if name is not None}:
            self._unsynced.setdefault(directory, []).append(NameChange(inode, gone, there))

    def keep(self, directory: Path) -> None:
        """Record every file below a directory, and its name, as durable."""
        for path in directory.rglob("*"):
            if path.is_file():
                mapped = is_mapped(path)
                inode = Inode(bytearray(b"" if mapped else path.read_bytes()), mapped=mapped)
                self.names[str(path)] = self.durable_names[str(path)] = inode
                if mapped:
                    self._mapped.keep(path)

    def open(self, path: str, *, write: bool = False, create: bool = False) -> LogFile:
        return self._opened(CrashFile, path, write, create)

    def open_direct(self, path: str, *, write: bool = False, create: bool = False) -> LogFile:
        return self._opened(CrashDirectFile, path, write, create)

    def _opened(self, kind: type[CrashFile], path: str, write: bool, create: bool) -> LogFile:
        if create and not os.path.exists(path):
            self.step(f"create {os.path.basename(path)}")
            self.inode(path)
        plain = super().open(path, write=write, create=create)
        file = kind(os.dup(plain.fileno()), path, write)
        plain.close()
        file.disk, file.inode = self, self.inode(path) if write and not is_mapped(path) else Inode()
        return file

    @staticmethod
    def _synced(inode: Inode) -> None:
        for change in inode.pending:
            apply(inode.durable, change)
        inode.pending.clear()

    def fsync(self, file: LogFile) -> None:
        assert isinstance(file, CrashFile)
        self.step(f"fsync {os.path.basename(file.path)}")
        if is_mapped(file.path):
            self._mapped.synced(file)
        self._synced(file.inode)

    def fdatasync(self, file: LogFile) -> None:
        self.fsync(file)

    def truncate(self, file: LogFile, size: int) -> None:
        assert isinstance(file, CrashFile)
        self.step(f"truncate {os.path.basename(file.path)} {size}")
        super().truncate(file, size)
        file.inode.pending.append(size)

    def replace(self, path: str, data: bytes) -> None:
        temporary, inode = path + ".tmp", Inode()
        self.step(f"create {os.path.basename(temporary)}")
        Path(temporary).write_bytes(b"")
        self._name(inode, None, temporary)
        self.step(f"write {os.path.basename(temporary)} 0+{len(data)}")
        Path(temporary).write_bytes(data)
        inode.pending.append((0, data))
        self.step(f"fsync {os.path.basename(temporary)}")
        self._synced(inode)
        self.rename(temporary, path)
        self.fsync_dir(os.path.dirname(path))

    def rename(self, source: str, target: str) -> None:
        self.step(f"rename {os.path.basename(source)} {os.path.basename(target)}")
        if os.path.exists(source):
            self._known(source)
            self._loses_its_name(target)
        os.rename(source, target)
        self._name(self.names[source], source, target)

    def unlink(self, path: str) -> None:
        if os.path.exists(path):
            self.step(f"unlink {os.path.basename(path)}")
            self._known(path)
            self._loses_its_name(path)
            os.unlink(path)
        if path in self.names:
            self._name(None, path, None)

    def _known(self, path: str) -> Inode:
        """A mapped file's creation is invisible; register it here."""
        if path not in self.names:
            self._name(Inode(mapped=is_mapped(path)), None, path)
        return self.names[path]

    def _loses_its_name(self, path: str) -> None:
        """A mapped file loses its name: after a cut the old name may exist, with its current content."""
        if is_mapped(path) and os.path.exists(path):
            self._known(path).durable = bytearray(Path(path).read_bytes())
            self._mapped.forget(path)

    def fsync_dir(self, path: str) -> None:
        self.step(f"fsync {os.path.basename(path)}/")
        for name in filter(is_mapped, os.listdir(path)):
            self._known(os.path.join(path, name))
        for name in list(self.durable_names):
            directory = os.path.dirname(name)
            if directory == path or (os.path.dirname(directory) == path and not os.path.isdir(directory)):
                del self.durable_names[name]  # removed, or its directory was
        self.durable_names.update({name: inode for name, inode in self.names.items() if os.path.dirname(name) == path})
        self._unsynced.pop(path, None)

    # ---- after the cut -------------------------------------------------------------------------------------------

    def states(self, root: Path, out: Path, seed: int, randoms: int = 2) -> Iterator[tuple[str, Path]]:
        """(name, directory) of the cuts of the tree at root, each laid out under out."""
        for cut in self.cuts(root, seed, randoms):
            yield cut.name, cut.lay_out(out / cut.name)

    def cuts(self, root: Path, seed: int, randoms: int = 2) -> Iterator[State]:
        """Crash states of the tree at root, each content once. "all" comes first: there only the process has died."""
        seen: set[bytes] = set()
        for cut in self._cuts(root, random.Random(seed), randoms):
            if cut.key not in seen:
                seen.add(cut.key)
                yield cut

    def _cuts(self, root: Path, rng: random.Random, randoms: int) -> Iterator[State]:
        for path in root.rglob("*index*"):
            if is_mapped(path) and path.is_file():
                self._known(str(path))
        mapped = self._mapped_now()
        pending = any(inode.pending for inode in {*self.names.values(), *self.durable_names.values()})
        unsynced = any(self._unsynced.values())

        def state(name: str, names: dict[str, Inode], way: Bytes, index_of: IndexOf) -> State:
            files = {}
            for path, inode in sorted(names.items()):
                data = index_of(Mapped(path, *mapped[inode])) if inode in mapped else bytes(way.of(inode))
                if data is not None:
                    files[os.path.relpath(path, root)] = data
            return State(name, self.steps, files, directories, way.by_sectors)

        directories = tuple(
            str(path.relative_to(root)) for path in [root, *(path for path in root.rglob("*") if path.is_dir())]
        )
        yield state("all", self.names, Bytes(landed), as_it_is)
        yield state("none", self.durable_names, Bytes(durable), as_synced)
        yield state("late-names", self.names, Bytes(durable), missing)
        yield state("old-names", self.durable_names, Bytes(landed), as_it_is)
        if pending:
            most = max((len(inode.pending) for inode in self.names.values()), default=0)
            share = rng.random()
            yield state("torn", self.names, Bytes(lambda inode: torn(inode, share, most)), as_it_is)
            yield state("hole", self.names, hole(rng), as_it_is)
        for number in range(randoms if pending or unsynced else 0):
            names = self._some_names(rng)
            yield state(f"random-{number}", names, rng.choice(WAYS)(rng), some_indexes(rng))

    def _mapped_now(self) -> dict[Inode, tuple[bytes, bytes | None]]:
        """The current and the last synced content of each mapped file."""
        found: dict[Inode, tuple[bytes, bytes | None]] = {}
        for path, inode in self.names.items():
            if inode.mapped:
                found[inode] = Path(path).read_bytes(), self._mapped.durable(Path(path))
        for inode in self.durable_names.values():
            if inode.mapped and inode not in found:
                found[inode] = bytes(inode.durable), bytes(inode.durable)
        for changes in self._unsynced.values():
            for change in changes:
                if change.inode is not None and change.inode.mapped and change.inode not in found:
                    found[change.inode] = bytes(change.inode.durable), bytes(change.inode.durable)
        return found

    def _some_names(self, rng: random.Random) -> dict[str, Inode]:
        names = dict(self.durable_names)
        for changes in self._unsynced.values():
            landed = rng.choice([0, len(changes), rng.randrange(len(changes) + 1)])
            for change in changes[:landed]:
                if change.gone is not None:
                    names.pop(change.gone, None)
                if change.there is not None and change.inode is not None:
                    names[change.there] = change.inode
        return names


def is_mapped(path: str | Path) -> bool:
    """Whether this is an index, also one with a temporary suffix."""
    return any(suffix in INDEXES for suffix in Path(path).suffixes)


# ---- bytes: what a file holds after the cut ------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Bytes:
    """A way to choose what has landed of a file; by_sectors: also within its pages."""

    of: Callable[[Inode], bytearray]
    by_sectors: bool = False


def durable(inode: Inode) -> bytearray:
    """No unsynced change."""
    return inode.durable


def landed(inode: Inode) -> bytearray:
    """Every change."""
    content = bytearray(inode.durable)
    for change in inode.pending:
        apply(content, change)
    return content


def torn(inode: Inode, share: float, most: int) -> bytearray:
    """Every change except the end of the last write, in files with this many changes."""
    if most == 0 or len(inode.pending) != most or isinstance(last := inode.pending[-1], int):
        return landed(inode)
    position, data = last
    return landed(Inode(inode.durable, [*inode.pending[:-1], (position, data[: int(len(data) * share)])]))


def some_writes(rng: random.Random) -> Bytes:
    """Any of the changes, each whole or not at all. No page cache loses a write and keeps a later one of the same
    sector, but other layers may."""
    return Bytes(lambda inode: landed(Inode(inode.durable, [it for it in inode.pending if rng.random() < 0.5])))


def hole(rng: random.Random) -> Bytes:
    """Every change except part of one write, so that its header has landed and its body has not, or the reverse."""
    unit = rng.choice([PAGE, SECTOR])

    def of(inode: Inode) -> bytearray:
        whole = len(inode.pending)
        writes = [(number, *it) for number, it in enumerate(inode.pending) if not isinstance(it, int) and it[1]]
        if not writes:
            return landed(inode)
        number, position, data = writes[-1] if rng.random() < 0.5 else rng.choice(writes)
        units = range(position // unit, -(-(position + len(data)) // unit))
        first, version = rng.choice(units), rng.randrange(number + 1)
        missing = range(first, rng.choice([first + 1, units.stop]))
        return by_units(inode, unit, lambda at: version if at in missing else whole, whole)

    return Bytes(of, unit < PAGE)


def whole_pages(rng: random.Random) -> Bytes:
    """Any of the pages in their newest state; the rest as durable."""
    return Bytes(lambda inode: _chosen(inode, rng, PAGE, lambda: rng.choice([0, len(inode.pending)])))


def earlier_pages(rng: random.Random) -> Bytes:
    """Each page as any of the changes has left it."""
    return Bytes(lambda inode: _chosen(inode, rng, PAGE, lambda: rng.randrange(len(inode.pending) + 1)))


def earlier_sectors(rng: random.Random) -> Bytes:
    """Each sector as any of the changes has left it."""
    return Bytes(lambda inode: _chosen(inode, rng, SECTOR, lambda: rng.randrange(len(inode.pending) + 1)), True)


WAYS = (whole_pages, earlier_pages, earlier_sectors, earlier_sectors, hole, hole, some_writes, some_writes)


def _chosen(inode: Inode, rng: random.Random, unit: int, choose: Callable[[], int]) -> bytearray:
    versions: dict[int, int] = {}

    def version(at: int) -> int:
        if at not in versions:
            versions[at] = choose()
        return versions[at]

    return by_units(inode, unit, version, rng.choice([0, len(inode.pending), None]))


def by_units(inode: Inode, unit: int, version: Callable[[int], int], length: int | None) -> bytearray:
    """Each page or sector as the first `version(number)` of the pending changes left it, and the file's length after
    `length` of them; None: as far as bytes have landed."""
    content, size = bytearray(inode.durable), len(inode.durable)
    sizes, landed_to = [size], size
    for number, change in enumerate(inode.pending):
        if isinstance(change, int):
            size = change
            if length is not None and number < length:  # bytes beyond are gone, landed or not
                content[change:] = bytes(max(0, len(content) - change))
                landed_to = min(landed_to, change)
        else:
            position, data = change
            end = position + len(data)
            size = max(size, end)
            content.extend(bytes(max(0, end - len(content))))
            for at in range(position // unit, -(-end // unit)):
                if number < version(at):
                    start, stop = max(position, at * unit), min(end, (at + 1) * unit)
                    content[start:stop] = data[start - position : stop - position]
                    landed_to = max(landed_to, stop)
        sizes.append(size)
    end = landed_to if length is None else sizes[length]
    content.extend(bytes(max(0, end - len(content))))
    return content[:end]


# ---- mapped indexes ------------------------------------------------------------------------------------------------------


class Mapped(NamedTuple):
    """A mapped file at the moment of the cut: its current and its last synced content."""

    path: str
    data: bytes
    durable: bytes | None

    @property
    def before(self) -> bytes:
        """What a cut leaves of it if nothing has landed since that sync."""
        return bytes(len(self.data)) if self.durable is None else self.durable


IndexOf = Callable[[Mapped], bytes | None]


def as_it_is(index: Mapped) -> bytes:
    return index.data


def as_synced(index: Mapped) -> bytes:
    """The last synced content; zeros if never synced."""
    return index.before


def missing(index: Mapped) -> bytes | None:
    """The last synced content; missing if never synced."""
    return index.durable


def earlier(index: Mapped, rng: random.Random) -> bytes:
    """As it was some entries ago, but not before the sync."""
    width = next(INDEXES[suffix] for suffix in Path(index.path).suffixes if suffix in INDEXES)
    entries, least = (-(-len(data.rstrip(b"\0")) // width) for data in (index.data, index.before))
    kept = rng.randrange(min(least, entries), entries + 1) * width
    return index.data[:kept] + bytes(len(index.data) - kept)


def some_index_pages(index: Mapped, rng: random.Random) -> bytes:
    """Any of its pages, the others as synced; either of the two lengths."""
    end = len(rng.choice([index.data, index.before]))
    data, before = (it + bytes(max(0, end - len(it))) for it in (index.data, index.before))
    return b"".join(rng.choice([data, before])[at : min(at + PAGE, end)] for at in range(0, end, PAGE))


def some_indexes(rng: random.Random) -> IndexOf:
    """One way for all of them, or one for each."""
    ways: list[IndexOf] = [
        as_it_is,
        as_synced,
        missing,
        lambda index: earlier(index, rng),
        lambda index: some_index_pages(index, rng),
    ]
    one = rng.choice(ways)
    return rng.choice([one, lambda index: rng.choice(ways)(index)])
