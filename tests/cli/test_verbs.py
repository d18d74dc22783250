"""The verbs' contract: keys of --json, exit codes, only data on stdout, one line on stderr and no traceback."""

from __future__ import annotations

import base64
import gzip
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import klog
from klog.cli import VERBS, cli
from klog.inspect import DumpedFile
from tests.support import golden

CSV = "id,name,when\n1,Ann,2013-02-08T05:00:00Z\n2,Bob,2013-02-08T06:00:00Z\n3,,2013-02-08T07:00:00Z\n"
RECORD_KEYS = {
    "topic", "partition", "offset", "timestamp", "timestamp_type", "key", "value", "headers", "leader_epoch",
    "producer_id", "producer_epoch", "sequence", "is_transactional", "is_control", "control_type",
}  # fmt: skip
BATCH_KEYS = {
    "type", "base_offset", "last_offset", "count", "size", "magic", "crc", "compression", "timestamp_type",
    "base_timestamp", "max_timestamp", "leader_epoch", "producer_id", "producer_epoch", "base_sequence",
    "is_transactional", "is_control",
    "delete_horizon_ms", "position", "valid", "error", "records",
}  # fmt: skip


def run(*args: object, input: bytes | str | None = None, color: bool = False) -> Result:
    result = CliRunner().invoke(cli, [str(arg) for arg in args], input=input, color=color)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def ok(*args: object, input: bytes | str | None = None) -> str:
    result = run(*args, input=input)
    assert result.exit_code == 0, result.output
    return result.stdout


def ok_json(*args: object, input: bytes | str | None = None) -> Any:
    return json.loads(ok(*args, "--json", input=input))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "people.csv"
    path.write_text(CSV)
    ok("import", path, "--dir", tmp_path / "data", "--topic", "people", "--key", "name", "--timestamp", "when")
    return tmp_path / "data"


# ---- import --------------------------------------------------------------------------------------------------------


def test_import_reports_what_it_did(tmp_path: Path) -> None:
    path = tmp_path / "people.csv"
    path.write_text(CSV)
    options = [
        "--dir",
        tmp_path / "data",
        "--topic",
        "t",
        "--key",
        "name",
        "--timestamp",
        "when",
        "--compression",
        "zstd:5",
    ]
    found = ok_json("import", path, *options)
    assert found == {
        "directory": str(tmp_path / "data"),
        "topic": "t",
        "created": True,
        "records": 3,
        "null_keys": 1,
        "min_timestamp": 1360299600000,
        "max_timestamp": 1360306800000,
        "partitions": [{"partition": 0, "first_offset": 0, "next_offset": 3}],
    }
    result = run("import", path, *options)
    assert "3 records into topic t" in result.stdout
    assert result.stderr == "klog: 1 rows have no name: their key is null\n"


def test_import_reads_standard_input(tmp_path: Path) -> None:
    found = ok_json("import", "-", "--dir", tmp_path / "d", "--topic", "t", input=gzip.compress(CSV.encode()))
    assert found["records"] == 3


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--key", "nmae"], 2, "no column 'nmae'; did you mean 'name'?"),
        (["--timestamp", "name"], 3, "people.csv, line 2: column 'name': 'Ann' is not a time"),
        (["--config", "segment.byts=1"], 2, "did you mean segment.bytes?"),
        (["--config", "segment.bytes"], 2, "not KEY=VALUE"),
        (["--compression", "lz5"], 2, "unknown compression 'lz5'"),
        (["--compression", "zstd:x"], 2, "the level must be a number"),
        (["--partitions", "0"], 2, "0 is not in the range"),
    ],
)
def test_import_errors_are_one_line_and_create_nothing(
    options: list[str], code: int, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "people.csv"
    path.write_text(CSV)
    result = run("import", path, "--dir", tmp_path / "d", "--topic", "t", *options)
    assert (result.exit_code, result.stdout) == (code, "")
    assert message in result.stderr
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "d").exists()


def test_import_of_a_missing_file(tmp_path: Path) -> None:
    result = run("import", tmp_path / "nothing.csv", "--dir", tmp_path / "d", "--topic", "t")
    assert result.exit_code == 2
    assert f"{tmp_path / 'nothing.csv'}: no such file; name a CSV, JSON lines or Parquet file\n" in result.stderr


