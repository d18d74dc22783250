"""A file becomes a topic, or the topic stays unchanged and the error names file and line."""

from __future__ import annotations

import datetime
import decimal
import gzip
import hashlib
import io
import json
from pathlib import Path
from typing import Any

import pytest

import klog
from klog.clock import ManualClock
from klog.errors import InvalidConfig, InvalidTopic, UnsupportedCompression
from klog.importing import RowError, UnknownColumn, UnknownFormat, import_file
from klog.importing import source as source_module

CSV = """\
id,name,price,when
1,"Ann, A",1.50,2013-02-08T05:00:00Z
2,Bob,,2013-02-08T06:00:00Z
3,"two
lines",007,2013-02-08T07:00:00Z
"""
ROWS = [
    {"id": 1, "name": "Ann, A", "price": 1.5, "when": "2013-02-08T05:00:00Z"},
    {"id": 2, "name": "Bob", "price": None, "when": "2013-02-08T06:00:00Z"},
    {"id": 3, "name": "two\nlines", "price": "007", "when": "2013-02-08T07:00:00Z"},
]
T = 1360299600000


def _file(tmp_path: Path, name: str, content: str | bytes) -> Path:
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def _records(directory: Path, topic: str = "t") -> list[Any]:
    with klog.open(directory, read_only=True) as logs:
        return list(logs.read(topic))


def _digests(directory: Path) -> dict[str, str]:
    return {
        str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in directory.rglob("*")
        if path.is_file() and path.parent != directory
    }


def test_csv_rows_become_json_in_file_order(tmp_path: Path) -> None:
    data = tmp_path / "data"
    result = import_file(_file(tmp_path, "f.csv", CSV), data, "t", key="name", timestamp="when", compression="lz4")
    records = _records(data)
    assert [json.loads(record.value) for record in records] == ROWS
    assert [list(json.loads(record.value)) for record in records] == [list(ROWS[0])] * 3
    assert [record.key for record in records] == [b"Ann, A", b"Bob", b"two\nlines"]
    assert [record.timestamp for record in records] == [T, T + 3_600_000, T + 7_200_000]
    assert (result.created, result.records, result.partitions) == (True, 3, {0: (0, 3)})
    assert (result.min_timestamp, result.max_timestamp) == (T, T + 7_200_000)


def test_a_new_topic_keeps_all_records_by_default(tmp_path: Path) -> None:
    path, data = _file(tmp_path, "f.csv", CSV), tmp_path / "data"
    import_file(path, data, "kept", partitions=3, config={"segment.bytes": "1048576"})
    import_file(path, data, "eaten", config={"retention.ms": "5"})
    with klog.open(data) as logs:
        assert logs.topic_config("kept").given == {"retention.ms": -1, "segment.bytes": 1048576}
        assert logs.topic_config("eaten")["retention.ms"] == 5
        assert logs.topics()["kept"] == [0, 1, 2]


def test_json_lines_are_kept_byte_for_byte(tmp_path: Path) -> None:
    text = '\ufeff{"b": 1.10, "a": "x", "big": 123456789012345678901}\n\n  {"a":"y","ts":5}  \n'
    result = import_file(_file(tmp_path, "f.jsonl", text), tmp_path / "data", "t", key="a")
    assert [record.value for record in _records(tmp_path / "data")] == [
        b'{"b": 1.10, "a": "x", "big": 123456789012345678901}',
        b'{"a":"y","ts":5}',
    ]
    assert result.null_keys == 0


def test_keys_are_the_text_of_their_cell(tmp_path: Path) -> None:
    text = '{"k":"a"}\n{"k":7}\n{"k":null}\n{"x":1}\n{"k":true}\n{"k":""}\n'
    import_file(_file(tmp_path, "f.jsonl", text), tmp_path / "data", "t", key="k")
    assert [record.key for record in _records(tmp_path / "data")] == [b"a", b"7", None, None, b"true", None]


def test_different_numbers_stay_different_keys(tmp_path: Path) -> None:
    numbers = ["0.12345678901234567890", "0.12345678901234567891", "1e400", "-1E400", "1.10", "1.1"]
    nested = ['{"a":[1.10,0.12345678901234567890],"b":"\u00fc"}', '{"a":[1.1,0.12345678901234567891],"b":"\u00fc"}']
    keys = [*numbers, *nested]
    text = "".join(f'{{"k":{key}}}\n' for key in keys)
    import_file(_file(tmp_path, "f.jsonl", text), tmp_path / "data", "t", key="k")
    assert [record.key for record in _records(tmp_path / "data")] == [key.encode() for key in keys]


