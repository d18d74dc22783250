"""Imports point left and down: tools/check_layers.py lists every import, and none may point up."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import check_layers


def test_no_import_points_up() -> None:
    assert sorted(set(check_layers.breaches())) == []


def test_no_import_inside_log_points_up() -> None:
    assert sorted(set(check_layers.breaches_in_log())) == []


def test_an_upward_import_inside_log_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = tmp_path / "klog" / "log" / "state" / "planted.py"
    module.parent.mkdir(parents=True)
    module.write_text("from klog.log.options import Options\nfrom klog.log.write.roll import roll\n")
    monkeypatch.setattr(check_layers, "ROOT", tmp_path)
    assert list(check_layers.breaches_in_log()) == [
        "klog.log.state.planted -> klog.log.write.roll: points up inside log"
    ]


def test_no_imports_run_in_a_circle() -> None:
    assert list(check_layers.circles()) == []


def test_a_circle_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = tmp_path / "klog" / "disk"
    directory.mkdir(parents=True)
    for name, line in (
        ("a", "from klog.disk import b"),
        ("b", "from klog.disk.c import x"),
        ("c", "import klog.disk.a"),
    ):
        (directory / f"{name}.py").write_text(f"def f():\n    {line}\n")
    (directory / "d.py").write_text("from klog.disk import a\n")
    monkeypatch.setattr(check_layers, "ROOT", tmp_path)
    assert [module[-1] + target[-1] for module, target in check_layers.circles()] == ["ab", "bc", "ca"]


def test_every_package_has_its_place() -> None:
    packages = {path.name for path in (check_layers.ROOT / "klog").iterdir() if (path / "__init__.py").exists()}
    assert packages <= {*check_layers.ORDER, *check_layers.EVERYWHERE}


@pytest.mark.parametrize(
    ("package", "line", "complaint"),
    [
        ("codec", "from klog.record import decode", "points up"),
        ("segment", "import klog.log", "points up"),
        ("log", "from klog.record._batch import Record", "underscore"),
        ("disk", "from klog.record import Record", "may not import each other"),
        ("attic", "from klog.record import Record", "not in ORDER"),
        ("log", "from klog.attic import Record", "not in ORDER"),
        ("log", "import importlib; importlib.import_module('klog.cleaner').compact()", "points up"),
        ("log", "from importlib import import_module as load; load('klog.cleaner')", "points up"),
        (
            "log",
            "PLACES = {'compact': 'klog.cleaner'}; import importlib; importlib.import_module(PLACES[0])",
            "points up",
        ),
        ("log", "name = 'compact'; __import__(f'klog.cleaner.{name}')", "points up"),
    ],
)
def test_an_upward_import_is_found(
    package: str, line: str, complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = tmp_path / "klog" / package / "planted.py"
    module.parent.mkdir(parents=True)
    module.write_text(f"{line}\n")
    monkeypatch.setattr(check_layers, "ROOT", tmp_path)
    assert [complaint in breach for breach in check_layers.breaches()] == [True]


def test_no_module_of_klog_imports_tests() -> None:
    strangers = ("import tests", "from tests", "import bench", "from bench", "import tools", "from tools")
    for module, path in check_layers.modules():
        for line in path.read_text().splitlines():
            assert not line.strip().startswith(strangers), f"{module}: {line}"
