"""A load that is stopped at any point can be repeated: the next load has the same result as a load without a stop."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import klog
from klog.clock import ManualClock
from klog.disk import Files
from klog.errors import CorruptBatch, CorruptLog
from klog.log.options import Policy
from tests.log.test_loader_verdicts import NAMES, OTHER_TOPIC
from tests.support import golden
from tests.support.crash_files import CrashFiles, PowerCut

SAMPLE = {
    "flip-middle-rp0-unclean",
    "swap-with-cleaned-at-unclean",
    "swap-one-unclean",
    "swap-split-unclean",
    "offset-overflow-unclean",
}
CASES = [
    pytest.param(name, marks=[] if name in SAMPLE else pytest.mark.deep)
    for name in NAMES
    if name.endswith("-unclean") and name not in OTHER_TOPIC
]


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, golden.LoaderCase]:
    return golden.unpack_loader_cases(tmp_path_factory.mktemp("loader"))


def load(case: golden.LoaderCase, directory: Path, policy: Policy, files: Files | None = None) -> klog.Log:
    given = case.config
    return klog.Log.open(
        directory,
        config={**given["config"], "producer.id.expiration.ms": given["producer_id_expiration_ms"]},
        recovery=policy,
        clean_shutdown=False,
        recovery_point=given["recovery_point"],
        log_start_offset=given["log_start_offset"],
        topic_id=given["topic_id"],
        clock=ManualClock(given["now_ms"]),
        files=files,
    )


def state(log: klog.Log) -> tuple[object, ...]:
    records: list[object] = []
    try:
        records += map(golden.record_tuple, log.read(include_control=True, isolation="log_end"))
    except CorruptBatch as error:
        records.append(error.position)
    segments = [(segment.base_offset, segment.size) for segment in log.segments]
    return log.log_start_offset, log.log_end_offset, segments, log.aborted_transactions(), records


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("policy", ["strict", "kafka"])
def test_a_load_stopped_anywhere_is_finished_by_the_next(
    name: str, policy: Policy, cases: dict[str, golden.LoaderCase], tmp_path: Path
) -> None:
    case, files = cases[name], CrashFiles()
    try:
        with load(case, case.copy(tmp_path / "whole"), policy, files=files) as log:
            done = list(files.log)
            expected = state(log)
    except CorruptLog:
        return
    for stop_at in range(len(done)):
        directory = case.copy(tmp_path / f"{stop_at}")
        with pytest.raises(PowerCut):
            load(case, directory, policy, files=CrashFiles(stop_at))
        try:
            with load(case, directory, policy) as log:
                assert state(log) == expected
        except BaseException as error:
            error.add_note(f"stopped before {done[stop_at]}")
            raise
        shutil.rmtree(directory.parent)
