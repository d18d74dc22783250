"""The states that a power cut can leave of a directory tree: some of the changes that were not synced are in effect.

These are chosen independently:

    names    of a directory's creations, renames and unlinks since its fsync: all, none, or the first few, in the order
             in which the journals of ext4, xfs and btrfs keep them; independently for each directory. A rename from one
             directory to another takes effect after all earlier changes of both. A new directory, or the new name of
             one, may be missing until its parent is synced. If two directories have exchanged their names, the exchange
             is in effect for both or for neither
    bytes    of a file's changes since its fsync, also of a file under an old name: all, none, any subset of
             pages; each sector as any of its writes left it; any subset of the writes; the last one torn
    length   where bytes are chosen by pages or sectors: the durable length, the newest, or the end of the last changed
             page or sector; bytes below it whose writes are lost are NULs
    indexes  mapped files: only their syncs are visible, not their stores. Each is as it is, or as it was some entries
             before, or has any of its pages as they are and the others as synced or zeros, or is missing

A `Cut` is one moment. Its states are a few fixed ones, and any number that a random generator chooses.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

PAGE = 4096
SECTOR = 512
INDEXES = {".index": 8, ".timeindex": 12}
"""Suffixes of mapped files, and the size of an entry of each."""

Change = tuple[int, bytes] | int
"""A write (position, data), or a new length."""


@dataclasses.dataclass(eq=False)
class Inode:
    """A file's durable bytes, and its pending changes. mapped: the content is in the real file; the bytes here are used
    only after the file has lost its name."""

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


@dataclasses.dataclass(frozen=True, eq=False)
class NameChange:
    """A change of a directory's names in one step: the name `gone` is removed, the name `there` is added. A rename from
    one directory to another is in the list of changes of both."""

    inode: Inode | None
    gone: str | None
    there: str | None


def digest_of(files: Mapping[str, bytes]) -> int:
    """A digest of 128 bits: equal for equal names and bytes."""
    whole = 0
    for one in files.items():
        whole ^= _digest_of_file(*one)
    return whole


@functools.lru_cache(maxsize=1024)
def _digest_of_file(path: str, data: bytes) -> int:
    """Cached, since most files of a state are the same as in the previous state."""
    digest = hashlib.blake2b(b"%s\0" % path.encode(), digest_size=16)
    digest.update(data)
    return int.from_bytes(digest.digest(), "big")


@dataclasses.dataclass(frozen=True)
class State:
    """The files that a cut before operation `stop_at` may leave below a directory. files: bytes by relative path.
    links: for each path that is another name of an earlier file, the path of that file.

    by_sectors: part of a page may be on disk without the rest. "strict" cannot always distinguish this from damage."""

    name: str
    stop_at: int
    files: dict[str, bytes]
    directories: tuple[str, ...]
    by_sectors: bool
    links: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @functools.cached_property
    def key(self) -> int:
        """A number that is equal for states of equal content."""
        if not self.links:
            return digest_of(self.files)
        return digest_of({**self.files, "\0links": repr(sorted(self.links.items())).encode()})

    def lay_out(self, out: Path) -> Path:
        """Write the files below `out`, which is created."""
        for directory in self.directories:
            (out / directory).mkdir(parents=True, exist_ok=True)
        for path, data in self.files.items():
            (out / path).parent.mkdir(parents=True, exist_ok=True)  # a directory whose removal is not on disk
            if path in self.links:
                (out / path).hardlink_to(out / self.links[path])
            else:
                (out / path).write_bytes(data)
        return out


class Named(NamedTuple):
    """The files that have some names, by relative path. settled: the bytes of those that are the same in every state.
    others: the absolute path and the file. links: as in State."""

    settled: dict[str, bytes]
    others: dict[str, tuple[str, Inode]]
    links: dict[str, str]


class Cut:
    """The moment before operation `stop_at`.

    names: the file of each name, as processes see it. durable_names: the same as the last syncs of the directories left
    it. unsynced: the changes between the two, one list for each directory. mapped: of each mapped file the content, and
    the last synced content, None if it was never synced. there: all directories. directories: for each directory whose
    own name is not synced, its synced name, None for a new directory. exchanges: those of them that have exchanged
    their names.
    """

    def __init__(
        self,
        root: Path,
        stop_at: int,
        names: dict[str, Inode],
        durable_names: dict[str, Inode],
        unsynced: Iterable[list[NameChange]],
        mapped: dict[Inode, tuple[bytes, bytes | None]],
        there: Iterable[str],
        directories: Mapping[str, str | None],
        exchanges: Iterable[tuple[str, ...]] = (),
    ) -> None:
        self.stop_at = stop_at
        self._below = len(str(root)) + 1
        self._names, self._durable_names = names, durable_names
        self._unsynced = [list(changes) for changes in unsynced if changes]
        places: dict[NameChange, list[tuple[int, int]]] = {}
        for number, changes in enumerate(self._unsynced):
            for at, change in enumerate(changes):
                places.setdefault(change, []).append((number, at))
        self._of_two = [found for found in places.values() if len(found) > 1]
        self._mapped = mapped
        self._directories = tuple(path[self._below :] or "." for path in there)
        self._moved = {
            path[self._below :]: None if synced is None else synced[self._below :]
            for path, synced in directories.items()
            if path.startswith(f"{root}/")
        }
        self._exchanged = {one[self._below :]: pair[0][self._below :] for pair in exchanges for one in pair[1:]}
        inodes = {*names.values(), *durable_names.values()}
        inodes |= {change.inode for changes in self._unsynced for change in changes if change.inode is not None}
        self._settled = {inode: bytes(inode.durable) for inode in inodes if not inode.pending and inode not in mapped}
        self._settled |= {inode: data for inode, (data, durable) in mapped.items() if data == durable}
        self._pending = any(inode.pending for inode in inodes)
        self._some: dict[tuple[int, ...], Named] = {}  # by the number of changes in effect for each directory

    @property
    def is_settled(self) -> bool:
        """Whether everything is on disk, except stores to mapped files."""
        return not (self._pending or self._unsynced or self._moved)

    def states(self, rng: random.Random, randoms: int) -> Iterator[State]:
        """The fixed states, the torn states, and `randoms` randomly chosen ones; contents may repeat. If everything is
        on disk, no random state is chosen."""
        yield from self.fixed()
        yield from self.torn(rng)
        for number in range(0 if self.is_settled else randoms):
            yield self.chosen(f"random-{number}", rng)

    def any_state(self, rng: random.Random) -> State:
        """One state at random, but not a torn one."""
        return rng.choice([*self.fixed(), self.chosen("random", rng)])

    def fixed(self) -> Iterator[State]:
        """The states that are the same for every seed. The first, "all", is the one that the death of the process
        leaves."""
        yield self._state("all", self._now, Bytes(landed), as_it_is)
        yield self._state("none", self._synced, Bytes(durable), as_synced, self._moved)
        yield self._state("late-names", self._now, Bytes(durable), missing)
        yield self._state("old-names", self._synced, Bytes(landed), as_it_is, self._moved)

    def torn(self, rng: random.Random) -> Iterator[State]:
        """Two states: in one the last write is torn at some byte, in the other a part of one write is missing."""
        if self._pending:
            most = max((len(inode.pending) for inode in self._names.values()), default=0)
            share = rng.random()
            yield self._state("torn", self._now, Bytes(lambda inode: torn(inode, share, most)), as_it_is)
            yield self._state("hole", self._now, hole(rng), as_it_is)

    def chosen(self, name: str, rng: random.Random) -> State:
        """A random state: any names, any bytes, any index pages."""
        undone = {path: synced for path, synced in self._moved.items() if rng.random() < 0.5}
        for other, one in self._exchanged.items():
            undone.pop(other, None)
            if one in undone:
                undone[other] = one
        return self._state(name, self._some_names(rng), rng.choice(CHOICES)(rng), some_indexes(rng), undone)

    @functools.cached_property
    def _now(self) -> Named:
        return self._named(self._names)

    @functools.cached_property
    def _synced(self) -> Named:
        return self._named(self._durable_names)

    def _named(self, names: Mapping[str, Inode]) -> Named:
        found = Named({}, {}, {})
        first: dict[Inode, str] = {}
        for path, inode in names.items():
            relative = path[self._below :]
            data = self._settled.get(inode)
            if data is None:
                found.others[relative] = path, inode
            else:
                found.settled[relative] = data
            if first.setdefault(inode, relative) is not relative:
                found.links[relative] = first[inode]
        return found

    def _state(
        self,
        name: str,
        named: Named,
        chosen: Bytes,
        index_of: IndexOf,
        undone: Mapping[str, str | None] = MappingProxyType({}),
    ) -> State:
        """undone: renames and creations of directories that are not on disk."""
        files = named.settled.copy()
        for relative, (path, inode) in named.others.items():
            mapped = self._mapped.get(inode)
            data = bytes(chosen.of(inode)) if mapped is None else index_of(Mapped(path, *mapped))
            if data is not None:
                files[relative] = data
        links = {path: of for path, of in named.links.items() if path in files and of in files}
        if not undone:
            return State(name, self.stop_at, files, self._directories, chosen.by_sectors, links)
        there = tuple(_undone(path, undone) for path in self._directories)
        places = {path: _undone(path, undone) for path in {old.rpartition("/")[0] for old in files}}
        now: dict[str, str] = {}
        for old in files:
            directory, _, base = old.rpartition("/")
            if (place := places[directory]) is not None:
                now[old] = f"{place}/{base}" if place else base
        return State(
            name,
            self.stop_at,
            {now[old]: data for old, data in files.items() if old in now},
            tuple(filter(None, there)),
            chosen.by_sectors,
            {now[old]: now[of] for old, of in links.items() if old in now and of in now},
        )

    def _some_names(self, rng: random.Random) -> Named:
        landed = [rng.choice([0, len(changes), rng.randrange(len(changes) + 1)]) for changes in self._unsynced]
        counts = tuple(self._in_order(landed))
        if counts not in self._some:
            names = dict(self._durable_names)
            for changes, count in zip(self._unsynced, counts, strict=True):
                for change in changes[:count]:
                    if change.gone is not None:
                        names.pop(change.gone, None)
                    if change.there is not None and change.inode is not None:
                        names[change.there] = change.inode
            self._some[counts] = self._named(names)
        return self._some[counts]

    def _in_order(self, landed: list[int]) -> list[int]:
        """Lower these numbers of changes in effect for each directory, so that a rename from one directory to another
        is in effect in both or in neither."""
        while self._of_two:
            late = [
                (one, at)
                for places in self._of_two
                for one, at in places
                if at < landed[one] and any(other_at >= landed[other] for other, other_at in places)
            ]
            if not late:
                break
            for one, at in late:
                landed[one] = min(landed[one], at)
        return landed


def _undone(path: str, undone: Mapping[str, str | None]) -> str | None:
    """The path of a directory if these renames and creations of directories are undone; None if its creation is
    undone."""
    synced = undone.get(path, path)
    if synced is None:
        return None
    parent, _, name = synced.rpartition("/")
    above = _undone(parent, undone) if parent else ""
    return None if above is None else f"{above}/{name}" if above else name


def is_mapped(path: str | Path) -> bool:
    """Whether this is an index, also one with a temporary suffix."""
    return _entry_size(str(path)) > 0


@functools.lru_cache(maxsize=4096)
def _entry_size(path: str) -> int:
    """The size of an index entry, in bytes; 0 if the file is not an index."""
    return next((INDEXES[suffix] for suffix in Path(path).suffixes if suffix in INDEXES), 0)


# ---- bytes: what a file holds after the cut --------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Bytes:
    """Chooses the bytes of a file after the cut. by_sectors: it may choose differently for sectors of one page."""

    of: Callable[[Inode], bytearray]
    by_sectors: bool = False


def durable(inode: Inode) -> bytearray:
    """Without the unsynced changes."""
    return inode.durable


def landed(inode: Inode) -> bytearray:
    """With every change."""
    content = bytearray(inode.durable)
    for change in inode.pending:
        apply(content, change)
    return content


def torn(inode: Inode, share: float, most: int) -> bytearray:
    """With every change, except the end of the last write in files with `most` changes."""
    if most == 0 or len(inode.pending) != most or isinstance(last := inode.pending[-1], int):
        return landed(inode)
    position, data = last
    return landed(Inode(inode.durable, [*inode.pending[:-1], (position, data[: int(len(data) * share)])]))


def some_writes(rng: random.Random) -> Bytes:
    """With any of the changes, each whole or not at all. A page cache does not lose a write and keep a later one of the
    same sector, but other layers may."""
    return Bytes(lambda inode: landed(Inode(inode.durable, [it for it in inode.pending if rng.random() < 0.5])))


def hole(rng: random.Random) -> Bytes:
    """With every change except a part of one write: for example, a header is on disk and its body is not, or the
    reverse."""
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
    """Any of the pages in their newest state, the other pages as synced."""
    return Bytes(lambda inode: _chosen(inode, rng, PAGE, lambda: rng.choice([0, len(inode.pending)])))


def earlier_pages(rng: random.Random) -> Bytes:
    """Each page as any of the changes has left it."""
    return Bytes(lambda inode: _chosen(inode, rng, PAGE, lambda: rng.randrange(len(inode.pending) + 1)))


def earlier_sectors(rng: random.Random) -> Bytes:
    """Each sector as any of the changes has left it."""
    return Bytes(lambda inode: _chosen(inode, rng, SECTOR, lambda: rng.randrange(len(inode.pending) + 1)), True)


CHOICES = (whole_pages, earlier_pages, earlier_sectors, earlier_sectors, hole, hole, some_writes, some_writes)


def _chosen(inode: Inode, rng: random.Random, unit: int, choose: Callable[[], int]) -> bytearray:
    versions: dict[int, int] = {}

    def version(at: int) -> int:
        if at not in versions:
            versions[at] = choose()
        return versions[at]

    return by_units(inode, unit, version, rng.choice([0, len(inode.pending), None]))


def by_units(inode: Inode, unit: int, version: Callable[[int], int], length: int | None) -> bytearray:
    """Each page or sector as the first `version(number)` of the pending changes left it. The file's length is that
    after `length` changes; None: it ends after the last page or sector that a change has reached."""
    content, size = bytearray(inode.durable), len(inode.durable)
    sizes, landed_to = [size], size
    for number, change in enumerate(inode.pending):
        if isinstance(change, int):
            size = change
            if length is not None and number < length:  # the bytes above are removed, even if they were written back
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


# ---- mapped indexes --------------------------------------------------------------------------------------------------


class Mapped(NamedTuple):
    """A mapped file at the moment of the cut: its current and its last synced content."""

    path: str
    data: bytes
    durable: bytes | None

    @property
    def before(self) -> bytes:
        """The content after a cut if nothing was written back since that sync."""
        return bytes(len(self.data)) if self.durable is None else self.durable


IndexOf = Callable[[Mapped], bytes | None]


def as_it_is(index: Mapped) -> bytes:
    return index.data


def as_synced(index: Mapped) -> bytes:
    """The last synced content; zeros if the file was never synced."""
    return index.before


def missing(index: Mapped) -> bytes | None:
    """The last synced content; the file is missing if it was never synced."""
    return index.durable


def earlier(index: Mapped, rng: random.Random) -> bytes:
    """As it was some entries ago, but not before the sync."""
    width = _entry_size(index.path)
    entries, least = (-(-len(data.rstrip(b"\0")) // width) for data in (index.data, index.before))
    kept = rng.randrange(min(least, entries), entries + 1) * width
    return index.data[:kept] + bytes(len(index.data) - kept)


def some_index_pages(index: Mapped, rng: random.Random) -> bytes:
    """Any of its pages as they are, the others as synced; the length is either of the two."""
    end = len(rng.choice([index.data, index.before]))
    data, before = (it + bytes(max(0, end - len(it))) for it in (index.data, index.before))
    return b"".join(rng.choice([data, before])[at : min(at + PAGE, end)] for at in range(0, end, PAGE))


def some_indexes(rng: random.Random) -> IndexOf:
    """One of these functions for all indexes, or another one for each."""
    functions: list[IndexOf] = [
        as_it_is,
        as_synced,
        missing,
        lambda index: earlier(index, rng),
        lambda index: some_index_pages(index, rng),
    ]
    one = rng.choice(functions)
    return rng.choice([one, lambda index: rng.choice(functions)(index)])
