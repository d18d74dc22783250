"""On a terminal every verb that prints a table or sentences keeps the width, and shortens no number and no time."""

from __future__ import annotations

import contextlib
import io
import re
import shutil
from pathlib import Path

import pytest

import klog
from klog.cli import cli
from tests.support.golden import HOME

ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
CUT_NUMBER = re.compile(r"(?<!\S)(?=\S*…)[\d:.,TZ…-]+(?!\S)")  # also a time

LINES = [
    "ls INTERNAL",
    "ls NAMES INTERNAL",
    "groups INTERNAL",
    "transactions TXN",
    "transactions INTERNAL",
    "cache INTERNAL",
    "cache NAMES",
    "top INTERNAL --once --interval 0.01",
    "top NAMES --once --interval 0.01",
    "diff DAMAGED RESCUED",
    "diff TXN INTERNAL",
    "repair DAMAGED --dry-run",
    "rescue DAMAGED --to NEW",
    "health INTERNAL --all",
    "tune INTERNAL --no-disk",
    "tune TXN --no-disk",
    "compact OWN --dry-run",
    "compact OWN --purge-key key-1",
    "handover OWN --dry-run",
    "handover INTERNAL --adopt --dry-run",
]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    root = tmp_path_factory.mktemp("w")
    for case in ("internal", "txn", "names"):
        shutil.copytree(HOME / case / "logdir", root / case)
    shutil.copytree(HOME / "flights" / "logdir", root / "damaged")
    path = root / "damaged" / "flights-0" / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[50_000] ^= 1
    path.write_bytes(data)
    klog.repairing.rescue(root / "damaged", root / "rescued")
    with klog.open(root / "own", create=True) as logs:
        logs.create_topic("a-topic-with-a-rather-long-name", config={"cleanup.policy": "compact"})
        log = logs.log("a-topic-with-a-rather-long-name")
        for _ in range(3):
            log.append([(b"key-%d" % number, b"v" * 100, 1_700_000_000_000) for number in range(50)])
            log.roll()
    return {case.upper(): str(root / case) for case in ("internal", "txn", "names", "damaged", "rescued", "own", "new")}


def shown(line: str, width: int, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("COLUMNS", str(width))
    out, errors = Terminal(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors), pytest.raises(SystemExit):
        cli.main(line.split())
    return ANSI.sub("", out.getvalue())


@pytest.mark.parametrize("width", [60, 80, 200])
@pytest.mark.parametrize("line", LINES)
def test_the_width_is_kept(
    line: str, width: int, places: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "own"  # a purge changes it
    for word, path in places.items():
        if word == "OWN" and word in line:
            shutil.copytree(path, own)
            path = str(own)
        line = line.replace(word, str(tmp_path / "new") if word == "NEW" else path)
    text = shown(line, width, monkeypatch)
    assert text.strip()
    for each in text.splitlines():
        longest = max(each.split(), key=len, default="")
        assert len(each) <= width or len(each) - len(longest) <= 35, each  # a path is never cut
        assert not CUT_NUMBER.search(each), each
