"""klog cat: kcat's forms of positions and formats, relative times."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import time
from pathlib import Path

import pytest

import klog
from tests.cli.test_process import KLOG, _environment
from tests.cli.test_verbs import ok, run

HOUR = 3_600_000
BASE = 1_360_299_600_000  # 2013-02-08T05:00:00Z


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Partition 0 has ten records, one an hour; partition 1 has three; above the high watermark two more."""
    with klog.open(tmp_path / "data", create=True) as logs:
        logs.create_topic("t", partitions=2, config={"retention.ms": -1})
        logs.log("t", 0).append([(b"k%d" % n, b"v%d" % n, BASE + n * HOUR) for n in range(10)])
        logs.log("t", 1).append([(None, b"w%d" % n, BASE + n * HOUR) for n in range(3)])
        logs.log("t", 1).append([(None, b"x", BASE)] * 2)
        logs.log("t", 1).update_high_watermark(3)
    return tmp_path / "data"


def offsets(data: Path, *options: object) -> list[tuple[int, int]]:
    lines = ok("cat", "--dir", data, "--topic", "t", "--jsonl", *options).splitlines()
    return [(record["partition"], record["offset"]) for record in map(json.loads, lines)]


def both(first: range, second: range) -> list[tuple[int, int]]:
    return [*((0, offset) for offset in first), *((1, offset) for offset in second)]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--offset", "beginning"], both(range(10), range(3))),
        (["--offset", "end"], []),
        (["--offset", "8"], both(range(8, 10), range(3, 3))),
        (["--offset", "-2"], both(range(8, 10), range(1, 3))),
        (["--offset", "-5"], both(range(5, 10), range(3))),
        (["--offset", "-0"], []),
        (["--offset", "-2", "--isolation", "log_end"], both(range(8, 10), range(3, 5))),
        (["--offset", "-2", "--isolation", "read_committed"], both(range(8, 10), range(1, 3))),
        (["--offset", f"s@{BASE + HOUR}"], both(range(1, 10), range(1, 3))),
        (["--offset", f"e@{BASE + HOUR}"], both(range(1), range(1))),
        (["--offset", f"s@{BASE + HOUR}", "--offset", f"e@{BASE + 3 * HOUR}"], both(range(1, 3), range(1, 3))),
        (["--offset", "s@2013-02-08T06:00Z", "--until", "2013-02-08T07:00Z"], both(range(1, 2), range(1, 2))),
    ],
)
def test_offsets_in_the_forms_of_kcat(data: Path, options: list[str], expected: list[tuple[int, int]]) -> None:
    assert offsets(data, *options) == expected


def test_records_of_the_last_days(tmp_path: Path) -> None:
    """3d is three days ago, with and without a minus; now is the end."""
    now = time.time_ns() // 1_000_000
    with klog.open(tmp_path, create=True) as logs:
        logs.create_topic("t", config={"retention.ms": -1})
        ages = {b"200h": 200, b"100h": 100, b"50h": 50, b"1h": 1, b"soon": -0.5}
        logs.log("t").append([(key, b"v", now - round(hours * HOUR)) for key, hours in ages.items()])

    def keys(*options: str) -> list[str]:
        return ok("cat", "--dir", tmp_path, "--topic", "t", "-o", "%k", *options).split()

    assert keys("--since", "3d", "--until", "now") == ["50h", "1h"]
    assert keys("--since", "-3d") == ["50h", "1h", "soon"]
    assert keys("--since", "1w", "--until", "1.5h") == ["100h", "50h"]
    assert keys("--from", "90m", "--to", "10m") == ["1h"]
    target = tmp_path / "out.jsonl"
    ok("export", tmp_path, "--topic", "t", "--since", "3d", "--until", "10m", "-o", target)
    assert [json.loads(line)["key"] for line in target.read_text().splitlines()] == ["50h", "1h"]


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ("%t %p %o %T %k %s", b"t 0 0 5 key \xff\x1b\nt 0 1 -1  \n"),
        (r"%K %S\0", b"3 2\0-1 -1\0"),
        (r"%k\t%s\r\n", b"key\t\xff\x1b\r\n\t\r\n"),
        ("%o\n", b"0\n1\n"),
        (r"%h", b"h=\xfe,n=\n\n"),
        (r"\x41\\100%%%R", b"A\\100%\x00\x00\x00\x02\nA\\100%\xff\xff\xff\xff\n"),
        ("é %o", "é 0\né 1\n".encode()),
    ],
)
def test_records_in_a_format_of_kcat(tmp_path: Path, form: str, expected: bytes) -> None:
    """The bytes of keys and values are as stored; nothing is added but a line feed."""
    with klog.open(tmp_path, create=True) as logs:
        logs.create_topic("t")
        logs.log("t").append([(b"key", b"\xff\x1b", 5, [("h", b"\xfe"), ("n", None)]), (None, None, -1)])
    assert run("cat", "--dir", tmp_path, "--topic", "t", "-o", form).stdout_bytes == expected


def test_a_format_moves_no_cursor_of_a_terminal(tmp_path: Path) -> None:
    with klog.open(tmp_path, create=True) as logs:
        logs.create_topic("t")
        logs.log("t").append([(b"\x1b[2J", b"\xff", 5, [("\x1b", b"\r")])])
    terminal, other = pty.openpty()
    command = [*KLOG, "cat", "--dir", str(tmp_path), "--topic", "t", "-o", "%k %s %h"]
    done = subprocess.run(command, stdout=other, stderr=subprocess.PIPE, env=_environment(), check=False)
    printed = b""
    while not printed.endswith(b"\r\n"):
        printed += os.read(terminal, 1 << 16)
    for fd in (terminal, other):
        os.close(fd)
    assert (done.returncode, done.stderr) == (0, b"")
    assert printed == b"\\x1b[2J hex:ff \\x1b=\\r\r\n"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--offset", "stored"], "a named reader stores its position"),
        (["--offset", "e@soon"], "'soon' is not a position"),
        (["--offset", "s@99999999999999999"], "is not a position"),
        (["--offset", "-" + "9" * 5000], "integer string conversion"),
        (["--offset", "1", "--offset", "end"], "'end' is a second start"),
        (["--offset", "1", "--from", "2"], "--offset names the start, too"),
        (["--offset", "e@1", "--to", "2"], "--offset names the stop, too"),
        (["--offset", "e@1", "-f"], "-f has no end"),
        (["-o", "beginning"], "a position is --offset"),
        (["-o", "csv"], "klog export writes CSV"),
        (["-o", "%q"], "unknown %q in '%q'; klog cat --help lists"),
        (["-o", "%k\\y"], "unknown \\y in"),
        (["-o", "%"], "unknown % in"),
        (["-o", "%k", "--json"], "-o is for text"),
        (["-o", "%k", "--jsonl"], "-o is for text"),
    ],
)
def test_errors_of_options(data: Path, options: list[str], message: str) -> None:
    result = run("cat", "--dir", data, "--topic", "t", *options)
    assert result.exit_code == 2
    assert message in result.stderr and "Traceback" not in result.output


def test_an_offset_beyond_the_end_is_an_error(data: Path) -> None:
    result = run("cat", "--dir", data, "--topic", "t", "--offset", "11")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "which holds [0, 10)" in result.stderr
