"""Every verb with arguments that cannot be used: one line on stderr, an object on stdout with --json, nothing done."""

from __future__ import annotations

import errno
import json
import os
import shutil
import tempfile
from pathlib import Path

import pytest

import klog
from klog.cli import VERBS
from tests.cli.test_verbs import run
from tests.support.golden import HOME
from tests.support.logs import tree

# DATA: a log.dir with topic t. EMPTY: an empty directory. FILE: a CSV file. MISSING: nothing is there.
BAD = {
    "demo": ["--dir FILE", "--dir DATA"],
    "import": [
        "MISSING --dir DATA --topic t",
        "FILE --dir DATA --topic a/b",
        "FILE --dir DATA --topic t --key zz",
        "FILE --dir DATA --topic t --config retention.ms",
        "FILE --dir DATA --topic t --config retention.mss=1",
        "FILE --dir DATA --topic t --compression zstd:x",
        "FILE --dir DATA --topic t --compression xz",
        "FILE --dir FILE --topic t",
        "FILE --dir DATA/t-0 --topic t",
        "FILE --dir= --topic t",
        "FILE --dir DATA --topic u --partitions 10001",
        "FILE --dir OUT --topic u --partitions 10001",
        "FILE --dir DATA",
    ],
    "export": [
        "DATA --topic t --from yesterday -o OUT.csv",
        "DATA --topic t --to soon -o OUT.csv",
        "DATA --topic t --from 99 -o OUT.csv",
        "DATA --topic zz -o OUT.csv",
        "DATA --topic t --partition 9 -o OUT.csv",
        "DATA --topic t --columns zz -o OUT.csv",
        "DATA --topic t -o OUT.zz",
        "DATA --topic t -o FILE --format csv",
        "DATA --topic t --decode json -o OUT.csv",
        "DATA --topic t --decode avro -o OUT.csv",
        "DATA --topic t --schema x -o OUT.csv",
        "DATA/t-0 --topic t -o OUT.csv",
        "EMPTY --topic t -o OUT.csv",
        "DATA --topic t",
    ],
    "cat": [
        "--dir DATA --topic t --from yesterday",
        "--dir DATA --topic t --to soon",
        "--dir DATA --topic t --from 2024-01-01T00:00",
        "--dir DATA --topic t --from 99",
        "--dir DATA --topic t --from 99999999999999999999",
        "--dir DATA --topic t --max -1",
        "--dir DATA --topic t --isolation zz",
        "--dir DATA --topic t -f --to 3",
        "--dir DATA --topic t --partition 9",
        "--dir DATA --topic zz",
        "--dir DATA/t-0 --topic t",
        "--dir EMPTY --topic t",
        "--dir MISSING --topic t",
        "--dir DATA",
    ],
    "dump": ["MISSING", "", "--files MISSING"],
    "verify": ["MISSING", "EMPTY", "FILE", ""],
    "compact": [
        "DATA --topic zz",
        "DATA --topic t",
        "DATA --purge-key hex:zz",
        "DATA --topic t --config zz=1",
        "DATA --config cleanup.policy=compact",
        "EMPTY",
    ],
    "bench": ["disk MISSING", "disk --size 1", "disk --seconds 0", "disk --seconds nan", "zz"],
    "ls": ["MISSING", "EMPTY", "DATA EMPTY", ""],
    "groups": ["DATA --group zz", "MISSING", "EMPTY", ""],
    "transactions": ["MISSING", "EMPTY", ""],
    "diff": ["DATA", "DATA MISSING", "DATA DATA/t-0", "DATA EMPTY", "EMPTY DATA"],
    "health": ["MISSING", "EMPTY", "DATA/t-0", "DATA DATA", ""],
    "tune": ["EMPTY --no-disk", "DATA/t-0 --no-disk", "DATA --profile zz", "DATA --yes", "MISSING"],
    "repair": ["EMPTY --dry-run", "DATA --yes --scratch EMPTY", "MISSING"],
    "rescue": [
        "DATA --to DATA",
        "DATA",
        "EMPTY --to OUT",
        "MISSING --to OUT",
        "DATA --to FILE",
        "DATA --to=",
        "DATA --to DATA/new",
    ],
    "handover": [
        "MISSING",
        "DATA --config zz",
        "DATA --kafka-version zz",
        "DATA --adopt --node-id 1",
        "DATA --adopt",
        "DATA --cluster-id zz",
        "DATA/t-0",
    ],
    "top": [
        "MISSING",
        "EMPTY --once",
        "DATA/t-0 --once",
        "DATA --interval 0",
        "DATA --interval inf",
        "DATA DATA --once",
    ],
    "broker": [
        "FILE",
        "DATA --port 99999",
        "DATA --port 0 --config zz",
        "DATA --port 0 --config zz=1",
        "DATA --port 0 --config log.retention.ms=zz",
        "DATA --listener zz",
        "DATA --port 0 --host 256.1.1.1",
        "DATA --port 0 --manual-clock",
        "DATA --port 0 --properties MISSING",
        "DATA/t-0 --port 0",
    ],
    "cache": ["DATA --topic zz", "DATA --looks 1", "DATA --watch nan", "DATA --plot x.zz", "EMPTY", "MISSING"],
    "config": ["explain zz", "explain", "zz"],
}


