"""The records of a topic as files."""

from __future__ import annotations

import csv
import io
import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import klog
from klog.cli import cli
from klog.decode import Avro, Json
from klog.disk import NewFile, RealFiles
from klog.errors import BadValue, CorruptBatch, KlogError, OffsetOutOfRange, UnknownTopicOrPartition
from klog.exporting import export_file
from klog.importing import UnknownFormat, import_file
from klog.progress import Event

T = 1_360_299_600_000
CSV = 'id,name,delay\n1,Ann,2.5\n2,"Bo ""b"", c",\n3,ü,-1\n'


@pytest.fixture
def logs(tmp_path: Path) -> Any:
    with klog.open(tmp_path / "data", create=True) as logs:
        logs.create_topic("t", partitions=2, config={"message.timestamp.after.max.ms": 2**63 - 1})
        logs.log("t", 0).append([(b"k0", b"v0", T), (None, None, -1, [("h", b"1"), ("n", b"\xff")])])
        logs.log("t", 1).append([(b"\xff", b"\xfe", T + 1), (b"k1", b'a,"b"\n', (1 << 62))])
        yield logs


def cat(logs: klog.LogManager, *options: str) -> str:
    result = CliRunner().invoke(cli, ["cat", "--dir", logs.path, "--topic", "t", "--jsonl", *options])
    assert result.exit_code == 0
    return result.stdout


def rows(path: Path) -> list[dict[str, str]]:
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_parquet_and_arrow_have_the_columns_of_readers_and_where_records_are(logs: Any, tmp_path: Path) -> None:
    events: list[Event] = []
    result = export_file(logs, "t", tmp_path / "out.parquet", progress=events.append)
    expected = pa.concat_tables(
        logs.log("t", number)
        .read()
        .to_arrow()
        .append_column("topic", [["t", "t"]])
        .append_column("partition", pa.array([number, number], pa.int32()))
        for number in (0, 1)
    )
    assert pq.read_table(tmp_path / "out.parquet") == expected
    assert (result.form, result.records, result.partitions) == ("parquet", 4, {0: (0, 2), 1: (0, 2)})
    assert result.bytes == os.path.getsize(tmp_path / "out.parquet") and events[-1] == Event("export", 4, 4)
    export_file(logs.path, "t", tmp_path / "out.arrow", columns=["partition", "value"])
    assert pa.ipc.open_file(tmp_path / "out.arrow").read_all() == expected.select(["partition", "value"])
    stdout = io.BytesIO()
    assert export_file(logs, "t", "-", form="arrow", stdout=stdout).bytes == len(stdout.getvalue())
    assert pa.ipc.open_stream(stdout.getvalue()).read_all() == expected


def test_json_lines_are_those_of_cat(logs: Any, tmp_path: Path) -> None:
    export_file(logs, "t", tmp_path / "out.jsonl")
    assert (tmp_path / "out.jsonl").read_text() == cat(logs)
    export_file(logs, "t", tmp_path / "keys.jsonl", columns=["offset", "key"])
    lines = [json.loads(line) for line in (tmp_path / "keys.jsonl").read_text().splitlines()]
    assert lines == [
        {"offset": 0, "key": "k0"},
        {"offset": 1, "key": None},
        {"offset": 0, "key_b64": "/w=="},
        {"offset": 1, "key": "k1"},
    ]


def test_csv_has_text_or_base64(logs: Any, tmp_path: Path) -> None:
    export_file(logs, "t", tmp_path / "out.csv", columns=["timestamp", "key", "value", "headers", "partition"])
    empty = dict.fromkeys(("timestamp", "key", "key_b64", "value", "value_b64", "headers"), "")
    assert rows(tmp_path / "out.csv") == [
        {**empty, "timestamp": "2013-02-08T05:00:00.000Z", "key": "k0", "value": "v0", "partition": "0"},
        {**empty, "headers": '[{"key":"h","value":"1"},{"key":"n","value_b64":"/w=="}]', "partition": "0"},
        {**empty, "timestamp": "2013-02-08T05:00:00.001Z", "key_b64": "/w==", "value_b64": "/g==", "partition": "1"},
        {**empty, "timestamp": f"{1 << 62} ms", "key": "k1", "value": 'a,"b"\n', "partition": "1"},
    ]