def test_a_key_that_is_nested_too_deeply(tmp_path: Path) -> None:
    deep = "[" * 900 + "]" * 900
    with pytest.raises(RowError, match="line 1: .*(nested|recursion)"):
        import_file(_file(tmp_path, "f.jsonl", f'{{"k":{deep}}}\n'), tmp_path / "data", "t", key="k")


def test_decimals_of_parquet_keep_their_digits_in_lists_and_structs(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="needs: pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet", reason="needs: pyarrow")
    numbers = [decimal.Decimal("0.12345678901234567890"), decimal.Decimal("0.12345678901234567891")]
    several = [{"n": each, "t": [datetime.timedelta(seconds=1.5)], "u": [b"\xff", None]} for each in numbers]
    parquet.write_table(pyarrow.table({"k": several}), tmp_path / "f.parquet")
    import_file(tmp_path / "f.parquet", tmp_path / "data", "t", key="k")
    found = [(record.key, record.value) for record in _records(tmp_path / "data")]
    keys = [b'{"n":%s,"t":[1.5],"u":["/w==",null]}' % str(each).encode() for each in numbers]
    assert found == [(key, b'{"k":%s}' % key) for key in keys]


def test_gzip_stdin_and_tabs(tmp_path: Path) -> None:
    data = tmp_path / "data"
    import_file(_file(tmp_path, "f.csv.gz", gzip.compress(CSV.encode())), data, "gz")
    import_file("-", data, "stdin", stdin=io.BytesIO(gzip.compress(CSV.encode())))
    import_file(_file(tmp_path, "f.tsv", CSV.replace(",", "\t").replace("Ann\t A", "Ann, A")), data, "tsv")
    for topic in ("gz", "stdin", "tsv"):
        assert [json.loads(record.value) for record in _records(data, topic)] == ROWS


def test_parquet_rows(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="needs: pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet", reason="needs: pyarrow")
    table = pyarrow.table(
        {
            "id": [1, 2],
            "x": [0.1, float("nan")],
            "d": [decimal.Decimal("1.10"), None],
            "ts": pyarrow.array([T * 1_000_000, T * 1_000_000 + 1], pyarrow.timestamp("ns", tz="UTC")),
            "day": [datetime.date(2013, 2, 8), None],
            "raw": [b"ok", b"\xff"],
            "tags": [["a", "b"], []],
            "ok": [True, False],
        }
    )
    parquet.write_table(table, tmp_path / "f.parquet")
    result = import_file(tmp_path / "f.parquet", tmp_path / "data", "t", key="id", timestamp="ts")
    first, second = _records(tmp_path / "data")
    assert (first.key, first.timestamp, second.timestamp) == (b"1", T, T)
    assert first.value == (
        b'{"id":1,"x":0.1,"d":1.10,"ts":"2013-02-08T05:00:00Z","day":"2013-02-08","raw":"ok","tags":["a","b"],"ok":true}'
    )
    assert json.loads(second.value)["x"] is None
    assert json.loads(second.value)["raw"] == "/w=="
    assert result.records == 2
    with pytest.raises(UnknownColumn, match="did you mean 'day'"):
        import_file(tmp_path / "f.parquet", tmp_path / "data", "t", key="dya")
    broken = _file(tmp_path, "broken.parquet", (tmp_path / "f.parquet").read_bytes()[:-9])
    with pytest.raises(RowError, match="invalid Parquet"):
        import_file(broken, tmp_path / "data", "t")


