"""The power is cut while a damaged partition is repaired.

A seed decides the damage, and whether the file system can exchange two names. Before the workload begins, a copy is
repaired without a cut. After a cut each file of a partition in the log.dir is as it was before, or as the repair of the
copy left it (F1, F2), and every byte of the original exists (F3). Without exchanges the partition may be missing in the
log.dir until the next repair. With `deaths` the process may also die inside the repair, and the next one repairs again.
"""

from __future__ import annotations

import errno
import os
import random
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import klog
from klog.clock import ManualClock
from klog.disk import os_error
from klog.inspect import verify
from klog.log.options import Policy
from klog.repairing import repair
from tests.support.abandon import abandon
from tests.support.batches import NOW
from tests.support.crash_files import CrashFiles, until_done
from tests.support.crash_states import State
from tests.support.power_cuts import PowerCuts, Tally, cut_while

CONFIG = {"segment.bytes": 400, "segment.index.bytes": 96, "index.interval.bytes": 1, "file.delete.delay.ms": 1000}
DAMAGED = ("t-0", "t-1")
Tree = Mapping[str, bytes]


def tree_of(files: Mapping[str, bytes], directory: str) -> dict[str, bytes]:
    return {path[len(directory) + 1 :]: data for path, data in files.items() if path.startswith(f"{directory}/")}


def on_disk(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


class Repairing:
    """A log.dir `data` with two damaged partitions, and the content of both before and after a repair."""

    def __init__(self, place: Path, seed: int, deaths: Iterable[int] = ()) -> None:
        rng = random.Random(seed)
        self._deaths = deaths
        self.exchanges = rng.random() < 0.7
        self.returned = False
        self.original = place / "original"
        self._fill(self.original / "data", rng)
        self.before = {name: tree_of(on_disk(self.original), f"data/{name}") for name in DAMAGED}
        rehearsal = place / "rehearsal"
        shutil.copytree(self.original, rehearsal)
        found = repair(rehearsal / "data", clock=ManualClock(NOW))
        assert [entry["error"] for entry in found["partitions"]] == [None, None]
        self.after = {name: tree_of(on_disk(rehearsal), f"data/{name}") for name in DAMAGED}
        assert all(self.before[name] != self.after[name] for name in DAMAGED)
        self.problems = problems(rehearsal)  # none, or those of bytes that no checksum covers
        self.content = content(rehearsal)

    def _fill(self, path: Path, rng: random.Random) -> None:
        with klog.open(path, create=True, clock=ManualClock(NOW)) as logs:
            logs.create_topic("t", partitions=3, config=CONFIG)
            for number in range(3):
                for at in range(12):
                    logs.log("t", number).append([(b"k", b"%d." % at + rng.randbytes(40), NOW)])
        for name in DAMAGED:
            log = rng.choice([log for log in sorted((path / name).glob("*.log")) if log.stat().st_size])
            data = bytearray(log.read_bytes())
            if rng.random() < 0.3:
                log.write_bytes(data[: rng.randrange(1, len(data))])
            else:
                data[rng.randrange(70, len(data))] ^= 1 << rng.randrange(8)
                log.write_bytes(data)

    def run(self, root: Path, files: CrashFiles) -> None:
        shutil.copytree(self.original, root)
        files.keep(root)
        until_done(files, self._deaths, lambda: self.repair(root, files, files.steps))
        self.returned = True

    def repair(self, root: Path, files: CrashFiles | None, later: int = 0) -> dict[str, Any]:
        clock = ManualClock(NOW + later)
        if self.exchanges or files is None:
            return repair(root / "data", clock=clock, files=files)

        def refused(path: str, _other: str) -> None:
            raise os_error(errno.EINVAL, path)

        with mock.patch.object(files, "exchange", refused):
            return repair(root / "data", clock=clock, files=files)

    def check_found(self, files: Mapping[str, bytes]) -> list[str]:
        """Compare the files that a cut has left. Returns the partitions that are in the state after the repair."""
        repaired = []
        for name in DAMAGED:
            there = tree_of(files, f"data/{name}")
            if there == self.after[name]:
                repaired.append(name)
                kept = {path.split("/")[0] for path in files if not path.startswith("data/")}
                places = [f"{copy}/{inside}{name}" for copy in kept for inside in ("", "original/")]
                assert self.before[name] in [tree_of(files, place) for place in places], f"{name}: no original"
            elif there:
                assert there == self.before[name], f"{name} is mixed: {_difference(there, self.after[name])}"
                assert not self.returned, f"{name} is not repaired"
            else:
                assert not self.exchanges and not self.returned, f"data has no {name}"
                moved = [tree_of(files, path.rpartition("/")[0]) for path in files if f"/original/{name}/" in path]
                assert self.before[name] in moved, f"{name} is gone"
        return repaired


def _difference(found: Tree, expected: Tree) -> list[str]:
    return sorted(path for path in {*found, *expected} if found.get(path) != expected.get(path))


def problems(root: Path) -> list[tuple[str, str]]:
    return [(os.path.relpath(one.path, root), one.kind) for one in verify(root / "data").problems]


def content(root: Path) -> dict[str, list[bytes | None]]:
    with klog.open(root / "data", clock=ManualClock(NOW)) as logs:
        return {log.name: [record.value for record in log.read()] for log in logs.logs()}


class RepairedOpener:
    """Reads the repaired partitions. A full check also repairs again, and reads all partitions."""

    def __init__(self, repairing: Repairing) -> None:
        self._repairing = repairing

    def __call__(self, root: Path, recovery: Policy) -> dict[str, bytes]:
        found = on_disk(root)
        self._repairing.repair(root, None, later=1)
        assert problems(root) == self._repairing.problems
        again = on_disk(root)
        assert self._repairing.check_found(again) == [*DAMAGED]
        assert not [path for path in again if "/repaired/" in path or "/original/" in path]
        assert content(root) == self._repairing.content
        return found

    def quick(self, state: State, root: Path, recovery: Policy) -> dict[str, bytes]:
        found = state.files
        for name in self._repairing.check_found(found):
            log = klog.Log.open(root / "data" / name, config=CONFIG, clock=ManualClock(NOW))
            try:
                assert [record.value for record in log.read()] == self._repairing.content[name]
            finally:
                abandon(log)
        return found

    def interrupted(self, root: Path, recovery: Policy, rng: random.Random) -> State:
        def work(files: CrashFiles) -> None:
            self._repairing.repair(root, files, later=1)

        return cut_while(root, rng, 100, work)


def cut_repair(
    place: Path,
    *,
    seed: int,
    randoms: int,
    stride: int = 1,
    share: int = 1,
    deaths: Iterable[int] = (),
    rig: type[PowerCuts[dict[str, bytes]]] = PowerCuts,
) -> Tally:
    """Cut the power at every `stride`th disk operation of a repair. deaths: operations at which processes die before
    that."""
    repairing = Repairing(place, seed, deaths)
    cuts = rig(
        place,
        RepairedOpener(repairing),
        lambda found, _only_died: repairing.check_found(found) and None,
        stride=stride,
        first=seed % stride,
        randoms=randoms,
        seed=seed,
        share=share,
        promised=lambda: "the original or the repaired copy",
    )
    return cuts.run(repairing.run)
