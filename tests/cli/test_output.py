"""Output that all verbs have in common: tables that fit a width, and errors as JSON."""

from __future__ import annotations

import contextlib
import json
import signal
import time
from pathlib import Path

import pytest

import klog
from klog.cli.output import fitted, json_list
from klog.cli.signals import ended_by_signals
from tests.cli.test_verbs import ok, ok_json, run
from tests.support.patience import PATIENCE

TOPIC = "a-topic-with-a-very-long-name-that-differs-at-the-end"
LINES = [
    ["TOPIC", "END", "SIZE", "TIME"],
    [f"{TOPIC}-1", "1234567890", "1.0 KiB", "2013-02-08T05:00:00.000Z"],
    [f"{TOPIC}-2", "5", "-", "2013-02-08T05:00:00.000Z"],
]


@pytest.mark.parametrize(
    ("width", "heads", "topic", "dropped"),
    [
        (200, "TOPIC END SIZE TIME", f"{TOPIC}-1", []),
        (79, "TOPIC END SIZE TIME", "a-topic-with-a-…ers-at-the-end-1", []),
        (78, "TOPIC END TIME", "a-topic-with-a-…ers-at-the-end-1", ["SIZE"]),
        (46, "TOPIC END", "a-topic-with-a-…ers-at-the-end-1", ["SIZE", "TIME"]),
        (20, "TOPIC END", "a-t…nd-1", ["SIZE", "TIME"]),
        (5, "TOPIC END", "a-t…nd-1", ["SIZE", "TIME"]),
    ],
)
def test_text_is_shortened_then_columns_go_and_numbers_stay(
    width: int, heads: str, topic: str, dropped: list[str]
) -> None:
    lines, right, gone = fitted(LINES, "-rrl", ("SIZE", "TIME"), width)
    assert (lines[0], gone, len(right)) == (heads.split(), dropped, len(heads.split()))
    assert [line[1] for line in lines[1:]] == ["1234567890", "5"]
    assert topic in lines[1][0] and lines[1][0] != lines[2][0]
    if width >= 20:
        assert sum(max(map(len, column)) for column in zip(*lines, strict=True)) + 2 * (len(lines[0]) - 1) <= width


def test_with_json_an_error_is_one_object_and_a_line_on_stderr(tmp_path: Path) -> None:
    with klog.open(tmp_path / "data", create=True) as logs:
        logs.create_topic("events")
        locked = run("compact", tmp_path / "data", "--topic", "events", "--config", "cleanup.policy=compact", "--json")
    for result, code, kind in (
        (locked, 4, "AlreadyLocked"),
        (run("cat", "--dir", tmp_path / "data", "--topic", "evnts", "--json"), 1, "UnknownTopicOrPartition"),
        (run("cat", "--dir", tmp_path / "data", "--json"), 2, "MissingParameter"),
        (run("ls", "--json", tmp_path / "missing"), 2, "BadParameter"),
        (run("imprt", "--json"), 2, "UsageError"),
        (run("config", "explain", "segmnt.ms", "--json"), 2, "InvalidConfig"),
        (run("verify", tmp_path, "--json"), 1, "FileNotFoundError"),
    ):
        error = json.loads(result.stdout)["error"]
        assert (result.exit_code, error["type"]) == (code, kind)
        assert list(error) == ["type", "message", "path", "position", "offset"]
        assert error["message"] in result.stderr
    assert error["path"] == str(tmp_path)
    assert run("ls", tmp_path / "missing").stdout == ""
    assert run("cat", "--dir", tmp_path / "data", "--topic", "evnts").stdout == ""


def test_json_that_has_begun_is_not_followed_by_another_object(tmp_path: Path) -> None:
    with klog.open(tmp_path / "data", create=True) as logs:
        logs.create_topic("events")
        logs.append("events", [(None, b"v")])
    result = run("cache", tmp_path / "data", "--plot", tmp_path / "missing" / "x.png", "--json")
    assert result.exit_code == 1 and "error" not in json.loads(result.stdout)


def test_config_explain_prints_type_unit_default_and_meaning() -> None:
    text = ok("config", "explain", "segment.ms")
    assert text.startswith("segment.ms: age at which a segment rolls\n")
    assert "604800000 (7 days)" in text and "long, milliseconds" in text and "log.roll.ms, log.roll.hours" in text
    shown = ok_json("config", "explain", "segment_bytes")
    assert (shown["name"], shown["unit"], shown["default"], shown["low"]) == ("segment.bytes", "bytes", 1 << 30, 14)
    hours = ok_json("config", "explain", "log.roll.hours")
    assert (hours["default"], hours["unit"], hours["topic_key"]) == (168, "hours", "segment.ms")
    assert ok_json("config", "explain", "log.cleaner.threads")["dynamic"] == "half..double"
    assert ok_json("config", "explain", "num.network.threads")["default"] == 1
    assert "kafka-configs.sh" in ok("config", "explain", "share.isolation.level")
    assert "did you mean group.max.size?" in run("config", "explain", "group.max.sise").stderr
    result = run("config", "explain", "message.format.version")
    assert result.exit_code == 2 and "Kafka 4.0 removed" in result.stderr


def test_every_key_can_be_explained() -> None:
    from klog.config import BROKER_KEYS, TOPIC_KEYS, explain

    for name in (*TOPIC_KEYS, *BROKER_KEYS):
        assert explain(name).name == name and explain(name.replace(".", "_")).name == name
        assert explain(name).meaning
        ok("config", "explain", name)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_list_that_a_signal_ends_is_valid_json_with_an_error(
    number: signal.Signals, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted() -> None:
        with ended_by_signals(), json_list({}, "records") as item:
            item("1")
            signal.raise_signal(number)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored if the suite runs in the background
    try:
        with pytest.raises((KeyboardInterrupt, SystemExit)):
            interrupted()
    finally:
        signal.signal(signal.SIGINT, before)
    found = json.loads(capsys.readouterr().out)
    assert (found["records"], found["error"]["message"]) == ([1], "interrupted")


@pytest.mark.parametrize(("number", "ends"), [(signal.SIGTERM, SystemExit), (signal.SIGINT, KeyboardInterrupt)])
def test_a_signal_in_a_destructor_ends_the_verb(number: signal.Signals, ends: type[BaseException]) -> None:
    class Destroyed:
        def __del__(self) -> None:
            signal.raise_signal(number)

    def work() -> None:
        with ended_by_signals():
            Destroyed()
            time.sleep(PATIENCE)
            raise AssertionError("the work went on to its end")

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(ends):
            work()
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_signal_decides_the_exit_code() -> None:
    """Python's rmtree() raises EBADF if an exception comes while it closes a directory."""

    def suppressed() -> None:
        with ended_by_signals(), contextlib.suppress(SystemExit):
            signal.raise_signal(signal.SIGTERM)

    def replaced() -> None:
        with ended_by_signals():
            try:
                signal.raise_signal(signal.SIGTERM)
            finally:
                raise OSError(9, "Bad file descriptor")

    for work in (suppressed, replaced):
        with pytest.raises(SystemExit, match="143"):
            work()