# ---- cat -----------------------------------------------------------------------------------------------------------


def test_cat_as_one_object_and_as_lines(data: Path) -> None:
    whole = ok_json("cat", "--dir", data, "--topic", "people")
    assert set(whole) == {"directory", "topic", "records"}
    lines = [json.loads(line) for line in ok("cat", "--dir", data, "--topic", "people", "--jsonl").splitlines()]
    assert whole["records"] == lines
    assert [set(record) for record in lines] == [RECORD_KEYS] * 3
    assert lines[0]["key"] == "Ann"
    assert json.loads(lines[0]["value"]) == {"id": 1, "name": "Ann", "when": "2013-02-08T05:00:00Z"}
    assert (lines[0]["timestamp"], lines[0]["timestamp_type"], lines[2]["key"]) == (1360299600000, "create_time", None)


def test_cat_of_an_empty_topic_is_still_json(tmp_path: Path) -> None:
    with klog.open(tmp_path / "d", create=True) as logs:
        logs.create_topic("t")
    assert ok_json("cat", "--dir", tmp_path / "d", "--topic", "t")["records"] == []
    assert ok("cat", "--dir", tmp_path / "d", "--topic", "t", "--jsonl") == ""


def test_names_from_files_cannot_move_the_cursor(tmp_path: Path) -> None:
    klog.open(tmp_path / "d", create=True).close()
    (tmp_path / "d" / "\x1b[31mred").mkdir()
    (tmp_path / "d" / "recovery-point-offset-checkpoint").write_text("0\n1\n\x1b[31mred 0 5\n")
    (tmp_path / "d" / "klog-audit.jsonl").write_text('{"version":1,"outcome":"\x9b31mred"}\n')
    for verb in ("ls", "dump", "verify"):
        result = run(verb, tmp_path / "d", color=True)
        assert "31mred" in result.output
        assert not {"\x1b", "\x9b"} & {*result.output}
    (tmp_path / "\x1b[31mred").mkdir()
    result = run("verify", tmp_path / "\x1b[31mred", color=True)
    assert "\\x1b[31mred" in result.output and "\x1b" not in result.output


def test_cat_shows_bytes_that_are_not_text(tmp_path: Path) -> None:
    with klog.open(tmp_path / "d", create=True) as logs:
        logs.create_topic("t")
        logs.log("t").append([(b"\xff\x00", b"\x1b[31mred\n", 5, [("h", b"\xfe"), ("n", None)])])
    (record,) = ok_json("cat", "--dir", tmp_path / "d", "--topic", "t")["records"]
    assert base64.b64decode(record["key_b64"]) == b"\xff\x00"
    assert record["value"] == "\x1b[31mred\n"
    assert record["headers"] == [{"key": "h", "value_b64": "/g=="}, {"key": "n", "value": None}]
    assert "key" not in record
    text = ok("cat", "--dir", tmp_path / "d", "--topic", "t")
    assert text == "0:0\t1970-01-01T00:00:00.005Z\thex:ff00\t\\x1b[31mred\\n\t{h: hex:fe, n: null}\n"


@pytest.mark.parametrize(
    ("options", "offsets"),
    [
        (["--from", "1"], [1, 2]),
        (["--from", "earliest", "--max", "2"], [0, 1]),
        (["--from", "latest"], []),
        (["--from", "2013-02-08T05:30:00Z"], [1, 2]),
        (["--from=-3h"], []),
        (["-n", "0"], []),
        (["--partition", "0"], [0, 1, 2]),
        (["--to", "2"], [0, 1]),
        (["--from", "1", "--until", "2013-02-08T07:00:00Z"], [1]),
        (["--from", "2", "--to", "1"], []),
        (["--to", "99"], [0, 1, 2]),
    ],
)
def test_cat_begins_at_the_given_position(data: Path, options: list[str], offsets: list[int]) -> None:
    found = ok_json("cat", "--dir", data, "--topic", "people", *options)
    assert [record["offset"] for record in found["records"]] == offsets


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--topic", "poeple"], 1, "no topic 'poeple'; did you mean 'people'?"),
        (["--topic", "people", "--partition", "4"], 1, "has no partition 4"),
        (["--topic", "people", "--from", "77"], 1, "holds [0, 3)"),
        (["--topic", "people", "--from", "tomorrow"], 2, "'tomorrow' is not a position"),
        (["--topic", "people", "--to", "tomorrow"], 2, "'--to' / '--until': 'tomorrow' is not a position"),
        (["--topic", "people", "-f", "--to", "1"], 2, "-f has no end"),
        ([], 2, "Missing option '--topic'"),
    ],
)
def test_cat_errors(data: Path, options: list[str], code: int, message: str) -> None:
    result = run("cat", "--dir", data, *options)
    assert (result.exit_code, result.stdout) == (code, "")
    assert message in result.stderr


