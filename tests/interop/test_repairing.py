"""Kafka's own loader opens directories that rescue and repair leave, as after a clean stop and as after a crash, and
changes nothing."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import klog
from klog.repairing import repair, rescue
from tests.interop.kafka import KafkaClasses
from tests.support import golden

pytestmark = [pytest.mark.java, pytest.mark.deep]
NOW = 1_800_000_000_000


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("how", ["rescue", "repair"])
@pytest.mark.parametrize("case", ["txn", "segments", "epochs", "compacted"])
def test_kafka_loads_the_result(kafka_classes: KafkaClasses, tmp_path: Path, case: str, how: str, clean: bool) -> None:
    path, to = tmp_path / "data", tmp_path / "new"
    shutil.copytree(golden.HOME / case / "logdir", path)
    for file in sorted(path.glob("*-*/*.log"))[1::3]:
        content = bytearray(file.read_bytes())
        sizes = [batch.size for batch in klog.record.decode(content)]
        if sizes:
            content[sum(sizes[: len(sizes) // 2]) + 30] ^= 0x10
            file.write_bytes(content)
    if how == "rescue":
        assert any(entry["missing"] for entry in rescue(path, to)["partitions"])
    else:
        assert any(entry["files"] for entry in repair(path)["partitions"])
        to = path
    with klog.open(to, read_only=True) as logs:
        for topic, numbers in logs.topics().items():
            for number in numbers:
                log = logs.log(topic, number)
                copy = Path(shutil.copytree(log.path, tmp_path / f"{topic}-{number}"))
                point = log.log_end_offset if clean else 0
                answer = kafka_classes.load(
                    copy, clean=clean, now_ms=NOW, recovery_point=point, log_start_offset=log.log_start_offset
                )
                assert (answer["log_start_offset"], answer["log_end_offset"]) == (
                    log.log_start_offset,
                    log.log_end_offset,
                )
                found = [line["o"] for line in answer["records"] if line["o"] >= log.log_start_offset]
                assert found == [record.offset for record in log.read(include_control=True)]
