"""A disk that can lose power: it remembers what was not synced yet, and builds the directories a cut could leave.

Reads see every write at once, as they do through a page cache. Beside that, each file keeps what an fsync has made
durable and the list of writes since; each directory likewise keeps names. After a cut, `states()` lays out, in fresh
directories, what the disk may hold: nothing of the unsynced writes, all of them, any one missing, a random subset, the
last one torn.

Stores into mapped indexes are not seen as writes. Their files come out as they are, as zeros, or not at all.
"""

from __future__ import annotations

import dataclasses
import os
import random
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from klog.disk import LogFile, RealFiles

if TYPE_CHECKING:
    from typing_extensions import Buffer

PAGE = 4096
INDEXES = (".index", ".timeindex")


class PowerCut(BaseException):
    """The machine stops here. No `except Exception` may catch it."""


@dataclasses.dataclass
class Inode:
    """A file's bytes that are safe, and its writes that are not yet: (position, data), or a new length."""

    durable: bytearray = dataclasses.field(default_factory=bytearray)
    pending: list[tuple[int, bytes] | int] = dataclasses.field(default_factory=list)


def apply(content: bytearray, change: tuple[int, bytes] | int) -> None:
    if isinstance(change, int):
        del content[change:]
        content.extend(bytes(change - len(content)))
        return
    position, data = change
    content.extend(bytes(max(0, position + len(data) - len(content))))
    content[position : position + len(data)] = data


class CrashFile(LogFile):
    disk: CrashFiles

    def write(self, data: bytes, position: int) -> None:
        self.disk.step(f"write {os.path.basename(self.path)} {position}+{len(memoryview(data))}")
        super().write(data, position)
        self.disk.inode(self.path).pending.append((position, bytes(data)))

    def write_parts(self, parts: Iterable[Buffer], position: int) -> int:
        """A cut may leave any of the parts."""
        at = position
        for part in parts:
            self.write(bytes(part), at)
            at += len(memoryview(part))
        return at - position

    def write_behind(self, position: int, size: int, wait: bool = False) -> None:
        """Promises nothing: a cut may leave any of it all the same."""
        self.disk.step(f"write behind {os.path.basename(self.path)} {position}+{size} {wait=}")

    def preallocate(self, position: int, size: int, zeros: bool = False) -> None:
        """Blocks alone change no byte and no length."""
        if zeros:
            self.write(bytes(size), position)


