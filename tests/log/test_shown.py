"""The representations of records, readers, logs and managers: reprs of bounded length, and HTML for notebooks, which
contains no markup from the data and never raises."""

from __future__ import annotations

from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import klog
from klog.clock import ManualClock
from klog.health import Finding, HealthReport
from klog.log.retain.cleaning_stats import WastedKey
from klog.record import encode
from klog.shown import plain, short
from tests.support.batches import marker

HOSTILE = b"<script>alert(1)</script>\x00&\"'"
LONG = b"x" * 1_000_000


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[klog.LogManager]:
    with klog.open(tmp_path / "<b>data", create=True, clock=ManualClock(1_700_000_000_000)) as logs:
        logs.create_topic("events", partitions=40, config={"segment.bytes": 1200, "max.message.bytes": 1 << 21})
        logs.create_topic("others")
        yield logs


class Tags(HTMLParser):
    """Collects the tags and the texts of some HTML."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.add(tag)
        assert {name for name, _ in attrs} <= {"style"}

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def texts(shown: Any) -> list[str]:
    found = Tags(shown._repr_html_())
    assert found.tags <= {"p", "b", "table", "thead", "tbody", "tr", "th", "td"}
    return found.texts


def test_long_values_are_cut_in_reprs_and_their_length_is_named() -> None:
    record = klog.Record(LONG, LONG, 5, [(f"{'n' * 99}{n}", LONG) for n in range(20)])
    assert "(1,000,000 bytes)" in repr(record) and "(100 characters)" in repr(record) and "20 in all" in repr(record)
    assert len(repr(record)) < 1500
    assert short(b"x" * 60) == repr(b"x" * 60) and short(None) == "None"


def test_reprs_of_many_parts_are_short(logs: klog.LogManager) -> None:
    log = logs.log("events")
    log.append([(b"k" * 99, b"v" * 900) for _ in range(100)])
    stats = klog.CompactionStats(0, 1, 1, 1, 1, 0.5, wasted=(WastedKey(LONG, 1, 2),))
    for each in (logs.read("events"), logs.reader("events", "me"), logs.read("events").batch_headers(), stats):
        assert len(repr(each)) < 600, repr(each)
    assert "40 in all" in repr(logs.read("events")) and "40 in all" in repr(logs.reader("events", "me"))
    assert len(repr(log.page_cache())) < 3000
    assert repr(log.tail()) == "<LogTail events-0 at 100 high_watermark>"
    assert "events-0[5:100]" in repr(log.fetch_range(5, 100))


def test_reprs_and_html_of_what_is_closed_or_gone(logs: klog.LogManager) -> None:
    """The repr of a manager lists no directory: that can fail."""
    log = logs.log("events")
    log.append([(None, b"v")])
    reader = log.read()
    named = logs.reader("events", "me")
    path = Path(logs.path)
    path.rename(path.with_name("moved"))
    assert repr(logs) == f"<LogManager {path} open>"
    assert any(text.startswith("FileNotFoundError: ") for text in texts(logs))
    path.with_name("moved").rename(path)
    logs.close()
    for each in (logs, log, reader, named):
        assert repr(each).startswith("<")
    for shown in (logs, log, reader):
        assert "closed" in texts(shown)[0] or "closed: open it again" in texts(shown)[-1]


def test_html_of_a_manager_lists_topics_and_loads_nothing(logs: klog.LogManager) -> None:
    logs.log("events", 3).append([(None, b"v")] * 7)
    shown = texts(logs)
    assert shown[0] == f"<LogManager {logs.path} open>"
    assert shown[shown.index("events") :][:5] == ["events", "40", f"{logs.log('events', 3).size} B", "1", "7"]
    assert shown[shown.index("others") :][:5] == ["others", "1", "0 B", "0", "-"]
    assert texts(logs) == shown


def test_html_of_a_log_has_its_offsets_times_and_newest_segments(logs: klog.LogManager) -> None:
    log = logs.log("events")
    for n in range(50):
        log.append([(b"k", b"v" * 900, 1_700_000_000_000 + n)])
    log.delete_records(2)
    shown = texts(log)
    assert shown[shown.index("log start offset") + 1] == "2"
    assert shown[shown.index("first record") + 1] == "2023-11-14T22:13:20.002Z"
    assert shown[shown.index("newest record") + 1] == "2023-11-14T22:13:20.049Z"
    assert shown.count(f"{log.segments[0].size} B") == 10 and shown[-1] == "... and 40 older segments"


def test_html_of_a_reader_shows_the_first_records_as_text(logs: klog.LogManager) -> None:
    log = logs.log("events", 1)
    log.append([(HOSTILE, "é<".encode(), 0, [("<i>", HOSTILE)]), (b"\xff", None), (None, b"x" * 70)])
    log.append([(None, b"%d" % n) for n in range(100)])
    shown = texts(logs.read("events"))
    assert shown.count(repr(HOSTILE)) == 1 and f"<i>: {HOSTILE!r}" in shown and "é<" in shown and r"b'\xff'" in shown
    assert f"{'x' * 60}... (70 bytes)" in shown and "1970-01-01T00:00:00.000Z" in shown
    assert shown.count("events-1") == 10 and shown[-1] == "... and more records"
    assert texts(logs.read("others"))[-1] == "no records"


def test_html_of_a_reader_reads_a_bounded_part(logs: klog.LogManager) -> None:
    """Its first records may be far away, after many records of aborted transactions."""
    log = logs.log("others")
    for n in range(40):
        log.append_batches(
            encode([(None, LONG[:50_000])], producer_id=1, producer_epoch=0, base_sequence=n, is_transactional=True)
        )
    log.append_batches(marker(1, 0, "abort", base_offset=40), origin="replication")
    log.append([(None, b"behind")])
    reader = log.read(isolation="read_committed")
    assert [record.value for record in reader] == [b"behind"]
    assert texts(reader)[-1].startswith("... records of the first 1.")
    assert texts(logs.read("events"))[-1] == "no records"


def test_html_of_damage_names_it_below_the_records_before_it(logs: klog.LogManager) -> None:
    log = logs.log("others")
    for n in range(3):
        log.append([(b"k", b"value-%d" % n)])
    path = Path(log.segments[0].path)
    content = bytearray(path.read_bytes())
    content[content.index(b"value-1")] ^= 1
    path.write_bytes(content)
    shown = texts(log.read())
    assert "value-0" in shown and shown[-1].startswith("CorruptBatch: ") and str(path) in shown[-1]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (b"", ""),
        (b"\x1b[31m", r"b'\x1b[31m'"),
        ("é".encode() * 60, "é" * 60),
        ("é".encode() * 61, f"{'é' * 60}... (122 bytes)"),
        ("€".encode() * 200, f"{'€' * 60}... (600 bytes)"),
        (b"\xe2\x82", r"b'\xe2\x82'"),
        ("\u202etxt".encode(), r"b'\xe2\x80\xaetxt'"),
    ],
)
def test_a_value_in_a_cell(value: bytes | None, text: str) -> None:
    assert plain(value) == text


def test_next_goes_on_with_one_iteration(logs: klog.LogManager) -> None:
    log = logs.log("events")
    log.append([(b"k", b"%d" % n) for n in range(3)])
    reader, tail = log.read(), log.tail("earliest", timeout=0)
    for each in (reader, tail):
        assert [next(each).offset, next(each).offset] == [0, 1]
        assert next(each).offset == 2 and next(each, None) is None
    assert [record.offset for record in reader] == [0, 1, 2]


def test_html_of_readers_reports_and_brokers(
    logs: klog.LogManager, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    log = logs.log("events")
    log.append([(b"<k>", b"v%d" % n) for n in range(5)])
    reader = logs.reader("events", "me", partition=0)
    next(iter(reader))
    reader.commit()
    assert texts(reader)[-4:] == ["0", "1", "1", "4"]
    latest = log.latest_by_key()
    assert texts(latest)[-4:-2] == ["<k>", "4"] and texts(latest)[-1] == "v4"
    monkeypatch.setattr("klog.log.read.latest._SHOWN_BYTES_MAX", 10)
    assert "not read yet" in texts(log.latest_by_key())[-1] and texts(latest)[-1] == "v4"
    report = HealthReport([Finding("warning", "disk", "d", "full", 1, 2, "empty it")], {"memory": "no /proc"})
    assert texts(report)[0] == "health: warning" and texts(report)[-1] == "memory: not checked: no /proc"
    assert texts(report)[-6:-1] == ["warning", "disk", "d", "full", "empty it"]
    broker = klog.Broker(tmp_path / "served", listeners=["127.0.0.1:0"])
    assert texts(broker)[-1].startswith("RuntimeError: the broker is stopped")
    with broker:
        broker.logs.create_topic("orders")
        assert str(broker.port) in "".join(texts(broker)).replace(",", "") and "orders" in texts(broker)
