"""Kafka's file reader accepts and refuses the batches as each row of the acceptance matrix states."""

from __future__ import annotations

from pathlib import Path

import pytest

from klog.codec import CODECS
from tests.interop.kafka import KafkaClasses
from tests.support.acceptance import MATRIX, SCANNER, Row

pytestmark = [pytest.mark.java, pytest.mark.deep]


@pytest.mark.parametrize("codec", range(5), ids=CODECS)
@pytest.mark.parametrize("row", [*MATRIX, *SCANNER], ids=str)
def test_kafka_agrees_with_the_matrix(kafka_classes: KafkaClasses, row: Row, codec: int, tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_bytes(row.data(codec))
    answer = kafka_classes.try_records(path)
    if row.records is None:
        assert "error" in answer, answer
    else:
        assert "error" not in answer, answer
        assert sum(len(batch["records"]) for batch in answer["batches"]) == row.records
        assert (answer["trailing_bytes"] != 0) == row.partial
