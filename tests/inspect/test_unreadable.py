"""A partition directory that cannot be read is reported. It is not left out."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import klog
from klog.inspect import diff, dump, ls, verify
from tests.support.unreadable import break_stat


@pytest.mark.parametrize("read", [ls, verify, lambda path: list(dump(path))], ids=["ls", "verify", "dump"])
def test_a_partition_directory_whose_stat_fails_raises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: Callable[[str], object]
) -> None:
    with klog.open(tmp_path / "data", create=True) as logs:
        logs.create_topic("t", partitions=2)
        logs.append("t", [(b"k", b"v")])
    break_stat(monkeypatch, tmp_path / "data" / "t-1")
    with pytest.raises(OSError, match="t-1") as caught:
        read(str(tmp_path / "data"))
    assert caught.value.errno == errno.EIO


def test_a_partition_that_cannot_be_listed_is_damaged_and_does_not_end_earlier(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with klog.open(tmp_path / "data", create=True) as logs:
        logs.create_topic("t")
        logs.append("t", [(b"k", b"v")])
    bad, real = str(tmp_path / "data" / "t-0"), os.scandir
    failing = [True]

    def scandir(path: Any) -> Any:
        if path == bad and failing and failing.pop():
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    (found,) = diff(str(tmp_path / "data"), str(tmp_path / "data"))["partitions"]
    assert not failing and found["state"] == "damaged"
    (problem,) = found["a"]["problems"]
    assert problem.startswith(f"t-0: {os.strerror(errno.EIO)}") and found["b"]["problems"] == []


@pytest.mark.parametrize(
    "read", [verify, lambda path: [list(file.entries) for file in dump(path)]], ids=["verify", "dump"]
)
@pytest.mark.parametrize("name", ["t-0", f"t-0/{0:020d}.log"])
def test_the_error_of_what_a_user_may_not_read_names_the_next_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, read: Callable[[str], object]
) -> None:
    with klog.open(tmp_path, create=True) as logs:
        logs.create_topic("t")
        logs.append("t", [(b"k", b"v")])
    bad = str(tmp_path / name)

    def refusing(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(path: Any, *others: Any) -> Any:
            if path == bad:
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
            return real(path, *others)

        return call

    for call in ("open", "listdir", "scandir"):
        monkeypatch.setattr(os, call, refusing(getattr(os, call)))
    with pytest.raises(PermissionError, match="let this user read it") as caught:
        read(str(tmp_path))
    assert caught.value.filename == bad
