"""Inputs and outputs of Kafka's cleaner open and read, with every record that the cleaner left."""

from __future__ import annotations

from pathlib import Path

import pytest

import klog
from klog.clock import ManualClock
from klog.errors import CorruptBatch
from tests.support import golden


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, golden.LoaderCase]:
    return golden.unpack_cleaner_cases(tmp_path_factory.mktemp("cleaner"))


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("name", [name for name in golden.cleaner_names() if name != "flipped-bit"])
def test_a_log_before_cleaning(name: str, clean: bool, cases: dict[str, golden.LoaderCase], tmp_path: Path) -> None:
    case = cases[name]
    directory = case.copy(tmp_path)
    given = case.config
    with klog.Log.open(
        directory, config=given["config"], clean_shutdown=clean, clock=ManualClock(given["now_ms"])
    ) as log:
        assert log.log_end_offset == case.verdict["log_end_offset"]
        assert (log.recovery.bytes_truncated, log.recovery.details) == (0, ())
        got = {record.offset: golden.record_tuple(record) for record in log.read(include_control=True)}
        assert list(got) == sorted(got)
        for record in case.records:
            assert got[record.offset] == record
    assert [problem for problem in klog.verify(directory).problems if problem.kind != "checkpoint"] == []


def test_flipped_bits_are_reported_with_their_position(cases: dict[str, golden.LoaderCase], tmp_path: Path) -> None:
    case = cases["flipped-bit"]
    directory = case.copy(tmp_path)
    with (
        klog.Log.open(
            directory, config=case.config["config"], clean_shutdown=True, clock=ManualClock(case.config["now_ms"])
        ) as log,
        pytest.raises(CorruptBatch) as caught,
    ):
        list(log.read())
    reported = {
        (problem.path, problem.position) for problem in klog.verify(directory).problems if problem.kind == "crc"
    }
    assert (caught.value.path, caught.value.position) in reported
