"""What klog leaves behind, Kafka's own loader takes over: the same log end, records, producers, aborted transactions."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.kafka import Judge
from tests.interop.loads import Given, kafka_loads
from tests.support import golden

pytestmark = pytest.mark.java


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, golden.LoaderCase]:
    return golden.unpack_loader_cases(tmp_path_factory.mktemp("loader"))


def given(case: golden.LoaderCase, directory: Path) -> Given:
    config = case.config
    return Given(
        directory,
        clean=config["clean_shutdown"],
        now_ms=config["now_ms"],
        recovery_point=config["recovery_point"],
        log_start_offset=config["log_start_offset"],
        config=config["config"],
        producer_expiration_ms=config["producer_id_expiration_ms"],
    )


@pytest.mark.deep
def test_kafka_loads_is_what_the_loader_cases_were_written_by(
    judge: Judge, cases: dict[str, golden.LoaderCase], tmp_path: Path
) -> None:
    if judge.kafka.version != "4.1.0":
        pytest.skip("needs: the version that wrote the cases down")
    chosen = [case for case in cases.values() if not case.name.startswith("metadata-")]
    verdicts = kafka_loads(judge, [given(case, case.copy(tmp_path / case.name)) for case in chosen])
    found = []
    for case, verdict in zip(chosen, verdicts, strict=True):
        expected = case.verdict
        if (verdict.error is None) != expected["ok"]:
            found.append(f"{case.name}: {verdict.error}, expected ok={expected['ok']}")
        if verdict.error is None and expected["ok"]:
            got = verdict.log_start_offset, verdict.log_end_offset, verdict.records, list(verdict.producers)
            producers = golden.expected_producers(expected["producers"])
            wanted = expected["log_start_offset"], expected["log_end_offset"], len(case.records), producers
            if got != wanted:
                found.append(f"{case.name}: {got}, expected {wanted}")
    assert not found, "\n".join(found)
