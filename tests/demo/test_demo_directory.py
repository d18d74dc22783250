"""The demo writes to its own directory, repeatedly, and never to another."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from klog.demo.demo_directory import MARKER, NotADemoDirectory, prepare
from klog.disk import DirectoryLock
from klog.errors import AlreadyLocked, NewerFormat


def tree(directory):
    return {path.relative_to(directory): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


@pytest.fixture
def used(tmp_path):
    """A directory as an earlier run leaves it."""
    prepare(tmp_path)
    for name in ("flights-0", "flights-3", "telemetry-0"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "00000000000000000000.log").write_bytes(b"old")
    for name in ("klog-topics.json", "recovery-point-offset-checkpoint", ".kafka_cleanshutdown", "spark.log"):
        (tmp_path / name).write_text("old")
    return tmp_path


def test_a_new_directory_is_created_with_its_parents(tmp_path):
    prepare(tmp_path / "a" / "b")
    assert [path.name for path in (tmp_path / "a" / "b").iterdir()] == [MARKER]


def test_a_directory_that_cannot_be_made_names_the_next_step():
    with pytest.raises(OSError, match="^[^;]*; name another directory with --dir: '/proc/demo'"):
        prepare(Path("/proc/demo"))


def test_an_earlier_runs_directory_is_replaced(used):
    prepare(used)
    assert [path.name for path in used.iterdir()] == [MARKER]


@pytest.mark.parametrize("entry", ["notes.txt", "flights.csv", "mine-0/x.log", "flights-x/x.log"])
def test_one_foreign_entry_keeps_everything(used, entry):
    (used / entry).parent.mkdir(exist_ok=True)
    (used / entry).write_text("mine")
    before = tree(used)
    with pytest.raises(NotADemoDirectory, match=entry.split("/")[0]):
        prepare(used)
    assert tree(used) == before


def test_a_foreign_directory_is_kept(tmp_path):
    (tmp_path / "flights-0").mkdir()
    (tmp_path / "flights-0" / "00000000000000000000.log").write_bytes(b"precious")
    before = tree(tmp_path)
    with pytest.raises(NotADemoDirectory, match="was not made by klog demo"):
        prepare(tmp_path)
    assert tree(tmp_path) == before


def test_a_link_is_not_followed(used, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "precious").write_text("precious")
    (used / "flights-1").symlink_to(elsewhere)
    with pytest.raises(NotADemoDirectory, match="flights-1"):
        prepare(used)
    assert (elsewhere / "precious").exists()


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"format": "other", "version": 1}', '{"format": "klog-demo"}', "\xff"]
)
def test_a_foreign_marker_keeps_everything(used, text):
    (used / MARKER).write_text(text, encoding="latin-1")
    before = tree(used)
    with pytest.raises(NotADemoDirectory, match=MARKER):
        prepare(used)
    assert tree(used) == before


def test_a_newer_marker_raises(used):
    (used / MARKER).write_text(json.dumps({"format": "klog-demo", "version": 2}))
    with pytest.raises(NewerFormat, match="newer klog"):
        prepare(used)


def test_a_file_raises(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(NotADemoDirectory, match="is a file"):
        prepare(tmp_path / "file")


def test_nothing_is_replaced_under_a_lock(used):
    lock = DirectoryLock(str(used))
    try:
        before = tree(used)
        with pytest.raises(AlreadyLocked):
            prepare(used)
        assert tree(used) == before
    finally:
        lock.release()
    prepare(used)