def test_parquet_cells_that_cannot_be_read_name_column_and_row(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow", reason="needs: pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet", reason="needs: pyarrow")
    offsets = b"".join(end.to_bytes(4, "little") for end in (0, 1, 3))
    tables = {
        "line 2: column 'a': byte 2, 0xff, is not UTF-8": pa.table(
            {"a": pa.Array.from_buffers(pa.string(), 2, [None, pa.py_buffer(offsets), pa.py_buffer(b"xy\xff")])}
        ),
        r"line 5000: column 'a': a timestamp\[ms\] outside the calendar": pa.table(
            {"a": pa.array([1] * 4999 + [1 << 60], pa.timestamp("ms"))}
        ),
        r"line 1: column 'a': a date32\[day\] outside the calendar": pa.table(
            {"a": pa.array([5_000_000], pa.date32())}
        ),
        "line 1: the header has the name 'a' twice": pa.table([pa.array([1]), pa.array([2])], names=["a", "a"]),
    }
    for message, table in tables.items():
        parquet.write_table(table, tmp_path / "f.parquet")
        with pytest.raises(RowError, match=message):
            import_file(tmp_path / "f.parquet", tmp_path / "data", "t")
        assert not (tmp_path / "data").exists()


def test_parquet_without_pyarrow_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(klog.KlogError, match=r"pip install 'klog\[arrow\]'"):
        import_file(_file(tmp_path, "f.parquet", b"PAR1"), tmp_path / "data", "t")


BAD = [
    ("f.csv", b"a,b\n1,2\n3\n", {}, 3, "1 cells, but the header has 2"),
    ("f.csv", b"a,b\n1,2\n3,4,5\n", {}, 3, "3 cells"),
    ("f.csv", b"a,b\n1,2\n\n3,\xff\n", {}, 4, "0xff, is not UTF-8"),
    ("f.csv", b'a,b\n1,2\n3,"x\n4,5\n', {}, 3, "unexpected end of data"),
    ("f.csv", b'a,b\n1,"2"x\n', {}, 2, "invalid CSV"),
    ("f.csv", b"a,b,a\n1,2,3\n", {}, 1, "has the name 'a' twice"),
    ("f.csv", b"a,b\n1,2013-02-08\n2,UA\n", {"timestamp": "b"}, 3, "'UA' is not a time"),
    ("f.csv", b"a,b\n1,\n", {"timestamp": "b"}, 2, "empty"),
    ("f.csv", b"a,b\n1,2\n3,99999999999999\n", {"timestamp": "b"}, 3, "message.timestamp.after.max.ms"),
    ("f.csv", b"a,b\n1,2\n,4\n", {"key": "a", "config": {"cleanup.policy": "compact"}}, 3, "compacted"),
    ("f.csv", b"a,b\n1,2\n3," + b"x" * 3000 + b"\n", {"config": {"max.message.bytes": "2000"}}, 3, "max.message.bytes"),
    ("f.jsonl", b'{"a":1}\n{"a":\n', {}, 2, "invalid JSON"),
    ("f.jsonl", b'{"a":1}\n[1]\n', {}, 2, "array, expected an object"),
    ("f.jsonl", b'{"a":NaN}\n', {}, 1, "NaN is not a JSON"),
    ("f.jsonl", b"[" * 100_000 + b"\n", {}, 1, "JSON"),
    ("f.json", b'[{"a":1}]', {}, 1, "one object a line"),
    ("f.jsonl", b'{"t":5}\n{"a":1}\n', {"timestamp": "t"}, 2, "no 't'"),
    ("f.jsonl", b'{"a":1}\n{"a":"\xc3"}\n', {}, 2, "UTF-8"),
    ("f.csv.gz", gzip.compress(b"a,b\n1,2\n", mtime=0)[:-9], {}, 1, "damaged or incomplete"),
]


@pytest.mark.parametrize(("name", "content", "options", "line", "expected"), BAD)
def test_a_bad_row_raises_with_file_and_line_and_nothing_is_appended(
    name: str, content: bytes, options: dict[str, Any], line: int, expected: str, tmp_path: Path
) -> None:
    path = _file(tmp_path, name, content)
    with pytest.raises(RowError, match=expected) as caught:
        import_file(path, tmp_path / "data", "t", **options)
    assert (caught.value.path, caught.value.line) == (str(path), line)
    assert str(caught.value).startswith(f"{path}, line {line}: ")
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(("name", "content", "options", "line", "expected"), BAD)
def test_an_existing_topic_stays_unchanged_on_an_error(
    name: str, content: bytes, options: dict[str, Any], line: int, expected: str, tmp_path: Path
) -> None:
    with klog.open(tmp_path / "data", create=True) as logs:
        logs.create_topic("t", config=options.get("config"))
        logs.append("t", [(b"k", b"before")])
    before = _digests(tmp_path / "data")
    with pytest.raises(RowError, match=expected):
        import_file(_file(tmp_path, name, content), tmp_path / "data", "t", **options)
    assert _digests(tmp_path / "data") == before
    with pytest.raises(RowError, match=expected):
        import_file(_file(tmp_path, name, content), tmp_path / "data", "new", **options)
    with klog.open(tmp_path / "data", read_only=True) as logs:
        assert list(logs.topics()) == ["t"]


def test_a_missing_column_raises_with_the_nearest_name(tmp_path: Path) -> None:
    path = _file(tmp_path, "f.csv", CSV)
    for options in ({"key": "nmae"}, {"timestamp": "nmae"}):
        with pytest.raises(UnknownColumn, match=r"no column 'nmae'; did you mean 'name'\?.*id, name, price, when"):
            import_file(path, tmp_path / "data", "t", **options)
    with pytest.raises(UnknownColumn, match="did you mean 'alpha'"):
        import_file(_file(tmp_path, "f.jsonl", '{"alpha":1}\n{"beta":1}\n'), tmp_path / "data", "t", key="alhpa")
    assert not (tmp_path / "data").exists()


def test_invalid_settings_raise_before_anything_is_created(tmp_path: Path) -> None:
    path, data = _file(tmp_path, "f.csv", CSV), tmp_path / "data"
    with pytest.raises(InvalidConfig, match=r"did you mean segment\.bytes"):
        import_file(path, data, "t", config={"segment.byts": "5"})
    with pytest.raises(InvalidTopic):
        import_file(path, data, "a/b")
    with pytest.raises(UnsupportedCompression):
        import_file(path, data, "t", compression="lz5")
    with pytest.raises(UnknownFormat):
        import_file(path, data, "t", form="xlsx")
    with pytest.raises(UnknownFormat, match="neither CSV"):
        import_file(_file(tmp_path, "x", b"\0\1\2"), data, "t")
    assert not data.exists()
    import_file(path, data, "t")
    with pytest.raises(InvalidConfig, match="exists with 1 partitions"):
        import_file(path, data, "t", partitions=2)
    with pytest.raises(InvalidConfig, match=r"retention\.ms=-1"):
        import_file(path, data, "t", config={"retention.ms": "7"})
    assert import_file(path, data, "t", partitions=1, config={"retention.ms": "-1"}).partitions == {0: (3, 6)}


def test_an_endless_line_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_module, "LINE_BYTES_MAX", 1 << 20)
    with pytest.raises(RowError, match="a line longer than 1 MiB"):
        import_file(_file(tmp_path, "f.jsonl", b"x" * (3 << 20)), tmp_path / "data", "t")


