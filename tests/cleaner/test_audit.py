"""klog-audit.jsonl: complete lines are kept, a torn last line is dropped, an invalid file raises."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

import klog
from klog.cleaner import audit, read_audit
from klog.disk import LogFile, RealFiles
from klog.errors import CorruptAudit, NewerFormat
from tests.cleaner.logs import NOW, append, open_log
from tests.support.crash_files import CrashFiles

LINE = {"outcome": "done", "time": "2026-01-01T00:00:00.000Z"}


def test_a_purge_logs_its_outcome_without_the_key(tmp_path: Path) -> None:
    with open_log(tmp_path / "t-0") as log:
        append(log, [(b"secret", b"1"), (b"b", b"2"), (b"secret", b"3")])
        log.purge_key(b"secret", roll=True)
        append(log, [(b"secret", b"4")])
        log.purge_key(b"secret")
    begun, done, nothing = read_audit(tmp_path)
    assert (begun["outcome"], done["outcome"], begun["id"]) == ("begun", "done", done["id"])
    common = {
        "version": 1, "time": "2023-11-14T22:13:20.000Z", "action": "purge_key", "outcome": "done", "id": done["id"],
        "topic": "t", "partition": 0, "topic_id": None, "key_sha256": hashlib.sha256(b"secret").hexdigest(),
    }  # fmt: skip
    assert NOW == 1_700_000_000_000
    assert done == common | {
        "records": 2, "segments": [0], "first_offset": 0, "last_offset": 2, "records_left": 0, "left_from": -1,
        "leftovers": [],
    }  # fmt: skip
    assert nothing == common | {
        "id": nothing["id"], "records": 0, "segments": [], "first_offset": -1, "last_offset": -1, "records_left": 1,
        "left_from": 3, "leftovers": [],
    }  # fmt: skip


def test_other_tools_accept_the_file(tmp_path: Path) -> None:
    with klog.open(tmp_path, create=True) as logs:
        logs.create_topic("t")
        logs.append("t", [(b"k", b"v")])
        logs.log("t").purge_key(b"k", roll=True)
    assert klog.verify(tmp_path).problems == []
    with klog.open(tmp_path) as logs:
        assert list(logs.topics()) == ["t"]
    with (tmp_path / audit.FILE).open("ab") as file:
        file.write(b"garbage\n")
    (problem,) = klog.verify(tmp_path).problems
    assert (problem.kind, Path(problem.path).name) == ("checkpoint", audit.FILE)


@pytest.mark.parametrize(
    "torn",
    [
        pytest.param(b'{"version": 1, "outc', id="beginning"),
        pytest.param(b"{", id="one byte"),
        pytest.param(b"\0" * 40, id="only zeros"),
        pytest.param(b'{"ver' + b"\0" * 40 + b'"}\n', id="a hole"),
        pytest.param(b"\0" * 40 + b'"}\n', id="a hole at the front"),
        pytest.param(b"\0" * 40 + b'"}', id="a hole and no end"),
    ],
)
def test_a_torn_last_line_is_ignored_and_truncated(tmp_path: Path, torn: bytes) -> None:
    """A2"""
    audit.append(RealFiles(), str(tmp_path), LINE)
    with (tmp_path / audit.FILE).open("ab") as file:
        file.write(torn)
    assert len(read_audit(tmp_path)) == 1
    audit.append(RealFiles(), str(tmp_path), {**LINE, "id": "second"})
    assert [line.get("id") for line in read_audit(tmp_path)] == [None, "second"]
    (tmp_path / audit.FILE).write_bytes(torn)
    assert read_audit(tmp_path) == []
    audit.append(RealFiles(), str(tmp_path), LINE)
    assert len(read_audit(tmp_path)) == 1


@pytest.mark.parametrize(
    "bad", [b"garbage\n", b"[]\n", b'{"version": 1}\n', b'{"version": "1", "outcome": "done"}\n', b"x"]
)
def test_an_invalid_file_raises_and_nothing_is_purged(tmp_path: Path, bad: bytes) -> None:
    good = json.dumps({"version": 1, **LINE}).encode() + b"\n"
    with open_log(tmp_path / "t-0") as log:
        append(log, [(b"k", b"v")])
        (tmp_path / audit.FILE).write_bytes(good + bad)
        for act in (lambda: read_audit(tmp_path), lambda: log.purge_key(b"k", roll=True)):
            with pytest.raises(CorruptAudit) as caught:
                act()
            assert (caught.value.path, caught.value.position) == (str(tmp_path / audit.FILE), len(good))
            assert "move the file away" in str(caught.value)
        assert log.count() == 1


def test_a_directory_in_place_of_the_file_raises(tmp_path: Path) -> None:
    (tmp_path / audit.FILE).mkdir()
    with open_log(tmp_path / "t-0") as log:
        append(log, [(b"k", b"v")])
        for act in (lambda: read_audit(tmp_path), lambda: log.purge_key(b"k", roll=True)):
            with pytest.raises(CorruptAudit, match=r"a directory.*klog-audit\.jsonl"):
                act()
        assert log.count() == 1


def test_a_file_of_a_newer_version_raises(tmp_path: Path) -> None:
    (tmp_path / audit.FILE).write_bytes(b'{"version": 2, "outcome": "done"}\n')
    with pytest.raises(NewerFormat, match=r"klog-audit\.jsonl has a line of version 2"):
        read_audit(tmp_path)
    with pytest.raises(NewerFormat):
        audit.append(RealFiles(), str(tmp_path), LINE)


def test_appending_does_not_read_the_whole_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []

    class Counted:
        def __init__(self, path: str) -> None:
            self._file = LogFile.open(path)
            self.length = self._file.length

        @classmethod
        def open(cls, path: str) -> Counted:
            return cls(path)

        def __enter__(self) -> Counted:
            return self

        def __exit__(self, *error: object) -> None:
            self._file.close()

        def read(self, position: int, size: int) -> bytes:
            found = bytes(self._file.read(position, size))
            read.append(len(found))
            return found

    monkeypatch.setattr(audit, "_TAIL", 300)
    monkeypatch.setattr(audit, "LogFile", Counted)
    for number in range(50):
        audit.append(RealFiles(), str(tmp_path), {**LINE, "id": number})
    assert [line["id"] for line in read_audit(tmp_path)] == list(range(50))
    assert max(read) == 300 < (tmp_path / audit.FILE).stat().st_size // 10


def test_a_line_is_on_disk_with_the_name_of_its_file(tmp_path: Path) -> None:
    files, path = CrashFiles(), str(tmp_path / audit.FILE)
    audit.append(files, str(tmp_path), LINE)
    assert bytes(files.durable_names[path].durable) == Path(path).read_bytes() != b""
