"""Replay skips batches that leave no state: the result is the same as with every batch."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import klog
from klog import record
from klog.disk import RealFiles
from klog.log.load import replay as replay_module
from klog.log.load.replay import replay
from klog.log.state.leader_epochs import LeaderEpochCache
from klog.log.state.producers import Producers
from klog.segment import scan_headers

NOW = 1_700_000_000_000


def written(path: Path, seed: int) -> klog.Log:
    """Batches of three producers, two epochs each, some in transactions, and markers; leader epochs rise in between."""
    chance, log = random.Random(seed), klog.Log.open(path / "t-0", config={"retention.ms": -1})
    sequences: dict[tuple[int, int], int] = {}
    open_in: dict[int, int] = {}
    offset, leader = 0, 0
    epochs = {7: 0, 8: 0, 2**33 + 7: 0}
    for _ in range(150):
        producer = chance.choice(list(epochs))
        epoch = epochs[producer]
        header = {"base_offset": offset, "leader_epoch": leader, "producer_id": producer, "producer_epoch": epoch}
        if producer in open_in and chance.random() < 0.3:
            kind = chance.choice([0, 1])
            marker = record.Record(kind.to_bytes(4, "big"), (0).to_bytes(2, "big") + (3).to_bytes(4, "big"), NOW)
            data = record.encode([marker], is_control=True, is_transactional=True, base_sequence=-1, **header)
            del open_in[producer]
            count = 1
        else:
            if producer not in open_in and chance.random() < 0.05:
                epoch = epochs[producer] = header["producer_epoch"] = epoch + 1
            transactional = producer in open_in or chance.random() < 0.1
            if transactional:
                open_in.setdefault(producer, offset)
            count = chance.randrange(1, 4)
            base = sequences.get((producer, epoch), 0)
            sequences[producer, epoch] = base + count
            rows = [(b"k", b"v", NOW + offset)] * count
            data = record.encode(rows, base_sequence=base, is_transactional=transactional, **header)
        log.append_batches(data, origin="replication")
        offset += count
        leader += chance.random() < 0.05
    log.flush()
    return log


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("start", [0, 100])
def test_replay_gives_the_state_of_all_batches(
    tmp_path: Path, seed: int, start: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with written(tmp_path, seed) as log:
        segment = log.segments[0]
        headers = scan_headers(segment.file, 0, segment.size, 0).notable
        known = []
        for every in (False, True):
            if every:
                monkeypatch.setattr(replay_module, "_remembered", lambda headers: headers)
            producers, epochs = Producers(), LeaderEpochCache(str(tmp_path), RealFiles())
            aborted = replay(headers, segment.file, producers, epochs, start)
            states = [(pid, state, producers.entries[pid].batches) for pid, state in producers.states.items()]
            known.append((aborted, states, epochs.entries, producers.first_unstable_offset))
        assert known[0] == known[1]
        assert len(known[0][1]) == 3
        monkeypatch.undo()
        assert len(replay_module._remembered(headers)) < len(headers)
