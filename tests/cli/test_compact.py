"""klog compact: output, effects and errors."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import klog
from klog.cleaner import read_audit
from klog.manager import by_hand
from klog.progress import Event
from tests.cli.test_process import _environment
from tests.cli.test_verbs import ok, ok_json, run
from tests.support.terminal import answered

COMPACTED = {"cleanup.policy": "compact"}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    with klog.open(tmp_path / "data", create=True) as logs:
        logs.create_topic("state", partitions=2, config=COMPACTED)
        logs.create_topic("plain")
        logs.append("state", [(b"k%d" % (n % 5), b"v" * 50) for n in range(100)])
        logs.append("plain", [(b"k1", b"1"), (b"\xff", b"2"), (None, b"3")])
    return tmp_path / "data"


def files(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def records(data: Path, topic: str) -> list[tuple[bytes | None, bytes | None]]:
    with klog.open(data, read_only=True) as logs:
        return [(record.key, record.value) for record in logs.read(topic)]


def test_a_dry_run_changes_nothing_and_reports_what_a_run_does(data: Path) -> None:
    before = files(data)
    printed = ok_json("compact", data, "--dry-run", "--top", 3)
    assert files(data) == before
    assert [entry["records"] for entry in printed["wasted"]] == [19] * 3
    assert {entry["key"] for entry in printed["wasted"]} < {f"k{n}" for n in range(5)}
    done = ok_json("compact", data)
    assert (printed["bytes_before"], printed["bytes_after"]) == (done["bytes_before"], done["bytes_after"])
    for was, is_ in zip(printed["partitions"], done["partitions"], strict=True):
        assert was["records_after"] == is_["records_after"]
    assert "wasted" not in done
    assert sorted(key for key, _ in records(data, "state")) == [b"k0", b"k1", b"k2", b"k3", b"k4"]
    assert len(records(data, "plain")) == 3
    assert klog.verify(data).problems == []


def test_text_output(data: Path) -> None:
    printed = ok("compact", data, "--dry-run")
    assert "95 records would be removed" in printed
    assert "KEYS THAT WASTE MOST" in printed
    assert "95 records removed" in ok("compact", data)
    assert "0 records removed" in ok("compact", data)
    with klog.open(data) as logs:
        logs.append("state", [(b"k1", b"v")])
    assert "B from offset" in ok("compact", data, "--no-roll")


def test_a_blank_key_is_shown(data: Path) -> None:
    with klog.open(data) as logs:
        logs.append("state", [(key, b"v" * 99) for key in (b"", b" ", b'""') for _ in range(9)])
    printed = ok("compact", data, "--dry-run")
    assert {line.split()[0] for line in printed.splitlines() if line.strip()} >= {'""', "hex:20", "hex:2222"}
    assert {entry["key"] for entry in ok_json("compact", data, "--dry-run")["wasted"]} >= {"", " ", '""'}


def test_without_a_roll_the_active_segment_is_named(data: Path) -> None:
    printed = ok_json("compact", data, "--no-roll")
    assert {entry["held"][0]["reason"] for entry in printed["partitions"]} == {"the active segment"}
    assert len(records(data, "state")) == 100


def test_a_topic_without_compact_policy_is_refused(data: Path, tmp_path: Path) -> None:
    refused = run("compact", data, "--topic", "plain")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "--config cleanup.policy=compact" in refused.stderr
    assert run("compact", data, "--topic", "nothere").exit_code == 1
    assert run("compact", data, "--config", "cleanup.policy=compact").exit_code == 2
    assert run("compact", data, "--topic", "state", "--config", "cleanup.policy=delete").exit_code == 2
    assert run("compact", data, "--topic", "state", "--config", "nosuch.key=1").exit_code == 2
    assert len(records(data, "plain")) == 3
    ok("compact", data, "--topic", "plain", "--config", "cleanup.policy=compact")
    assert records(data, "plain") == [(b"k1", b"1"), (b"\xff", b"2")]
    with klog.open(data) as logs:
        assert not logs.topic_config("plain").compacts, "stated for one run"
    empty = tmp_path / "empty"
    empty.mkdir()
    assert run("compact", empty).exit_code == 1
    assert list(empty.iterdir()) == []
    with klog.open(tmp_path / "none", create=True) as logs:
        logs.create_topic("t")
    assert "nothing to do" in ok("compact", tmp_path / "none")


def test_a_brokers_directory_needs_an_explicit_policy(tmp_path: Path) -> None:
    data = Path(shutil.copytree(Path(__file__).parents[1] / "golden" / "compacted" / "logdir", tmp_path / "data"))
    refused = run("compact", data)
    assert refused.exit_code == 2
    assert "--topic T --config cleanup.policy=compact" in refused.stderr
    printed = ok_json("compact", data, "--purge-key", "no such key")
    assert all(entry["records_removed"] == 0 for entry in printed["partitions"])


def test_a_single_partition_directory(data: Path, tmp_path: Path) -> None:
    printed = ok_json("compact", data / "state-1")
    assert [(entry["topic"], entry["partition"]) for entry in printed["partitions"]] == [("state", 1)]
    alone = tmp_path / "elsewhere" / "state-0"
    shutil.copytree(data / "state-0", alone)
    assert run("compact", alone).exit_code == 2
    assert run("compact", alone, "--topic", "other", "--config", "cleanup.policy=compact").exit_code == 1
    ok("compact", alone, "--topic", "state", "--config", "cleanup.policy=compact")
    ok("compact", alone, "--purge-key", "k0")
    assert len(read_audit(alone.parent)) > 0


def test_a_key_is_purged_from_every_topic(data: Path) -> None:
    before = files(data)
    printed = ok_json("compact", data, "--purge-key", "k1", "--dry-run")
    assert files(data) == before
    done = ok_json("compact", data, "--purge-key", "k1")
    gone = [entry["records_removed"] for entry in done["partitions"]]
    assert (sum(gone), gone) == (21, [entry["records_removed"] for entry in printed["partitions"]])
    assert [key for topic in ("state", "plain") for key, _ in records(data, topic) if key == b"k1"] == []
    assert "1 record removed, 1 partition searched" in ok("compact", data, "--purge-key", "hex:ff", "--topic", "plain")
    assert records(data, "plain") == [(None, b"3")]
    assert [line["outcome"] for line in read_audit(data)].count("done") == 4
    assert klog.verify(data).problems == []
    assert '"outcome":"done"' in ok("dump", data / "klog-audit.jsonl")
    for bad in ("hex:0", "hex:xy"):
        assert run("compact", data, "--purge-key", bad).exit_code == 2
    assert run("compact", data, "--purge-key", "k", "--topic", "state", "--config", "a=b").exit_code == 2


def test_records_that_cannot_be_purged_are_reported(data: Path) -> None:
    printed = ok("compact", data, "--purge-key", "k1", "--topic", "plain", "--no-roll")
    assert "plain-0: 1 record of the key left, from offset 0 on" in printed


@pytest.mark.parametrize("purge", [False, True])
def test_damage_in_one_partition_does_not_stop_the_others(data: Path, purge: bool) -> None:
    with klog.open(data) as logs:
        for partition in (0, 1):
            logs.log("state", partition).roll()
        path = Path(logs.log("state", 1).segments[0].path)
        key = next(iter(logs.log("state", 0).read())).key
    damaged = bytearray(path.read_bytes())
    damaged[80] ^= 1
    path.write_bytes(damaged)
    result = run("compact", data, "--topic", "state", *(["--purge-key", key.decode()] if purge else []), "--json")
    assert result.exit_code == 3
    good, bad = json.loads(result.stdout)["partitions"]
    assert good["problem"] is None
    assert good["bytes_after"] < good["bytes_before"]
    assert (bad["problem"]["path"], bad["problem"]["position"], bad["problem"]["offset"]) == (str(path), 0, 0)
    assert "state-1: the checksum" in result.stderr
    assert path.read_bytes() == damaged


def test_a_locked_directory_is_exit_code_4_except_for_a_dry_run(data: Path) -> None:
    with klog.open(data) as logs:
        logs.append("state", [(b"k", b"v")])
        for more in ((), ("--purge-key", "k")):
            result = run("compact", data, *more)
            assert (result.exit_code, result.stdout) == (4, "")
        assert "101" in str(
            sum(entry["records_before"] for entry in ok_json("compact", data, "--dry-run")["partitions"])
        )


@pytest.mark.parametrize("purge", [(), ("--purge-key", "k1")])
def test_a_terminal_is_asked_before_records_are_removed(data: Path, purge: tuple[str, ...]) -> None:
    """A pipe or a script is not asked: the other tests of this file."""
    before = files(data)

    def asked(answer: str, *more: str) -> tuple[int, str]:
        code, _, shown = answered(answer, "compact", data, *purge, *more)
        return code, shown

    code, text = asked("n\n")
    assert (code, files(data)) == (1, before)
    assert f"from {data}, for good? [y/N]" in text and "nothing was changed; --dry-run shows" in text
    code, text = asked("\n", "--topic", "state")
    assert (code, files(data)) == (1, before) and f"from topic state of {data}, for good?" in text
    code, printed, text = answered("y\n", "compact", data, *purge, "--json")
    assert (code, files(data)) == (2, before) and "for good" not in text and "add --yes, or --dry-run" in text
    assert "--yes" in json.loads(printed)["error"]["message"]
    code, text = asked("", "--dry-run")
    assert (code, files(data)) == (0, before) and "for good" not in text
    code, text = asked("y\n")
    assert (code, "for good" in text) == (0, True) and files(data) != before
    code, text = asked("", "--yes")
    assert (code, "for good" in text) == (0, False)


def test_progress_goes_from_0_to_100_percent_once(data: Path) -> None:
    for work in (
        by_hand.compact_directory,
        lambda path, progress: by_hand.purge_directory(path, b"k", progress=progress),
    ):
        events: list[Event] = []
        work(data, progress=events.append)
        assert [event.done for event in events] == sorted(event.done for event in events)
        assert (events[0].done, events[-1].done) == (0, events[-1].total)
        assert {event.unit for event in events} == {"bytes"}


def test_rate_and_time_left_without_rich(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from klog.cli import output

    bar = output._PlainProgress()
    now = [100.0]
    bar._now = lambda: now[0]  # type: ignore[method-assign]
    bar(Event("compact", 0, 400 << 20, "bytes", "t-0"))
    now[0] = 102.0
    bar(Event("compact", 100 << 20, 400 << 20, "bytes", "t-0"))
    drawn = capsys.readouterr().err
    assert "compact 25% 100.0 MiB 50.0 MiB/s 0:00:06 left t-0" in drawn


def test_ctrl_c_leaves_a_valid_log(tmp_path: Path) -> None:
    """Exit code 130, and the directory holds the old log or the new one."""
    data = tmp_path / "data"
    with klog.open(data, create=True) as logs:
        logs.create_topic("state", config={**COMPACTED, "segment.bytes": 1 << 20})
        logs.append("state", [(b"k%d" % (n % 2000), b"v" * 100) for n in range(20_000)])
    code = (
        "import os, signal, sys\nfrom klog.manager import by_hand\nfrom klog.cli import main\n"
        "report = by_hand._Overall._report\n"
        "def reported(self, done):\n"
        "    report(self, done)\n    done > self._total * 0.7 and os.kill(os.getpid(), signal.SIGINT)\n"
        "by_hand._Overall._report = reported\n"
        "import klog.cli.compact as it, contextlib\n"
        "it.progress_bar = lambda wanted: contextlib.nullcontext(lambda event: None)\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "sys.argv = ['klog', 'compact', sys.argv[1]]\nmain()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(data)],
        capture_output=True,
        text=True,
        env=_environment(),
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "\nklog: interrupted\n")
    assert klog.verify(data).problems == []
    assert dict(records(data, "state")).keys() == {b"k%d" % n for n in range(2000)}
    assert len(records(data, "state")) > 2000
    ok("compact", data)
    assert len(records(data, "state")) == 2000