def test_csv_quotes_a_carriage_return_and_empty_text_but_not_null(logs: Any, tmp_path: Path) -> None:
    logs.create_topic("odd")
    logs.append("odd", [(b"a\rb", b"\r"), (b"", None), (None, b""), ("é\r\n".encode(), b'"')])
    export_file(logs, "odd", tmp_path / "out.csv", columns=["key", "value"])
    head, *lines = (tmp_path / "out.csv").read_bytes().split(b"\n", 3)
    assert (head, lines[0], lines[1]) == (b"key,key_b64,value,value_b64", b'"a\rb",,"\r",', b'"",,,')
    found = [(row["key"], row["value"]) for row in rows(tmp_path / "out.csv")]
    assert found == [("a\rb", "\r"), ("", ""), ("", ""), ("é\r\n", '"')]
    export_file(logs, "odd", tmp_path / "one.csv", columns=["headers"])
    assert rows(tmp_path / "one.csv") == [{"headers": ""}] * 4


def test_what_was_imported_is_exported(logs: Any, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text(CSV)
    import_file(tmp_path / "in.csv", logs, "people", key="id")
    decode = {"key": "utf8", "value": Json("id BIGINT, name STRING, delay DOUBLE")}
    export_file(logs, "people", tmp_path / "out.csv", columns=["value"], decode=decode)
    assert (tmp_path / "out.csv").read_text() == CSV.replace(
        "id,name,delay", "value.id,value.name,value.delay"
    ).replace("-1", "-1.0")
    export_file(logs, "people", tmp_path / "out.parquet", decode=decode)
    found = pq.read_table(tmp_path / "out.parquet")
    assert found["key"].to_pylist() == ["1", "2", "3"] and found["value"][1].as_py() == {
        "id": 2,
        "name": 'Bo "b", c',
        "delay": None,
    }
    export_file(logs, "people", tmp_path / "out.jsonl", decode="json", columns=["key", "value"])
    lines = (tmp_path / "out.jsonl").read_text()
    assert json.loads(lines.splitlines()[2]) == {"key": "3", "value": {"id": 3, "name": "ü", "delay": -1}}
    import_file(tmp_path / "out.jsonl", logs, "again", key="key")
    assert [key for key, _ in logs.read("again").pairs()] == [b"1", b"2", b"3"]


@pytest.mark.parametrize(
    ("given", "offsets"),
    [
        ({"start": 1}, [(0, 1), (1, 1)]),
        ({"stop": 1}, [(0, 0), (1, 0)]),
        ({"partition": 1, "start": 1, "stop": 9}, [(1, 1)]),
        ({"start": "2013-02-08T05:00:00.001Z"}, [(1, 0), (1, 1)]),
        ({"start": 2}, []),
    ],
)
def test_ranges(logs: Any, tmp_path: Path, given: dict[str, Any], offsets: list[tuple[int, int]]) -> None:
    logs.log("t", 0).delete_records(0)
    assert export_file(logs, "t", tmp_path / "out.jsonl", **given).records == len(offsets)
    lines = map(json.loads, (tmp_path / "out.jsonl").read_text().splitlines())
    assert [(line["partition"], line["offset"]) for line in lines] == offsets


def test_one_offset_is_limited_to_what_each_partition_has(logs: Any, tmp_path: Path) -> None:
    logs.log("t", 0).append([(None, b"")] * 5)
    logs.log("t", 0).delete_records(3)
    assert export_file(logs, "t", tmp_path / "out.csv", start=4).partitions == {0: (4, 7), 1: (2, 2)}
    assert export_file(logs, "t", tmp_path / "more.csv", start=0).partitions == {0: (3, 7), 1: (0, 2)}
    with pytest.raises(OffsetOutOfRange):
        export_file(logs, "t", tmp_path / "none.csv", start=8)


@pytest.mark.parametrize("form", ["parquet", "arrow", "csv", "jsonl"])
def test_a_failure_leaves_no_file(logs: Any, tmp_path: Path, form: str) -> None:
    target = tmp_path / f"out.{form}"
    with pytest.raises(BadValue, match="t-1, offset 0: the value is bad"):
        export_file(logs, "t", target, decode="utf8")
    with open(logs.log("t", 1).segments[0].path, "r+b") as file:
        file.seek(70)
        file.write(b"\xff\xff")
    with pytest.raises(CorruptBatch):
        export_file(logs, "t", target)
    assert sorted(os.listdir(tmp_path)) == ["data"]


def test_two_exports_to_one_file_do_not_mix(logs: Any, tmp_path: Path) -> None:
    target = tmp_path / "out.csv"
    (tmp_path / "out.csv.tmp").write_bytes(b"left by a crash")
    with NewFile(str(target), RealFiles()) as first:
        first.write(b"fir")
        with pytest.raises(OSError, match="is being written") as caught:
            export_file(logs, "t", target, overwrite=True)
        assert caught.value.filename == f"{target}.tmp"
        first.write(b"st")
        first.commit()
    assert target.read_bytes() == b"first" and sorted(os.listdir(tmp_path)) == ["data", "out.csv"]


@pytest.mark.parametrize("form", ["parquet", "jsonl"])
def test_a_file_that_appears_meanwhile_is_not_replaced(logs: Any, tmp_path: Path, form: str) -> None:
    target = tmp_path / f"out.{form}"

    def appear(event: klog.progress.Event) -> None:
        target.write_bytes(b"another program's")

    with pytest.raises(FileExistsError, match="overwrite=True"):
        export_file(logs, "t", target, progress=appear)
    assert target.read_bytes() == b"another program's" and sorted(os.listdir(tmp_path)) == ["data", target.name]
    export_file(logs, "t", target, overwrite=True)
    assert target.stat().st_size > 20


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_pipe_a_device_or_a_directory_is_not_replaced(logs: Any, tmp_path: Path, overwrite: bool) -> None:
    os.mkfifo(tmp_path / "pipe.csv")
    (tmp_path / "link.csv").symlink_to(tmp_path / "pipe.csv")
    (tmp_path / "directory.csv").mkdir()
    before = {path: path.lstat().st_ino for path in tmp_path.iterdir()}
    for name in ("pipe.csv", "link.csv", "directory.csv"):
        with pytest.raises(OSError, match="not a regular file"):
            export_file(logs, "t", tmp_path / name, overwrite=overwrite)
        with pytest.raises(OSError, match="not a regular file"):
            logs.read("t").to_parquet(tmp_path / name, overwrite=overwrite)
    assert {path: path.lstat().st_ino for path in tmp_path.iterdir()} == before


def test_a_time_beyond_the_calendar_is_named(logs: Any, tmp_path: Path) -> None:
    schema = '{"type": "record", "name": "F", "fields": [{"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}}]}'
    late = b"\0\0\0\0\x07" + b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f"
    logs.create_topic("late")
    logs.append("late", [(None, late)])
    decode = Avro({7: schema})
    with pytest.raises(KlogError, match="column value cannot be written as text: .*export to Parquet"):
        export_file(logs, "late", tmp_path / "out.csv", decode=decode)
    with pytest.raises(BadValue, match="late-0, offset 0: the value is bad: Python has no object for it"):
        export_file(logs, "late", tmp_path / "out.jsonl", decode=decode)
    assert export_file(logs, "late", tmp_path / "out.parquet", decode=decode).records == 1
    logs.append("late", [(None, b"\0\0\0\0\x07\x80\x01")])  # not UTF-8
    export_file(logs, "late", tmp_path / "out.jsonl", start=1, decode=decode, columns=["value"])
    assert (tmp_path / "out.jsonl").read_text() == '{"value":{"at":"1970-01-01T00:00:00.000064Z"}}\n'


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        ({"target": "x.txt"}, UnknownFormat, "x.txt: the name shows no format; choose from parquet, arrow, csv, jsonl"),
        ({"form": "xml"}, UnknownFormat, "format 'xml'; choose"),
        ({"target": "-", "form": "parquet", "stdout": io.BytesIO()}, UnknownFormat, "Parquet needs a file"),
        ({"target": "-"}, ValueError, "target='-', stdout=None: '-' goes with stdout="),
        ({"columns": ["a"]}, ValueError, r"columns\[0\]='a' is unknown: choose from offset"),
        ({"columns": ["key", "key"]}, ValueError, r"columns\[1\]='key' is named twice"),
        ({"columns": "key"}, TypeError, "columns='key': a list of str"),
        ({"topic": "u"}, UnknownTopicOrPartition, "u"),
        ({"partition": 7}, UnknownTopicOrPartition, "7"),
        ({"overwrite": 1}, TypeError, "overwrite=1: True or False"),
        ({"progress": 1}, TypeError, "progress=1: a function"),
    ],
)
def test_wrong_arguments(
    logs: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: dict[str, Any], error: type[Exception], text: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error, match=text):
        export_file(**{"logs": logs, "topic": "t", "target": "x.parquet", **given})
    assert os.listdir(tmp_path) == ["data"]


