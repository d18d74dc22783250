"""With the notes of pass 1 about whole batches, pass 2 can skip a decompression, but only if the result is the same."""

from __future__ import annotations

from pathlib import Path

import pytest

import klog
from klog.record import _batch
from tests.cleaner.logs import NOW, open_log

SIZE = 64  # records of a batch: as many offsets as share one noted bit
CODEC = "zstd"
Pair = tuple[bytes | None, bytes | None]


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The payloads that were decompressed."""
    seen: list[bytes] = []
    real = _batch.decompress  # type: ignore[attr-defined]

    def counted(codec: int, payload: memoryview, bytes_max: int) -> object:
        seen.append(bytes(payload))
        return real(codec, payload, bytes_max)

    monkeypatch.setattr(_batch, "decompress", counted)
    return seen


def raw(log: klog.Log) -> list[bytes]:
    return [bytes(batch.raw) for batch in log.read(isolation="log_end").batches()]


def pairs(of: bytes) -> list[Pair]:
    return [(b"%s-%d" % (of, number), b"value-%d" % number) for number in range(SIZE)]


NEW, OLD, OTHER = pairs(b"new"), pairs(b"old"), pairs(b"other")
CASES: dict[str, tuple[list[list[Pair]], list[int], list[int]]] = {
    # batches, how often each is decompressed, how many records each has left
    "every record stays": ([NEW, OTHER], [1, 1], [64, 64]),
    "every record goes": ([OLD, NEW, OLD], [1, 1, 1], [0, 64, 64]),
    "one record goes": ([[*OLD[:63], NEW[5]], NEW], [2, 1], [63, 64]),
    "a tombstone": ([NEW, [*OTHER[:9], (b"gone", None), *OTHER[10:]], OLD], [1, 2, 1], [64, 64, 64]),
    "a record without a key": ([NEW, [*OTHER[:63], (None, b"v")], OLD], [1, 2, 1], [64, 63, 64]),
    "a tombstone that shares a noted bit": ([NEW[:32], [*OTHER[:31], (b"gone", None)], OLD], [2, 2, 1], [32, 32, 64]),
}


@pytest.mark.parametrize("case", CASES)
def test_a_batch_is_decompressed_twice_only_if_needed(case: str, opened: list[bytes], tmp_path: Path) -> None:
    batches, times, left = CASES[case]
    config = {"segment.bytes": 1 << 20, "max.message.bytes": 1 << 16}
    with open_log(tmp_path / "t-0", config=config | {"cleanup.policy": "delete"}) as log:  # takes null keys
        for batch in batches:
            log.append([(key, value, NOW) for key, value in batch], compression=CODEC)
        log.roll()
        before = raw(log)
    with open_log(tmp_path / "t-0", config=config) as log:
        opened.clear()
        log.compact()
        assert sorted(opened) == sorted(batch[61:] for batch, n in zip(before, times, strict=True) for _ in range(n))
        after = {batch.base_offset: batch for batch in log.read(isolation="log_end").batches()}
        offset = 0
        for was, records, n, expected in zip(before, batches, times, left, strict=True):
            found = after.get(offset)
            assert (0 if found is None else found.count) == expected
            if found is not None and n == 1:
                assert bytes(found.raw) == was
            offset += len(records)


def test_a_batch_below_the_noted_range_is_decompressed(opened: list[bytes], tmp_path: Path) -> None:
    """There are no notes about the batches of earlier rounds: one of their keys may have been written again."""
    with open_log(tmp_path / "t-0", config={"segment.bytes": 1 << 20, "max.message.bytes": 1 << 16}) as log:
        log.append([(key, value, NOW) for key, value in NEW], compression=CODEC)
        log.compact(roll=True)
        log.append([(key, value, NOW) for key, value in (NEW[3], *OTHER[:63])], compression=CODEC)
        log.roll()
        opened.clear()
        log.compact()
        assert len(opened) == 2
        assert [batch.count for batch in log.read(isolation="log_end").batches()] == [63, 64]
