"""Fetches from the page cache, without their bytes: where a slice begins and ends. Beside Kafka's UnifiedLog.read.

    kafka fetch random     one batch at offsets in no order
    kafka fetch in turn    one batch after the other, as a consumer of large batches fetches
    kafka fetch 1MiB       as a consumer that is behind: each fetch begins where the last one ended

Batches of 4 KiB, half of the log in closed segments. Kafka's slice may end inside a batch, klog's ends before it.
"""

from __future__ import annotations

import random
import shutil
import struct
from pathlib import Path

import klog
from bench.contest import Contest, Contestant, Factory
from bench.kafka_loop import VERSION, KafkaJvm
from bench.workloads import FIRST_TIMESTAMP
from klog import record

_BATCH_BYTES = 4096
_SEGMENT_BYTES = 64 << 20


def _fetch(name: str, max_bytes: int, tiny: bool, folder: Path) -> Contest:
    batches, count = (200, 50) if tiny else (40_000, 10_000)
    batch = record.encode([(None, bytes(_BATCH_BYTES - 75), FIRST_TIMESTAMP)])
    log = klog.Log.open(folder / "fetch-0", config={"segment.bytes": _SEGMENT_BYTES, "retention.ms": -1})
    for _ in range(batches):
        log.append_batches(batch)
    log.flush()
    whole = max(max_bytes // len(batch), 1)
    chance = random.Random(7)
    offsets = [chance.randrange(batches) if name == "random" else n * whole % batches for n in range(count)]
    listed, peers = folder / "offsets", folder / "kafka" / "fetch-0"
    listed.write_bytes(struct.pack(f">{count}q", *offsets))
    shutil.copytree(log.path, peers)
    jvm = KafkaJvm("KafkaLog", str(_SEGMENT_BYTES))
    question = f"fetch {peers} {listed} {max_bytes}"

    def fetch() -> None:
        call = log.fetch
        for offset in offsets:
            call(offset, max_bytes)

    def check() -> None:
        size = 0
        for offset in offsets:
            found = log.fetch(offset, max_bytes)
            first = next(record.decode(found.memory()))
            assert (first.base_offset, found.size % len(batch)) == (offset, 0)
            size += found.size
        answer = jvm.warm_up(question)
        assert answer.records == count
        assert size <= answer.bytes < size + count * len(batch)

    def close() -> None:
        log.close()
        jvm.close()

    return Contest(
        f"kafka fetch {name}",
        count,
        0,
        (
            Contestant("klog Log.fetch", fetch, goal=1.6),
            Contestant(f"Kafka {VERSION} UnifiedLog.read", lambda: jvm.ask(question).seconds, own_clock=True),
        ),
        check,
        close,
        threads=(jvm.schedstat,),
    )


FACTORIES: dict[str, Factory] = {
    f"kafka fetch {name}": lambda tiny, folder, name=name, size=size: _fetch(name, size, tiny, folder)
    for name, size in (("random", 1), ("in turn", 1), ("1MiB", 1 << 20))
}
