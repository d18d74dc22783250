"""F32: a file system that ignores case, as in tests/support/ignoring_case.py."""

from __future__ import annotations

from pathlib import Path

from tests.support.preload import run_under


def test_a_topic_whose_name_differs_only_by_case_is_refused_and_leaves_the_other(tmp_path: Path) -> None:
    run_under("folding", tmp_path, "ignoring_case", str(tmp_path / "data"), KLOG_TEST_FOLDING=str(tmp_path))
