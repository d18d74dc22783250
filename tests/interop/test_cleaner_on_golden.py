"""Check Kafka's cleaner in this setup first: over the saved cases, java/Cleaning.java must reproduce their verdicts.

klog is not involved.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.interop.kafka import KafkaClasses
from tests.support import golden

pytestmark = [pytest.mark.java, pytest.mark.deep]

# The fields of a segment, and of a round.
SEGMENT = ("base_offset", "size", "offset_index", "time_index")
ROUND = (
    "now_ms", "first_dirty_offset", "first_uncleanable_offset", "clean_bytes", "cleanable_bytes",
    "first_dirty_offset_after", "offset_map_entries", "offset_map_latest_offset",
)  # fmt: skip


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, golden.LoaderCase]:
    return golden.unpack_cleaner_cases(tmp_path_factory.mktemp("cleaner"))


def topic_config(case: golden.LoaderCase) -> dict[str, Any]:
    """The case's config: its segment.bytes was set as internal.segment.bytes."""
    config = dict(case.config["config"])
    config["internal.segment.bytes"] = config.pop("segment.bytes")
    return config


def age(directory: Path, times: Mapping[str, int]) -> None:
    """Restore the modification times of .log files: they decide how long old tombstones live."""
    for base, time_ms in times.items():
        os.utime(directory / f"{int(base):020}.log", (time_ms / 1000, time_ms / 1000))


def segments(described: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: segment[name] for name in SEGMENT} for segment in described]


def test_kafka_reproduces_its_saved_cleanings(
    kafka_classes: KafkaClasses, cases: dict[str, golden.LoaderCase], tmp_path: Path
) -> None:
    differences = golden.Differences("Cleaner")
    for name, case in cases.items():
        given, verdict = case.config, case.verdict
        directory = case.copy(tmp_path / name)
        age(directory, given.get("segment_mtime_ms", {}))
        answer = kafka_classes.clean(
            directory,
            given["rounds"],
            config=topic_config(case),
            recovery_point=verdict["log_end_offset"],
            high_watermark=given["high_watermark"],
            slots=given["offset_map_slots"],
            load_factor=given["dedupe_buffer_load_factor"],
            io_buffer_size=given["io_buffer_size"],
            max_io_buffer_size=given["max_io_buffer_size"],
            until_clean=given["repeat_until_clean"],
            topic_id=given["topic_id"],
            producer_id_expiration_ms=given["producer_id_expiration_ms"],
        )
        rounds = [{field: item[field] for field in ROUND} for item in answer["rounds"]]
        expected = [{field: item[field] for field in ROUND} for item in verdict["rounds"]]
        differences.equal_lists(f"{name} rounds", rounds, expected)
        last = answer["rounds"][-1]["first_dirty_offset_after"]
        differences.equal(f"{name} ends", last, verdict["first_dirty_offset_after"])
        differences.equal_lists(f"{name} segments", segments(answer["segments"]), segments(verdict["segments"]))
        files = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in directory.iterdir()}
        odd = sorted(
            file
            for file in files.keys() | verdict["files_after"].keys()
            if files.get(file) != verdict["files_after"].get(file)
        )
        differences.equal(f"{name} files", odd, [])
        checkpoint = (directory.parent / "cleaner-offset-checkpoint").read_text()
        differences.equal(f"{name} checkpoint", checkpoint, f"0\n1\nstate 0 {last}\n")
    differences.report()