@pytest.fixture
def places(tmp_path: Path) -> dict[str, str]:
    with klog.open(tmp_path / "data", create=True) as logs:
        logs.create_topic("t")
        logs.log("t").append([(b"k", b"{")] * 5)
    (tmp_path / "empty").mkdir()
    (tmp_path / "file.csv").write_text("a\n1\n")
    names = {"DATA": "data", "EMPTY": "empty", "FILE": "file.csv", "MISSING": "missing", "OUT": "out"}
    return {word: str(tmp_path / name) for word, name in names.items()}


@pytest.mark.parametrize(("verb", "line"), [(verb, line) for verb in VERBS for line in ("--zz", *BAD[verb])])
def test_an_argument_that_cannot_be_used(verb: str, line: str, places: dict[str, str]) -> None:
    root = Path(places["DATA"]).parent
    for word, path in places.items():
        line = line.replace(word, path)
    before = tree(root)
    text = run(verb, *line.split())
    result = run(verb, *line.split(), "--json")
    assert text.exit_code == result.exit_code != 0 and text.stdout == ""
    document = json.loads(result.stdout)
    assert document.keys() == {"error"} and document["error"]["message"] in result.stderr
    assert document["error"].keys() == {"type", "message", "path", "position", "offset"}
    assert not [name for name in ("create=", "on_bad", "start=", "overwrite=") if name in result.stderr]
    assert tree(root) == before


@pytest.mark.parametrize("verb", VERBS)
def test_an_input_that_is_missing_is_exit_code_2(verb: str, places: dict[str, str]) -> None:
    for line in BAD[verb]:
        if "MISSING" in line:
            for word, path in places.items():
                line = line.replace(word, path)
            assert run(verb, *line.split()).exit_code == 2


@pytest.mark.parametrize("line", ["tune DATA --no-disk --apply", "repair DATA"])
def test_json_asks_nothing(line: str, places: dict[str, str]) -> None:
    result = run(*line.replace("DATA", places["DATA"]).split(), "--json")
    assert result.exit_code == 2 and "--yes" in json.loads(result.stdout)["error"]["message"]


@pytest.mark.parametrize(
    ("line", "option"), [("tune DATA", "--no-disk"), ("repair DATA --dry-run", "--scratch"), ("bench log DATA", "DATA")]
)
def test_a_place_that_cannot_be_written_names_the_option(
    line: str, option: str, places: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: object, **options: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), "a name that nobody knows")

    monkeypatch.setattr(tempfile, "mkdtemp", refuse)
    result = run(*line.replace("DATA", places["DATA"]).split())
    assert result.exit_code == 1 and "Read-only file system; " in result.stderr and "nobody knows" not in result.stderr
    assert option.replace("DATA", places["DATA"]) in result.stderr


def test_a_bad_value_names_the_option(places: dict[str, str]) -> None:
    result = run("export", places["DATA"], "--topic", "t", "--decode", "json", "-o", places["OUT"] + ".csv")
    assert result.exit_code == 3 and "pass --on-bad null" in result.stderr and "--decode or" in result.stderr


def test_an_error_is_not_written_between_records(places: dict[str, str]) -> None:
    result = run("export", places["DATA"], "--topic", "t", "--decode", "json", "-o", "-", "--format", "csv", "--json")
    assert result.exit_code == 3 and "error" not in result.stdout and "--on-bad" in result.stderr


@pytest.mark.parametrize("verb", ["ls", "groups", "transactions", "verify", "health", "cache", "repair", "tune", "top"])
def test_a_log_dir_without_topics_is_one(verb: str, tmp_path: Path) -> None:
    """A log.dir of klog, and one of a broker, which has meta.properties."""
    klog.open(tmp_path / "own", create=True).close()
    (tmp_path / "broker").mkdir()
    shutil.copy(HOME / "internal" / "logdir" / "meta.properties", tmp_path / "broker")
    options = {"repair": ["--dry-run"], "tune": ["--no-disk"], "top": ["--once", "--interval", "0.01"]}.get(verb, [])
    for name in ("own", "broker"):
        assert run(verb, tmp_path / name, *options).exit_code == 0
    result = run("ls", tmp_path / "own")
    assert result.stderr == "klog: no topics here yet\n"


@pytest.mark.parametrize("verb", ["ls", "verify", "cache", "groups"])
def test_a_log_dir_may_have_the_name_of_a_partition(verb: str, tmp_path: Path) -> None:
    with klog.open(tmp_path / "data-1", create=True) as logs:
        logs.create_topic("t")
        logs.log("t").append([(b"k", b"v")])
        with logs.reader("t", "billing") as reader:
            reader.commit()
    result = run(verb, tmp_path / "data-1")
    assert result.exit_code == 0
    assert {"verify": "1 partition,", "groups": "billing"}.get(verb, "\nt ") in result.stdout