def run(*words: object) -> Any:
    return CliRunner().invoke(cli, ["export", *map(str, words)])


def test_the_verb(logs: Any, tmp_path: Path) -> None:
    common = [logs.path, "--topic", "t", "--partition", "0"]
    result = run(*common, "-o", tmp_path / "x.csv", "--from", "0", "--to", "1", "--columns", "offset, value", "--json")
    assert (result.exit_code, json.loads(result.stdout)) == (
        0,
        {
            "directory": logs.path,
            "topic": "t",
            "target": str(tmp_path / "x.csv"),
            "form": "csv",
            "records": 1,
            "bytes": 29,
            "partitions": [{"partition": 0, "first_offset": 0, "next_offset": 1}],
        },
    )
    assert (tmp_path / "x.csv").read_text() == "offset,value,value_b64\n0,v0,\n"
    assert run(*common, "-o", tmp_path / "x.csv").exit_code == 1
    assert run(*common, "-o", tmp_path / "x.csv", "--overwrite").stdout.startswith("2 records of t into ")
    to_stdout = run(*common, "-o", "-", "--decode", "utf8", "--decode-key", "utf8", "--columns", "key,value", "--json")
    assert to_stdout.stdout == '{"key":"k0","value":"v0"}\n{"key":null,"value":null}\n'
    assert json.loads(to_stdout.stderr)["records"] == 2


