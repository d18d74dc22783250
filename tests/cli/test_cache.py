"""klog cache: keys, rows, pictures, exit codes; and that it caches no page itself."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import klog
from klog.cli import cli
from klog.cli.cache import blocks, percent
from klog.disk import RealFiles
from klog.disk.residency import Residency
from klog.inspect import page_cache
from klog.progress import Event
from tests.support import golden
from tests.support.page_cache import PAGE, kept_hot, make_cold, resident_below

pytestmark = pytest.mark.disk
NUMBERS = set(Residency.__dataclass_fields__) | {"share"}


@pytest.fixture
def data(tmp_path: Path) -> Iterator[Path]:
    """Topic t: two partitions of three segments; in the first, the second segment and half of the third are hot."""
    with klog.open(tmp_path / "data", create=True, config={"log.segment.bytes": 1 << 20}) as logs:
        logs.create_topic("t", partitions=2)
        logs.create_topic("other")
        for partition in (0, 1):
            for _ in range(29):
                logs.log("t", partition).append([(None, os.urandom(100_000))])
        logs.log("other").append([(b"k", b"v")])
    for path in (tmp_path / "data").rglob("*"):
        if path.is_file():
            make_cold(path)
    first = sorted((tmp_path / "data" / "t-0").glob("*.log"))
    with kept_hot(first[1]), kept_hot(first[2], 0, 100 * PAGE):
        yield tmp_path / "data"


def run(*args: object) -> Result:
    result = CliRunner().invoke(cli, ["cache", *map(str, args)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def ok_json(*args: object) -> Any:
    result = run(*args, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_keys_and_numbers_of_each_topic_partition_and_segment(data: Path) -> None:
    found = ok_json(data)
    assert set(found) == {"path", "source", "machine", "topics", *NUMBERS}
    assert found["source"] == "cachestat"
    assert [topic["topic"] for topic in found["topics"]] == ["other", "t"]
    topic = found["topics"][1]
    assert set(topic) == {"topic", "partitions", *NUMBERS}
    first, second = topic["partitions"]
    assert set(first) == {"partition", "path", "heat", "problem", "segments", *NUMBERS}
    assert set(first["segments"][0]) == {"base_offset", "path", "heat", *NUMBERS}
    paths = sorted((data / "t-0").glob("*.log"))
    assert [segment["path"] for segment in first["segments"]] == list(map(str, paths))
    assert [segment["base_offset"] for segment in first["segments"]] == [int(path.stem) for path in paths]
    assert [segment["size"] for segment in first["segments"]] == [path.stat().st_size for path in paths]
    shares = [segment["share"] for segment in first["segments"]]
    assert shares[:2] == [0.0, 1.0] and 0 < shares[2] < 1
    assert first["segments"][2]["cached_bytes"] == 100 * PAGE
    assert second["cached_bytes"] == 0 and second["share"] == 0
    assert topic["cached_bytes"] == first["cached_bytes"] == found["cached_bytes"]
    assert topic["size"] == sum(path.stat().st_size for path in data.glob("t-*/*.log"))
    assert (first["dirty_bytes"], first["writeback_bytes"], first["problem"]) == (0, 0, None)
    assert len(first["heat"]) == 32 and first["heat"][0] == 0 and max(first["heat"]) == 1
    assert found["machine"]["total_bytes"] > found["machine"]["cached_bytes"] > 0
    assert found["machine"]["dirty_limit_bytes"] >= found["machine"]["dirty_background_limit_bytes"]
    assert set(found["machine"]["vm"]) >= {"dirty_ratio", "dirty_bytes", "dirty_background_ratio"}


def test_it_caches_no_page_and_changes_no_file(data: Path, tmp_path: Path) -> None:
    def state() -> list[tuple[str, int, int, int]]:
        return [(str(p), p.stat().st_mtime_ns, p.stat().st_atime_ns, p.stat().st_size) for p in data.rglob("*")]

    before, files = resident_below(data), state()
    assert any(any(pages) for pages in before.values()) and not all(all(pages) for pages in before.values())
    run(data)
    ok_json(data)
    run(data, "--watch", "0.01", "--looks", "2")
    assert resident_below(data) == before
    assert state() == files


def test_text_output(data: Path) -> None:
    lines = run(data, "--topic", "t").stdout.splitlines()
    assert lines[0].startswith("this machine: ") and "page cache" in lines[0]
    assert "writers wait from" in lines[1]
    assert lines[3].split()[:4] == ["TOPIC", "PARTITION", "SEGMENT", "SIZE"]
    assert lines[4].split()[:4] == ["t", "0", "3", "segments"]
    hot = next(line for line in lines if line.endswith("█" * 32))
    assert " 100 " in hot
    assert sum(line.endswith("·" * 32) for line in lines) == 1 + 4  # a segment, and a partition with its three segments
    assert lines[-1].startswith("all")
    short = run(data, "--topic", "t", "--no-segments").stdout.splitlines()
    assert len(short) == 4 + 2 + 1
    assert "other" not in run(data, "--topic", "t").stdout


def test_one_partition_directory(data: Path) -> None:
    found = ok_json(data / "t-0")
    assert [(topic["topic"], len(topic["partitions"])) for topic in found["topics"]] == [("t", 1)]
    assert found["share"] == found["topics"][0]["partitions"][0]["share"]


def test_it_works_while_a_writer_is_open(data: Path) -> None:
    with klog.open(data) as logs:
        logs.log("other").append([(b"k", b"v" * 5000)])
        found = ok_json(data, "--topic", "other")
        (entry,) = found["topics"][0]["partitions"]
        assert entry["cached_bytes"] == 2 * PAGE and entry["share"] == 1.0


def test_directories_of_a_broker(tmp_path: Path) -> None:
    directory = golden.copy_logdir("medley", tmp_path)
    found = ok_json(directory)
    assert found["topics"]
    assert found["size"] == sum(path.stat().st_size for path in directory.glob("*-*/*.log"))


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--topic", "x"], 1, "no topic 'x'"),
        (["--topic", "othr"], 1, "did you mean 'other'?"),
        (["--looks", "2"], 2, "--looks needs --watch"),
        (["--watch", "0"], 2, "0.0 is not in the range"),
        (["--plot", "x.gif"], 2, "must end with one of .png, .svg, .pdf"),
    ],
)
def test_errors_and_exit_codes(data: Path, options: list[str], code: int, message: str) -> None:
    result = run(data, *options)
    assert (result.exit_code, result.stdout) == (code, "")
    assert message in result.stderr and "Traceback" not in result.stderr


def test_a_missing_directory(tmp_path: Path) -> None:
    assert run(tmp_path / "nothing").exit_code == 2


def test_watch_shows_the_kernels_counters_with_descriptions(data: Path) -> None:
    result = run(data, "--watch", "0.01", "--looks", "3", "--json")
    looks = [json.loads(line) for line in result.stdout.splitlines()]
    assert len(looks) == 3 and looks[0]["activity"] is None
    activity = looks[2]["activity"]
    assert set(activity) == {"seconds", "counts", "rates", "meanings", "naive_hit_rate", "naive_hit_rate_is"}
    assert set(activity["counts"]) == set(activity["meanings"]) >= {"pgpgin", "pgpgout", "pgmajfault"}
    assert "NOT a hit rate" in activity["naive_hit_rate_is"]
    text = run(data, "--watch", "0.01", "--looks", "2").stdout
    assert text.count("this machine") == 2 and text.count("often called a hit rate, which it is not") == 1


@pytest.mark.parametrize("kind", ["png", "svg"])
def test_plot_writes_a_picture(data: Path, tmp_path: Path, kind: str) -> None:
    target = tmp_path / f"cache.{kind}"
    result = run(data, "--plot", target)
    assert result.exit_code == 0, result.output
    assert result.stderr == f"drawn: {target}\n"
    content = target.read_bytes()
    assert content.startswith(b"\x89PNG" if kind == "png" else b"<?xml")
    if kind == "svg":
        assert b"t-0" in content and b"other-0" in content and b"oldest first" in content
    assert ok_json(data, "--plot", target)["topics"]


def test_plot_of_an_empty_directory(tmp_path: Path) -> None:
    with klog.open(tmp_path / "d", create=True) as logs:
        logs.create_topic("empty")
        logs.log("empty")
    assert run(tmp_path / "d", "--plot", tmp_path / "x.svg").exit_code == 0


def test_without_matplotlib_the_error_names_the_package(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = run(data, "--plot", tmp_path / "x.png")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "needs matplotlib (" in result.stderr and "pip install 'klog[plot]'" in result.stderr


def test_a_terminal_without_block_characters_gets_digits(data: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(klog.__file__).parent.parent), "PYTHONIOENCODING": "ascii"}
    command = [sys.executable, "-m", "klog.cli", "cache", str(data)]
    result = subprocess.run(command, capture_output=True, env=environment, check=True)
    assert b"#" * 32 in result.stdout and b"." * 32 in result.stdout and b"\\u" not in result.stdout


def test_blocks_and_percents_are_full_only_at_100_percent() -> None:
    assert blocks([0.0, 0.001, 0.5, 0.999, 1.0]) == "·▁▄▇█"
    assert blocks([1.0] * 63 + [0.0]) == "█" * 31 + "▄"
    assert blocks([]) == ""
    assert [percent(share) for share in (0, 0.0001, 0.5, 0.9999, 1.0)] == ["0", "1", "50", "99", "100"]


# ---- the function below it -----------------------------------------------------------------------------------------


def test_progress_counts_segments(data: Path) -> None:
    with klog.open(data, config={"log.segment.bytes": 2000}) as logs:
        logs.create_topic("many")
        for number in range(200):
            logs.log("many").append([(None, b"x" * 1500 + b"%d" % number)])
    events: list[Event] = []
    page_cache(data, progress=events.append)
    assert [event.done for event in events] == [64, 128, 192]
    assert {(event.stage, event.total, event.unit) for event in events} == {("page cache", 200 + 7, "segments")}


def test_vanished_files_are_skipped_and_unreadable_ones_reported(data: Path) -> None:
    class Racing(RealFiles):
        def open(self, path: str, *, write: bool = False, create: bool = False) -> Any:
            if "t-0" in path:
                shutil.rmtree(data / "t-1", ignore_errors=True)
            return super().open(path, write=write, create=create)

    found = page_cache(data, files=Racing())
    assert [entry["partition"] for entry in found["topics"][1]["partitions"]] == [0]
    name = next((data / "t-0").glob("*.log"))
    name.rename(name.with_suffix(".gone"))
    name.symlink_to("/etc/passwd")
    (data / "t-0" / "00000000000000009999.log").mkdir()
    good = {str(path) for path in (data / "t-0").glob("*.log") if path.is_file() and not path.is_symlink()}
    assert good
    (entry,) = page_cache(data)["topics"][1]["partitions"]
    assert {one["path"] for one in entry["segments"]} == good
    assert entry["size"] == sum(Path(path).stat().st_size for path in good)
    assert entry["problem"].endswith("; and 1 more")
    assert "Too many levels of symbolic links" in entry["problem"] and str(name) in entry["problem"]
    result = run(data)
    assert result.exit_code == 1 and str(name) in result.stderr


def test_symlinks_and_future_directories_do_not_count(data: Path) -> None:
    (data / "t-7").symlink_to(data / "t-0")
    shutil.copytree(data / "t-1", data / f"t-1.{'0' * 32}-delete")
    found = page_cache(data)
    assert [entry["partition"] for entry in found["topics"][1]["partitions"]] == [0, 1]


def test_a_machine_without_counters(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = page_cache(data, proc_root=str(tmp_path / "no"))["machine"]
    assert set(machine.pop("vm").values()) == set(machine.values()) == {None}
    monkeypatch.setattr("klog.inspect.cached.machine", lambda root: {**machine, "vm": {}})
    assert run(data).stdout.startswith("this machine: ? memory, ? page cache, ? dirty, ? being written\n")