def test_cat_of_transactions_by_isolation(tmp_path: Path) -> None:
    directory = golden.copy_logdir("txn-v1", tmp_path)
    (partition,) = (partition for partition in golden.partitions("txn-v1") if partition.topic == "orders")
    counts = {}
    for isolation in ("log_end", "read_committed"):
        found = ok("cat", "--dir", directory, "--topic", "orders", "--isolation", isolation, "--jsonl")
        counts[isolation] = len(found.splitlines())
    data = [record.offset for record in partition.records if record.control_type is None]
    committed = [o for first, last in partition.entry["read_committed"] for o in data if first <= o <= last]
    assert counts == {"log_end": len(data), "read_committed": len(committed)}
    above = ("--isolation", "log_end")
    control = ok("cat", "--dir", directory, "--topic", "orders", "--control", "--jsonl", *above).splitlines()
    assert len(control) == len(partition.records)
    assert {json.loads(line)["control_type"] for line in control} == {None, "abort", "commit"}


def test_cat_and_export_end_at_the_high_watermark_as_in_python(tmp_path: Path) -> None:
    """cat prints one line on stderr for each partition with more records."""
    with klog.open(tmp_path, create=True) as logs:
        logs.create_topic("events", partitions=2)
        for number in range(2):
            logs.log("events", number).append([(None, b"%d" % n) for n in range(4)])
        logs.log("events", 0).update_high_watermark(1)
    result = run("cat", "--dir", tmp_path, "--topic", "events", "--jsonl")
    with klog.open(tmp_path, read_only=True) as logs:
        expected = [(record.partition, record.offset) for record in logs.read("events")]
    found = [json.loads(line) for line in result.stdout.splitlines()]
    assert [(each["partition"], each["offset"]) for each in found] == expected and len(found) == 5
    (message,) = result.stderr.splitlines()
    assert message == ("klog: 3 records of events-0 above the high watermark: --isolation log_end shows all records")
    result = run("cat", "--dir", tmp_path, "--topic", "events", "--isolation", "log_end", "--jsonl")
    assert (len(result.stdout.splitlines()), result.stderr) == (8, "")
    assert ok_json("export", tmp_path, "--topic", "events", "-o", tmp_path / "events.jsonl")["records"] == 5


def test_cat_prints_the_records_below_a_high_watermark_with_damage_above_it(tmp_path: Path) -> None:
    with klog.Log.open(tmp_path / "events-0") as log:
        for _ in range(3):
            log.append([(b"k", b"v")] * 2)
            log.roll()
    (tmp_path / "replication-offset-checkpoint").write_text("0\n1\nevents 0 2\n")
    path = tmp_path / "events-0" / f"{2:020d}.log"
    path.write_bytes(b"\xff" * path.stat().st_size)
    result = run("cat", "--dir", tmp_path, "--topic", "events", "--jsonl")
    assert [json.loads(line)["offset"] for line in result.stdout.splitlines()] == [0, 1]
    assert result.exit_code == 0
    assert "events-0 is damaged above the high watermark" in result.stderr


