"""The model of a cleaning agrees with the saved outcomes of Kafka's own cleaner."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import cleaned, cleaner_reference, golden
from tests.support.dirty_logs import Plan

# Excluded: rounds after the first (the model lacks their input), one without dirty records, old formats (they get other
# offsets), and a batch with an invalid checksum, which cannot be read here.
ONE_ROUND = sorted(
    set(golden.cleaner_names())
    - {"everything", "everything-map-full", "flipped-bit", "legacy-v1", "log-append-time", "map-full"}
    - {
        "min-compaction-lag",
        "nothing-dirty",
        "second-cleaning",
        "tombstones-at-horizon",
        "transactions-marker-life",
        "idempotent-expired",
    }
)


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, golden.LoaderCase]:
    return golden.unpack_cleaner_cases(tmp_path_factory.mktemp("cleaner"))


@pytest.mark.parametrize("name", ONE_ROUND)
def test_the_model_matches_the_saved_outcome(name: str, cases: dict[str, golden.LoaderCase], tmp_path: Path) -> None:
    case = cases[name]
    given, verdict = case.config, case.verdict
    (verdict_round,) = verdict["rounds"]
    config = {"delete.retention.ms": 86_400_000, "min.compaction.lag.ms": 0, **given["config"]}
    config["internal.segment.bytes"] = config.pop("segment.bytes")
    plan = Plan(
        now_ms=verdict_round["now_ms"],
        log_end_offset=verdict["log_end_offset"],
        log_start_offset=verdict["log_start_offset"],
        roll=False,
        afresh=True,
        once=True,
        high_watermark=given["high_watermark"],
        slots=given["offset_map_slots"],
        load_factor=given["dedupe_buffer_load_factor"],
        io_buffer_size=given["io_buffer_size"],
    )
    task = cleaned.task(case.copy(tmp_path), plan, config)
    assert (task.dirty, task.uncleanable) == (
        verdict_round["first_dirty_offset"],
        verdict_round["first_uncleanable_offset"],
    )
    keys, latest = cleaner_reference.offset_map(task)
    assert (len(keys), latest) == (verdict_round["offset_map_entries"], verdict_round["offset_map_latest_offset"])
    end, made = cleaner_reference.clean(task)
    assert end == verdict["first_dirty_offset_after"]
    bases = {segment.base_offset for segment in made}
    expected = [item for item in verdict["batches"] if item["segment"] in bases]
    got = [kept for segment in made for kept in segment.batches]
    assert [(it.base_offset, it.last_offset, len(it.offsets), it.horizon_ms) for it in got] == [
        (it["base_offset"], it["last_offset"], it["count"], it["delete_horizon_ms"]) for it in expected
    ]
    assert [segment.base_offset for segment in made] == [
        item["base_offset"] for item in verdict["segments"] if item["base_offset"] < task.uncleanable
    ]
    survivors = [record.offset for record in case.records if record.offset < task.uncleanable]
    assert survivors == [offset for it in got for offset in it.offsets]
    entries = [entry for segment in made for entry in segment.aborted]
    assert entries == golden.expected_aborted(verdict["aborted"], 0, task.uncleanable)