class CrashDirectFile(CrashFile):
    """What takes its whole pages past the cache: head, pages and tail of a write may land in any order. What goes
    through the cache lands by the page: with what was written to its beginning before."""

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
    """A Files whose power goes at operation number `stop_at` (None: never). `steps` counts them."""

    def __init__(self, stop_at: int | None = None) -> None:
        super().__init__()
        self.stop_at = stop_at
        self.steps = 0
        self.log: list[str] = []
        self.names: dict[str, Inode] = {}
        self.durable_names: dict[str, Inode] = {}

    def step(self, what: str) -> None:
        if self.stop_at is not None and self.steps >= self.stop_at:
            raise PowerCut(what)
        self.steps += 1
        self.log.append(what)

    def inode(self, path: str) -> Inode:
        return self.names.setdefault(path, Inode())

    def keep(self, directory: Path) -> None:
        """Every file below a directory is durable as it is, and so is its name."""
        for path in directory.rglob("*"):
            if path.is_file():
                inode = self.inode(str(path))
                inode.durable = bytearray(path.read_bytes())
                self.durable_names[str(path)] = inode

    def open(self, path: str, *, write: bool = False, create: bool = False) -> LogFile:
        if create and not os.path.exists(path):
            self.step(f"create {os.path.basename(path)}")
            self.inode(path)
        plain = super().open(path, write=write, create=create)
        file = CrashFile(os.dup(plain.fileno()), path, write)
        plain.close()
        file.disk = self
        return file

    def open_direct(self, path: str, *, write: bool = False, create: bool = False) -> LogFile:
        plain = self.open(path, write=write, create=create)
        file = CrashDirectFile(os.dup(plain.fileno()), path, write)
        plain.close()
        file.disk = self
        return file

    def _synced(self, path: str) -> None:
        inode = self.inode(path)
        for change in inode.pending:
            apply(inode.durable, change)
        inode.pending.clear()

    def fsync(self, file: LogFile) -> None:
        self.step(f"fsync {os.path.basename(file.path)}")
        self._synced(file.path)

    def fdatasync(self, file: LogFile) -> None:
        self.fsync(file)

    def truncate(self, file: LogFile, size: int) -> None:
        self.step(f"truncate {os.path.basename(file.path)} {size}")
        super().truncate(file, size)
        self.inode(file.path).pending.append(size)

    def replace(self, path: str, data: bytes) -> None:
        temporary = path + ".tmp"
        self.step(f"create {os.path.basename(temporary)}")
        inode = self.names[temporary] = Inode()
        Path(temporary).write_bytes(data)
        inode.pending.append((0, data))
        self.step(f"fsync {os.path.basename(temporary)}")
        self._synced(temporary)
        self.rename(temporary, path)
        self.fsync_dir(os.path.dirname(path))

    def rename(self, source: str, target: str) -> None:
        self.step(f"rename {os.path.basename(source)} {os.path.basename(target)}")
        os.rename(source, target)
        self.names[target] = self.names.pop(source, Inode())

    def unlink(self, path: str) -> None:
        if os.path.exists(path):
            self.step(f"unlink {os.path.basename(path)}")
            os.unlink(path)
        self.names.pop(path, None)

    def fsync_dir(self, path: str) -> None:
        self.step(f"fsync {os.path.basename(path)}/")
        for name in [name for name in self.durable_names if os.path.dirname(name) == path]:
            del self.durable_names[name]
        self.durable_names.update({name: inode for name, inode in self.names.items() if os.path.dirname(name) == path})

    # ---- after the cut -------------------------------------------------------------------------------------------

    def states(self, root: Path, out: Path, seed: int, randoms: int = 2) -> Iterator[tuple[str, Path]]:
        """(name, directory) of crash states of the tree at root, each laid out under out."""
        rng = random.Random(seed)
        everything: Callable[[int], bool] = lambda _: True  # noqa: E731
        nothing: Callable[[int], bool] = lambda _: False  # noqa: E731
        pending = sum(len(inode.pending) for inode in self.names.values())
        yield "all", self._lay_out(root, out / "all", self.names, everything, "kept", None)
        yield "none", self._lay_out(root, out / "none", self.durable_names, nothing, "zeros", None)
        yield "late-names", self._lay_out(root, out / "late-names", self.names, nothing, "missing", None)
        if pending:
            torn = rng.random()
            yield "torn", self._lay_out(root, out / "torn", self.names, everything, "kept", torn)
        for number in range(randoms if pending else 0):
            kept = {index for index in range(pending) if rng.random() < 0.5}
            indexes = rng.choice(["kept", "zeros", "missing"])
            name = f"random-{number}"
            yield name, self._lay_out(root, out / name, self.names, kept.__contains__, indexes, None)

    def _lay_out(
        self,
        root: Path,
        out: Path,
        names: dict[str, Inode],
        lands: Callable[[int], bool],
        indexes: str,
        torn: float | None,
    ) -> Path:
        for directory in [root, *(path for path in root.rglob("*") if path.is_dir())]:
            (out / directory.relative_to(root)).mkdir(parents=True, exist_ok=True)
        number = 0
        last_write = max((len(inode.pending) for inode in names.values()), default=0)
        for path, inode in sorted(names.items()):
            content = bytearray(inode.durable)
            for at, change in enumerate(inode.pending):
                if lands(number):
                    is_last = torn is not None and at == len(inode.pending) - 1 and len(inode.pending) == last_write
                    if is_last and not isinstance(change, int):
                        change = change[0], change[1][: int(len(change[1]) * torn)]
                    apply(content, change)
                number += 1
            (out / Path(path).relative_to(root)).write_bytes(content)
        if indexes != "missing":
            for suffix in INDEXES:
                for path in root.rglob("*" + suffix):
                    data = path.read_bytes()
                    (out / path.relative_to(root)).write_bytes(data if indexes == "kept" else bytes(len(data)))
        return out