def test_cat_of_a_damaged_log_prints_the_records_before_the_damage(data: Path) -> None:
    """--json stays one valid object; its member `error` and exit code 3 show that records are missing."""
    with klog.open(data) as logs:
        for number in range(3):
            logs.append("people", [(b"k%d" % number, b"v")])
    path = max((data / "people-0").glob("*.log"))
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    result = run("cat", "--dir", data, "--topic", "people", "--json")
    found = json.loads(result.stdout)
    assert result.exit_code == 3
    assert list(found) == ["directory", "topic", "records", "error"]
    assert [record["offset"] for record in found["records"]] == [0, 1, 2, 3, 4]
    assert list(found["error"]) == ["type", "message", "path", "position", "offset"]
    assert (found["error"]["type"], found["error"]["path"]) == ("CorruptBatch", str(path))
    assert result.stderr == f"klog: {found['error']['message']}\n"
    result = run("cat", "--dir", data, "--topic", "people", "--jsonl")
    assert result.exit_code == 3 and len(result.stdout.splitlines()) == 5


def test_cat_and_ls_report_records_hidden_by_a_wrong_length(data: Path) -> None:
    with klog.open(data) as logs:
        for number in range(3):
            logs.append("people", [(b"k%d" % number, b"v")])
    path = max((data / "people-0").glob("*.log"))
    content = bytearray(path.read_bytes())
    first = 12 + int.from_bytes(content[8:12], "big")
    content[first + 9] ^= 1
    path.write_bytes(content)
    result = run("cat", "--dir", data, "--topic", "people")
    assert result.exit_code == 3 and "valid ones after it" in result.stderr
    result = run("ls", data, "--json")
    entry = json.loads(result.stdout)["topics"][0]["partitions"][0]
    assert entry["log_end_offset"] == 4 and f"position {first}" in entry["problem"]
    path.write_bytes(content[:first] + content[:20])
    result = run("cat", "--dir", data, "--topic", "people")
    assert result.exit_code == 0 and len(result.stdout.splitlines()) == 4
    assert "a truncated batch" in result.stderr and "20 bytes left out" in result.stderr
    assert ok_json("ls", data)["topics"][0]["partitions"][0]["problem"] is None  # it may be a write in progress


