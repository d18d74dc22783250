"""Random logs: latest_by_key() equals a dict built from the records, before and after compactions."""

from __future__ import annotations

import tempfile
from datetime import UTC, datetime
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

import klog
from klog.clock import ManualClock
from klog.record import encode
from tests.support.batches import NOW, marker
from tests.support.in_memory import memory

CONFIG = {"segment.bytes": 700, "cleanup.policy": "compact", "index.interval.bytes": 100, "segment.index.bytes": 480}
Row = tuple[bytes, bytes | None, int]

ROWS = st.lists(
    st.tuples(
        st.sampled_from([b"", b"a", b"b", b"c" * 40, b"d", b"e"]),
        st.one_of(st.none(), st.binary(max_size=40)),
        st.integers(NOW - 20, NOW + 20) | st.just(-1),
    ),
    min_size=1,
    max_size=6,
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), ROWS),
        st.tuples(st.sampled_from(["commit", "abort"]), ROWS),
        st.tuples(st.sampled_from(["roll", "compact"]), st.just([])),
    ),
    max_size=14,
)


def append(log: klog.Log, step: str, rows: list[Row], number: int) -> None:
    if step == "append":
        log.append(rows, compression=("none", "zstd")[number % 2])
        return
    sent = encode(rows, producer_id=number, producer_epoch=0, base_sequence=0, is_transactional=True)
    log.append_batches(sent)
    log.append_batches(marker(number, 0, step), origin="coordinator")


def latest_of(rows: list[Row], until: int = 2**62) -> dict[bytes, bytes]:
    found: dict[bytes, bytes] = {}
    for key, value, timestamp in rows:
        if timestamp <= until:
            found.pop(key, None)
            if value is not None:
                found[key] = value
    return found


def values(latest: klog.LatestByKey) -> dict[bytes, bytes | None]:
    found = {key: record.value for key, record in latest.items()}
    assert found == {key: latest[key].value for key in latest} and len(found) == len(latest)
    table = latest.to_arrow()
    assert dict(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True)) == found
    return found


@given(STEPS, st.integers(NOW - 20, NOW + 20))
def test_latest_by_key_is_a_dict_over_the_records(steps: list[tuple[str, list[Row]]], until: int) -> None:
    with (
        tempfile.TemporaryDirectory(dir=memory()) as base,
        klog.Log.open(Path(base) / "t-0", config=CONFIG, clock=ManualClock(NOW)) as log,
    ):
        committed: list[Row] = []
        everything: list[Row] = []
        compacted = False
        for number, (step, rows) in enumerate(steps):
            if step == "roll":
                log.roll()
            elif step == "compact":
                log.compact()
                compacted = True
            else:
                append(log, step, rows, number)
                everything += rows
                committed += rows if step != "abort" else []
        assert values(log.latest_by_key(isolation="read_committed")) == latest_of(committed)
        if not compacted:
            assert values(log.latest_by_key()) == latest_of(everything)
            moment = datetime.fromtimestamp(until / 1000, UTC)
            assert values(log.as_of(moment).latest_by_key()) == latest_of(everything, until)
        before = log.latest_by_key(isolation="read_committed")
        order = list(before)
        log.compact(roll=True)
        left = {record.key: record.value for record in log.read() if record.value is not None}
        assert left == latest_of(committed) and list(left) == order