def test_a_file_that_changes_between_the_passes_raises(tmp_path: Path) -> None:
    path = _file(tmp_path, "f.csv", CSV)

    def meddle(event: klog.progress.Event) -> None:
        if event.stage == "check" and event.done == event.total:
            path.write_text(CSV + "4,x\n")

    with pytest.raises(klog.KlogError, match="changed while it was being imported") as caught:
        import_file(path, tmp_path / "data", "t", progress=meddle)
    assert caught.value.__notes__ == ["0 of 3 records were appended to t before that"]


def test_keys_are_partitioned_as_by_kafkas_producer(tmp_path: Path) -> None:
    text = "k\n" + "".join(f"key{i % 7}\n" for i in range(700))
    result = import_file(_file(tmp_path, "f.csv", text), tmp_path / "data", "t", key="k", partitions=4)
    assert sum(stop - start for start, stop in result.partitions.values()) == 700
    with klog.open(tmp_path / "data", read_only=True) as logs:
        seen: dict[bytes, set[int]] = {}
        for number in logs.topics()["t"]:
            for record in logs.log("t", number).read():
                seen.setdefault(record.key, set()).add(number)
    assert len(seen) == 7
    assert all(len(numbers) == 1 for numbers in seen.values())


def test_progress_runs_over_both_passes_in_bytes(tmp_path: Path) -> None:
    path = _file(tmp_path, "f.csv", "a\n" + "1\n" * 12_000)
    events: list[klog.progress.Event] = []
    import_file(path, tmp_path / "data", "t", progress=events.append)
    for stage in ("check", "append"):
        mine = [event for event in events if event.stage == stage]
        assert mine[-1].done == mine[-1].total == path.stat().st_size
        assert [event.done for event in mine] == sorted(event.done for event in mine)
    assert [event.stage for event in events] == sorted((event.stage for event in events), reverse=True)


def test_an_empty_file_creates_an_empty_topic(tmp_path: Path) -> None:
    assert import_file(_file(tmp_path, "f.csv", "a,b\n"), tmp_path / "data", "t").records == 0
    assert _records(tmp_path / "data") == []


def test_without_a_time_column_records_get_the_time_of_the_append(tmp_path: Path) -> None:
    clock = ManualClock(1_700_000_000_123)
    import_file(_file(tmp_path, "f.csv", CSV), tmp_path / "data", "t", clock=clock)
    assert {record.timestamp for record in _records(tmp_path / "data")} == {1_700_000_000_123}


def test_a_log_manager_can_be_passed(tmp_path: Path) -> None:
    with klog.open(tmp_path / "data", create=True) as logs:
        assert import_file(_file(tmp_path, "f.csv", CSV), logs, "t").records == 3
        assert logs.log("t").log_end_offset == 3
