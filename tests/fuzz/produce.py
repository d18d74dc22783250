"""The produce pipeline on the simulated disk.

input := rules:u8 cut:u8 seed:u8 (kind:u8 size:u16 payload)*
         rules: bits 0 to 1 the configuration, bit 2 durability="sync"; cut: before which operation of the disk the power
         fails, at the latest after the last; kind: bit 0 lengths and checksums are recomputed, bit 1 of a coordinator, bit 2 a flush
         follows

Each payload is refused with a KlogError and leaves no trace, or the log has its records after those before. After the
power cut the log has a prefix of all records, with those that a flush has promised.
"""

from __future__ import annotations

import random
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path

import klog
from klog.clock import ManualClock
from klog.errors import KlogError
from tests.support.abandon import abandon
from tests.support.batches import NOW
from tests.support.crash_files import CrashFiles
from tests.support.crash_states import State
from tests.support.in_memory import memory
from tests.support.power_cuts import quiet
from tests.support.reseal import reseal

_SMALL = {"segment.bytes": 700, "segment.index.bytes": 96, "index.interval.bytes": 1}
_CONFIGS = (
    {},
    {"cleanup.policy": "compact"},
    {"compression.type": "lz4"},
    {"message.timestamp.type": "LogAppendTime", "compression.type": "zstd"},
)
Row = tuple[int, bytes | None, bytes | None]


def payloads(data: bytes) -> Iterator[tuple[int, bytes]]:
    """(kind, payload), at most 8."""
    at = 0
    for _ in range(8):
        if len(data) - at < 3:
            return
        kind, size = struct.unpack_from(">BH", data, at)
        yield kind, data[at + 3 : at + 3 + size]
        at += 3 + size


def produce_target(data: bytes) -> None:
    if len(data) < 3:
        return
    with tempfile.TemporaryDirectory(dir=memory()) as place, quiet():
        life = _Life(Path(place, "run"), data)
        with _opened(life.state.lay_out(Path(place, "state")), "kafka" if life.state.by_sectors else "strict") as log:
            found = _rows(log)
            assert found == life.rows[: len(found)], (found, life.rows)
            assert len(found) >= life.promised, (len(found), life.promised)
            assert log.log_end_offset == (found[-1][0] + 1 if found else 0)


class _Life:
    """A log with the payloads of an input. rows: of all of them. state: what the power cut leaves. promised: how many of
    the rows a flush had promised before it."""

    state: State

    def __init__(self, root: Path, data: bytes) -> None:
        self.rows: list[Row] = []
        self.promised = self._durable = 0
        self._root, self._cut, self._chance = root, data[1], random.Random(data[2])
        self._disk = CrashFiles(before_step=self._step)
        root.mkdir()
        config = {**_SMALL, **_CONFIGS[data[0] & 3], "message.timestamp.after.max.ms": 2**63 - 1}
        log = klog.Log.open(
            root / "t-0",
            files=self._disk,
            clock=ManualClock(NOW),
            config=config,
            durability="sync" if data[0] & 4 else "os",
        )
        try:
            for kind, payload in payloads(data[3:]):
                self._append(log, kind, payload, bool(data[0] & 4))
            if self._disk.steps <= self._cut:
                self._cut_power()
        finally:
            abandon(log)

    def _step(self) -> None:
        if self._disk.steps == self._cut:
            self._cut_power()

    def _cut_power(self) -> None:
        self.state = self._disk.cut(self._root).any_state(self._chance)
        self.promised = self._durable

    def _append(self, log: klog.Log, kind: int, payload: bytes, sync: bool) -> None:
        payload = reseal(payload) if kind & 1 else payload
        end = log.log_end_offset
        try:
            info = log.append_batches(payload, origin="coordinator" if kind & 2 else "client")
        except KlogError:
            assert log.log_end_offset == end and _rows(log) == self.rows
            return
        rows = _rows(log)
        assert rows[: len(self.rows)] == self.rows
        if log.log_end_offset != end:  # no duplicate
            assert info.first_offset == end and log.log_end_offset == info.last_offset + 1
            assert [offset for offset, _, _ in rows[len(self.rows) :]] == list(range(end, log.log_end_offset))
        self.rows = rows
        if kind & 4:
            log.flush()
        if kind & 4 or sync:
            self._durable = len(rows)


def _opened(root: Path, recovery: klog.log.options.Policy) -> klog.Log:
    return klog.Log.open(root / "t-0", recovery=recovery, clock=ManualClock(NOW))


def _rows(log: klog.Log) -> list[Row]:
    found = log.read(log.log_start_offset, isolation="log_end", include_control=True)
    return [(record.offset, record.key, record.value) for record in found]