def test_the_verb_names_records_that_a_crash_has_lost(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with klog.open(data, create=True) as logs:
        logs.create_topic("t")
        logs.append("t", [(b"k", b"v")] * 2)
        logs.append("t", [(b"k", b"v")])
    path = data / "t-0" / f"{0:020d}.log"
    os.truncate(path, path.stat().st_size - 1)
    result = run(data, "--topic", "t", "-o", tmp_path / "x.csv")
    assert (result.exit_code, result.stdout[:9]) == (0, "2 records")
    assert str(path) in result.stderr


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["-o", "x.txt"], 2, "the name shows no format"),
        (["-o", "-", "--columns", "a"], 2, "columns[0]='a' is unknown"),
        (["-o", "-", "--decode", "json"], 3, "t-0, offset 0: the value is bad"),
        (["-o", "-", "--decode", "json", "--schema", "id INTEGR"], 2, "unknown type 'INTEGR'"),
        (["-o", "-", "--decode", "avro"], 2, "--decode avro needs --schemas FILE"),
        (["-o", "-", "--decode", "protobuf"], 2, "--decode protobuf needs --schema"),
        (["-o", "-", "--schema", "id INT"], 2, "--schema and --schemas are for"),
        (["-o", "-", "--from", "tomorrow"], 2, "'tomorrow' is not a position"),
    ],
)
def test_wrong_words(logs: Any, words: list[str], code: int, text: str) -> None:
    result = run(logs.path, "--topic", "t", *words)
    assert result.exit_code == code and text in result.stderr and result.stdout == ""
