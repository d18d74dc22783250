"""Fetches of slices from the page cache, whose bytes are not read; the peer is Kafka's UnifiedLog.read.

    kafka fetch random     one batch at random offsets
    kafka fetch sequential one batch after the other, as a consumer of large batches fetches
    kafka fetch 1MiB       as a consumer that is behind: each fetch begins where the last one ended

Batches of 4 KiB, half of the log in closed segments. Kafka's slice may end inside a batch, klog's ends before it.
"""

from __future__ import annotations

import random
import shutil
import struct
from pathlib import Path

import klog
from bench.child import Answer
from bench.contest import Contest, Contestant, Factory
from bench.kafka_loop import KafkaJvm
from bench.workloads import FIRST_TIMESTAMP
from klog import record

_BATCH_BYTES = 4096
SEGMENT_BYTES = 64 << 20
_LOG_BYTES = 160_000 << 10


class Fetched:
    """A log of batches, half of it in closed segments, and the offsets to fetch from; a copy of both for a peer."""

    def __init__(self, batch_bytes: int, max_bytes: int, *, sequential: bool, tiny: bool, folder: Path) -> None:
        batches, self.count = (200, 50) if tiny else (_LOG_BYTES // batch_bytes, 10_000)
        batch = record.encode([(None, bytes(batch_bytes - 75), FIRST_TIMESTAMP)])
        self.log = klog.Log.open(folder / "fetch-0", config={"segment.bytes": SEGMENT_BYTES, "retention.ms": -1})
        for _ in range(batches):
            self.log.append_batches(batch)
        self.log.flush()
        whole = max(max_bytes // len(batch), 1)
        chance = random.Random(7)
        self.offsets = [n * whole % batches if sequential else chance.randrange(batches) for n in range(self.count)]
        self.batch_bytes, self.max_bytes = len(batch), max_bytes
        self.listed, self.copy = folder / "offsets", folder / "peer" / "fetch-0"
        self.listed.write_bytes(struct.pack(f">{self.count}q", *self.offsets))
        shutil.copytree(self.log.path, self.copy)

    def fetch(self) -> None:
        call, max_bytes = self.log.fetch, self.max_bytes
        for offset in self.offsets:
            call(offset, max_bytes)

    def check(self, answer: Answer) -> None:
        """Check klog's slices and the peer's sums. The peer's slices may end at most one batch later, or, at the end of
        a segment, in the next one."""
        sizes = []
        for offset in self.offsets:
            found = self.log.fetch(offset, self.max_bytes)
            first = next(record.decode(found.memory()))
            assert (first.base_offset, found.size % self.batch_bytes) == (offset, 0)
            sizes.append(found.size)
        assert answer.records == self.count
        assert sum(sizes) <= answer.bytes < self.count * (max(sizes) + self.batch_bytes)


def _fetch(name: str, max_bytes: int, tiny: bool, folder: Path) -> Contest:
    fetched = Fetched(_BATCH_BYTES, max_bytes, sequential=name != "random", tiny=tiny, folder=folder)
    jvm = KafkaJvm("KafkaLog", str(SEGMENT_BYTES))
    question = f"fetch {fetched.copy} {fetched.listed} {max_bytes}"

    def check() -> None:
        fetched.check(jvm.warm_up(question))

    return jvm.contest(
        f"kafka fetch {name}",
        fetched.count,
        0,
        (
            Contestant("klog Log.fetch", fetched.fetch, goal=1.6),
            jvm.contestant("UnifiedLog.read", question),
        ),
        check,
        fetched.log.close,
    )


FACTORIES: dict[str, Factory] = {
    f"kafka fetch {name}": lambda tiny, folder, name=name, size=size: _fetch(name, size, tiny, folder)
    for name, size in (("random", 1), ("sequential", 1), ("1MiB", 1 << 20))
}
