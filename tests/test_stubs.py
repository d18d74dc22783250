"""Each native module has a stub, and mypy.stubtest finds no difference: tools/check_stubs.py as a test."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import check_stubs


@pytest.mark.deep  # half a minute, and `make check` runs the same
def test_stubs_and_modules_agree(capfd: pytest.CaptureFixture[str]) -> None:
    assert check_stubs.main() == 0, capfd.readouterr()


def test_a_missing_stub_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "klog").mkdir()
    (tmp_path / "klog" / "_lonely.pyx").touch()
    monkeypatch.setattr(check_stubs, "ROOT", tmp_path)
    assert check_stubs.main() == 1
    assert "klog/_lonely.pyx" in capsys.readouterr().out
