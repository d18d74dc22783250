"""The open loop of bench/tails.py, its percentiles, and its table in the document."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import asdict

import pytest

from bench import tails
from bench.tail_stores import Klog, Lmdb, PlainFile, Rocks, Sqlite, copy_store
from tests.support.patience import PATIENCE

_STALL = 0.05
_RATE = 1000.0


def test_a_stall_counts_for_every_arrival_behind_it():
    def put(number):
        if number == 0:
            time.sleep(_STALL)

    latencies, taken = tails.load(put, 1, _RATE, 0.1)
    assert sorted(latencies) == list(range(100))
    assert all(latencies[number] >= _STALL - number / _RATE for number in range(50))
    assert taken >= 99 / _RATE


def test_arrivals_come_when_they_are_due_and_not_before():
    at = {}
    started = time.perf_counter()
    tails.load(lambda number: at.setdefault(number, time.perf_counter()), 1, _RATE, 0.02)
    assert all(at[number] >= started + number / _RATE for number in range(20))


def test_an_arrival_behind_a_stall_is_taken_by_another_thread():
    others = threading.Event()

    def put(number):
        assert number != 0 or others.wait(PATIENCE), "all other arrivals waited for the first"
        if number == 19:
            others.set()

    latencies, _ = tails.load(put, 2, _RATE, 0.02)
    assert len(latencies) == 20
    assert latencies[0] >= 19 / _RATE


def test_the_load_ends_with_what_it_runs_beside():
    running = iter([True] * 5)
    latencies, _ = tails.load(lambda number: None, 1, _RATE, 60, lambda: next(running, False))
    assert sorted(latencies) == [0, 1, 2, 3, 4, 5]
    latencies, _ = tails.load(lambda number: None, 1, _RATE, 60, lambda: False)
    assert sorted(latencies) == [0]


def test_a_failed_put_ends_the_run():
    def put(number):
        raise OSError("no more")

    with pytest.raises(OSError, match="no more"):
        tails.load(put, 2, _RATE, 0.01)


def test_percentiles_are_the_smallest_value_that_so_many_do_not_exceed():
    ordered = [float(number) for number in range(1, 1001)]
    assert [tails.percentile(ordered, part) for part in (0.5, 0.99, 0.999, 1.0)] == [500, 990, 999, 1000]
    assert tails.percentile([7.0], 0.999) == 7


def test_a_run_finds_a_record_that_is_missing(tmp_path):
    class Forgetful(PlainFile):
        def numbers(self, first):
            return super().numbers(first)[:-1]

    with pytest.raises(AssertionError, match="21 records were written, 20 found"):
        tails.measure(Forgetful(tmp_path / "store-0"), tails.Row("alone", "forgetful"), 1, _RATE, 0.02)


@pytest.mark.parametrize("kind", [Klog, Sqlite, Lmdb, Rocks], ids=lambda kind: kind.name)
def test_a_filled_store_takes_more_records_and_gives_only_those(kind, tmp_path):
    if needs := kind.needs():
        pytest.skip(f"needs: {needs}")
    store = kind(tmp_path / "store-0", 2 << 20)
    assert list(store.fill(2000))
    assert store.next_number == 2000
    for _ in range(2):
        row = tails.Row("filled", store.name)
        tails.measure(store, row, 2 if kind in (Klog, Rocks) else 1, _RATE, 0.01)
        assert len(row.latencies) == 10
    assert store.next_number == 2000 + 2 * 11


@pytest.mark.parametrize("kind", [Klog, Rocks], ids=lambda kind: kind.name)
def test_a_copy_of_a_dirty_store_is_cleaned_and_its_source_is_not(kind, tmp_path):
    if needs := kind.needs():
        pytest.skip(f"needs: {needs}")
    source, copy = kind(tmp_path / "store-0"), kind(tmp_path / "store-1")
    source.dirty(8 << 20)
    before = {path.name: path.stat().st_size for path in source.path.iterdir()}
    copy_store(source.path, copy.path)
    tails.measure(copy, tails.Row("cleaning", kind.name), 1, _RATE, 1.0, copy)
    size = sum(path.stat().st_size for path in copy.path.iterdir())
    assert size < sum(before.values()) / 2
    assert {path.name: path.stat().st_size for path in source.path.iterdir()} == before


def run_of(*rows, **more):
    machine = {"cpu": "a processor", "cores": 2, "kernel": "6.1", "python": "3.11", "commit": "abc"}
    return {"machine": machine, **asdict(tails.Sizes()), "load_average": 0.5, "rows": rows, "skipped": {}, **more}


def test_the_table_has_percentiles_in_milliseconds_samples_and_rate():
    row = tails.Row("alone", "klog append", [0.001] * 998 + [0.002, 0.5], 5.0).figures()
    assert tails.text(row).split()[-6:] == ["1.00", "1.00", "2.00", "500.00", "1,000", "200"]
    page = tails.markdown(run_of(row, skipped={"RocksDB": "librocksdb"}))
    assert "| alone | klog append | 1.00 | 1.00 | 2.00 | 500.00 | 1,000 | 200 |" in page
    assert "- RocksDB needs: librocksdb" in page
    assert "At commit abc on a processor" in page


def test_the_document_shows_the_stored_figures():
    page = tails.PAGE.read_text()
    assert tails.into(page, json.loads(tails.RESULTS.read_text())) == page