def test_dump_json_is_valid_however_it_ends(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def entries() -> Iterator[dict[str, Any]]:
        yield {"type": "text", "text": "first"}
        raise OSError(5, "Input/output error")

    file = DumpedFile("path", "properties", 5, None, None, entries())
    monkeypatch.setattr("klog.inspect.dump", lambda *args, **kwargs: iter([file]))
    result = run("dump", data, "--json")
    assert result.exit_code == 1
    shown = json.loads(result.stdout)
    assert len(shown["files"][0]["entries"]) == 1 and "Input/output error" in shown["error"]["message"]


# ---- dump ----------------------------------------------------------------------------------------------------------


def test_dump_json_keys(data: Path) -> None:
    log = data / "people-0" / "00000000000000000000.log"
    found = ok_json("dump", log)
    (file,) = found["files"]
    assert set(file) == {"path", "kind", "size", "base_offset", "leftover", "entries"}
    (batch,) = file["entries"]
    assert set(batch) == BATCH_KEYS
    assert set(batch["records"][0]) == RECORD_KEYS - {"topic", "partition"}
    (line,) = ok("dump", log, "--batches", "--jsonl").splitlines()
    assert set(json.loads(line)) == BATCH_KEYS - {"records"} | {"path", "kind"}
    everything = ok_json("dump", data)["files"]
    assert {file["kind"] for file in everything} == {
        "clean_shutdown", "topics", "checkpoint", "log", "index", "timeindex", "epochs", "partition_metadata",
        "snapshot",
    }  # fmt: skip


def test_dump_prints_the_format_of_kafkas_tool(tmp_path: Path) -> None:
    """The worked example of the format: batches A and C, and what DumpLogSegments prints for them."""
    batch = klog.record.encode(
        [(b"k1", b"v1", 1700000000000, [("h", b"x"), ("n", None)]), (None, b"hello", 1700000000005)],
        base_offset=100,
        leader_epoch=5,
    )
    path = tmp_path / "00000000000000000100.log"
    path.write_bytes(batch)
    assert ok("dump", "--files", path, "--print-data-log", "--deep-iteration").splitlines() == [
        f"Dumping {path}",
        "Log starting offset: 100",
        "baseOffset: 100 lastOffset: 101 count: 2 baseSequence: -1 lastSequence: -1 producerId: -1 producerEpoch: -1 "
        "partitionLeaderEpoch: 5 isTransactional: false isControl: false deleteHorizonMs: OptionalLong.empty "
        "position: 0 CreateTime: 1700000000005 size: 91 magic: 2 compresscodec: none crc: 578280741 isvalid: true",
        "| offset: 100 CreateTime: 1700000000000 keySize: 2 valueSize: 2 sequence: -1 "
        "headerKeys: [h,n] key: k1 payload: v1",
        "| offset: 101 CreateTime: 1700000000005 keySize: -1 valueSize: 5 sequence: -1 headerKeys: [] payload: hello",
    ]
    assert "| key: k1 payload: v1" in ok("dump", path, "--skip-record-metadata")


def test_dump_of_the_small_files(tmp_path: Path) -> None:
    directory = golden.copy_logdir("txn-v1", tmp_path)
    text = ok("dump", directory / "orders-0")
    entry = next(p for p in golden.partitions("txn-v1") if p.topic == "orders").entry["aborted"][0]
    assert (
        f"version: 0 producerId: {entry['producer_id']} firstOffset: {entry['first_offset']} "
        f"lastOffset: {entry['last_offset']} lastStableOffset: {entry['last_stable_offset']}\n"
    ) in text
    assert "currentTxnFirstOffset: OptionalLong.empty lastTimestamp: " in text
    assert " endTxnMarker: ABORT coordinatorEpoch: " in text
    assert "epoch: 0 startOffset: 0\n" in text
    assert "orders 0 " in ok("dump", directory / "recovery-point-offset-checkpoint")


def test_dump_shows_damage_and_exits_with_3(data: Path) -> None:
    path = data / "people-0" / "00000000000000000000.log"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    result = run("dump", path)
    assert result.exit_code == 3
    assert "isvalid: false" in result.stdout
    path.write_bytes(content[:-1])
    result = run("dump", path, "--json")
    assert result.exit_code == 3
    assert json.loads(result.stdout)["files"][0]["entries"][0]["type"] == "problem"
    unknown = data / "people-0" / "notes.txt"
    unknown.write_text("x")
    assert run("dump", unknown).exit_code == 3
    assert run("dump").exit_code == run("dump", data / "nothing").exit_code == 2


def test_dump_of_a_url_is_that_of_the_path(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """pyarrow also knows file:// and copies from it as from an object store. The copies are removed."""
    pytest.importorskip("pyarrow", reason="needs: pyarrow")
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    log = data / "people-0" / "00000000000000000000.log"
    offsets = Path(shutil.copytree(golden.copy_logdir("internal", tmp_path), tmp_path / "a copy"))
    group = next((offsets / "__consumer_offsets-0").glob("*.log"))  # the directory's name decides how it is decoded
    for path in (log, data / "people-0", data, offsets, group):
        url = path.as_uri()
        for more in ((), ("--jsonl",), ("--json",)):
            local, remote = ok("dump", path, *more), ok("dump", url, *more)
            assert remote.replace(url, str(path)) == local and url in remote
    assert '"decoded"' in ok("dump", group.as_uri(), "--jsonl")
    assert ok("dump", log.as_uri(), log).count("Dumping ") == 2
    assert list((tmp_path / "temporary").iterdir()) == []


def test_dump_of_a_bad_url(data: Path) -> None:
    pytest.importorskip("pyarrow", reason="needs: pyarrow")
    for options in ((), ("--json",)):
        for bad in ("nosuch://me:secret@bucket/x", "s3://key:se/cret@bucket/x", "file:///"):
            result = run("dump", bad, *options)
            assert result.exit_code == 2 and bad[:4] in result.stderr and "Traceback" not in result.output
            assert "secret" not in result.output and "se/cret" not in result.output
        url = (data / "nothing").as_uri()
        result = run("dump", url, *options)
        assert result.exit_code == 1 and f"{url}: no such file or directory" in result.stderr
    assert json.loads(result.stdout)["error"]["type"] == "FileNotFoundError"


def test_a_url_without_pyarrow_names_what_to_install(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    result = run("dump", data.as_uri())
    assert (result.exit_code, result.stdout) == (2, "")
    assert "pip install 'klog[arrow]'" in result.stderr


@pytest.mark.parametrize(
    ("option", "instead"),
    [
        ("--verify-index-only", "klog verify"),
        ("--index-sanity-check", "klog verify"),
        ("--max-bytes=5", "klog cat"),
        ("--key-decoder-class=x.Y", "klog export"),
        ("--value-decoder-class=x.Y", "klog export"),
    ],
)
def test_options_of_kafkas_tool_that_are_not_here_name_what_is(data: Path, option: str, instead: str) -> None:
    result = run("dump", data, option)
    assert (result.exit_code, result.stdout) == (2, "")
    assert option.partition("=")[0] in result.stderr and instead in result.stderr
    assert option.partition("=")[0] not in ok("dump", "--help")
    ok("dump", data, "--max-message-size", "5242880")


# ---- verify and ls -------------------------------------------------------------------------------------------------


def test_verify_of_valid_and_damaged_logs(data: Path) -> None:
    found = ok_json("verify", data)
    assert set(found) == {"ok", "path", "problems", "notes", "partitions", "segments", "batches", "records", "bytes"}
    assert (found["ok"], found["problems"], found["records"]) == (True, [], 3)
    assert ok("verify", data).startswith("sound: 1 partition, 1 segment, 1 batch, 3 records, ")
    path = data / "people-0" / "00000000000000000000.log"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    result = run("verify", data, "--json")
    assert result.exit_code == 3
    (problem,) = json.loads(result.stdout)["problems"]
    assert set(problem) == {"path", "position", "offset", "message", "kind"}
    assert (problem["path"], problem["position"], problem["offset"], problem["kind"]) == (str(path), 0, 0, "crc")
    result = run("verify", data)
    assert result.exit_code == 3
    assert f"{path}, position 0, offset 0: crc: " in result.stdout
    assert run("verify", data / "nothing").exit_code == 2


def test_ls_keys(data: Path) -> None:
    found = ok_json("ls", data)
    assert set(found) == {"path", "clean_shutdown", "topics", "other"}
    (topic,) = found["topics"]
    assert set(topic) == {
        "topic", "topic_id", "size", "segments", "offsets", "partitions", "first_timestamp", "max_timestamp",
    }  # fmt: skip
    (partition,) = topic["partitions"]
    assert set(partition) == {
        "topic", "partition", "path", "topic_id", "log_start_offset", "log_end_offset", "high_watermark", "size",
        "files_size", "segments", "first_timestamp", "max_timestamp", "problem",
    }  # fmt: skip
    assert (partition["log_end_offset"], partition["first_timestamp"]) == (3, 1360299600000)
    lines = ok("ls", data).splitlines()
    assert lines[0].split() == [
        "TOPIC",
        "PARTITION",
        "START",
        "END",
        "HIGH",
        "WATERMARK",
        "SIZE",
        "SEGMENTS",
        "FIRST",
        "TIME",
        "MAX",
        "TIME",
    ]
    assert lines[1].split()[:4] == ["people", "0", "0", "3"]
    assert ok_json("ls", data / "people-0")["topics"][0]["partitions"][0]["log_end_offset"] == 3


def test_ls_of_several_directories(tmp_path: Path) -> None:
    paths = [tmp_path / "a", tmp_path / "b"]
    with klog.open(paths, create=True) as logs:
        logs.create_topic("t", partitions=3)
        logs.create_topic("gone")
        logs.delete_topic("gone")
    found = ok_json("ls", *paths)["directories"]
    assert [[entry["partition"] for entry in each["topics"][0]["partitions"]] for each in found] == [[0, 2], [1]]
    result = run("ls", *paths)
    assert [line.split()[:3] for line in result.stdout.splitlines()] == [
        ["DIR", "TOPIC", "PARTITION"],
        [str(paths[0]), "t", "0"],
        [str(paths[0]), "t", "2"],
        [str(paths[1]), "t", "1"],
    ]
    assert "-delete: delete" in result.stderr


@pytest.mark.parametrize("verb", ["ls", "verify", "dump", "cat"])
def test_reading_verbs_change_no_file(verb: str, tmp_path: Path) -> None:
    directory = golden.copy_logdir("unclean", tmp_path)
    before = golden.file_tree(directory)
    if verb == "cat":
        ok("cat", "--dir", directory, "--topic", "crash-txn")
    else:
        ok(verb, directory)
    assert golden.file_tree(directory) == before


# ---- the group -----------------------------------------------------------------------------------------------------


def test_help_names_every_verb_and_shows_an_example() -> None:
    text = ok("--help")
    for verb in VERBS:
        assert verb in text
        help_text = ok(verb, "--help")
        assert f"klog {verb}" in help_text
    assert "klog import flights.csv.gz" in text
    assert klog.__version__ in ok("--version")


def test_an_unknown_verb_is_a_usage_error_with_a_hint() -> None:
    result = run("imprt")
    assert result.exit_code == 2
    assert "did you mean import?" in result.stderr


def test_kafkas_flags_are_accepted_and_not_shown() -> None:
    text = ok("dump", "--help")
    assert "--deep-iteration" not in text
    assert "--print-data-log" not in text


def test_verify_without_a_log_names_what_it_expects(tmp_path: Path) -> None:
    """An empty directory, one with other files, and one that has a partition's name."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "other" / "sub").mkdir(parents=True)
    (tmp_path / "t-0").mkdir()
    for name in ("empty", "other", "t-0"):
        result = run("verify", tmp_path / name)
        assert (result.exit_code, result.stdout) == (1, "")
        assert "no partitions here" in result.stderr and "<topic>-<n>" in result.stderr
    with klog.open(tmp_path / "data", create=True):
        pass
    assert run("verify", tmp_path / "data").exit_code == 0  # a log.dir without topics


def test_verify_notes_leftovers_of_a_deletion(tmp_path: Path) -> None:
    with klog.open(tmp_path, create=True) as logs:
        for name in ("t", "gone"):
            logs.create_topic(name, config={"file.delete.delay.ms": 10**9})
        log = logs.log("t")
        for _ in range(2):
            log.append([(b"k", b"v")])
            log.roll()
        log.delete_records(1)
        assert log.apply_retention() == 1
        logs.delete_topic("gone")
    result = run("verify", tmp_path)
    assert result.exit_code == 0 and result.stdout.startswith("sound")
    notes = [note["path"] for note in ok_json("verify", tmp_path)["notes"]]
    assert len(notes) == 4 and any(".log.deleted" in path for path in notes)
    gone, deleted = result.stderr.splitlines()  # a line for each directory
    assert gone.startswith(f"klog: note: {tmp_path}/gone-0.") and "the next start removes it" in gone
    assert deleted == f"klog: note: {tmp_path / 't-0'}: 3 files: leftover: marked for deletion"


def test_ls_timestamps_match_their_names(tmp_path: Path) -> None:
    with klog.open(tmp_path, create=True) as logs:
        logs.create_topic("t")
        logs.log("t").append([(b"k", b"v", 1_700_000_002_000), (b"k", b"v", 1_700_000_001_000)])
        logs.log("t").append([(b"k", b"v", 1_700_000_003_000), (b"k", b"v", 1_700_000_000_000)])
    (topic,) = ok_json("ls", tmp_path)["topics"]
    assert (topic["first_timestamp"], topic["max_timestamp"]) == (1_700_000_002_000, 1_700_000_003_000)


@pytest.mark.parametrize("partitions", [1, 2])
def test_cat_from_beyond_the_end_is_an_error(tmp_path: Path, partitions: int) -> None:
    with klog.open(tmp_path, create=True) as logs:
        logs.create_topic("t", partitions=partitions)
        logs.log("t").append([(b"k", b"v")] * 3)
    assert run("cat", "--dir", tmp_path, "--topic", "t", "--from", 3).exit_code == 0
    for more in ((), ("-f",), ("--json",)):
        result = run("cat", "--dir", tmp_path, "--topic", "t", "--from", 4, *more)
        assert result.exit_code == 1
        assert json.loads(result.stdout)["error"]["offset"] == 4 if more == ("--json",) else result.stdout == ""
        assert "offset 4 is outside t-0, which holds [0, 3)" in result.stderr
