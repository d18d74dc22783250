"""One writer at a time, across forks, races and crashes; a clean-shutdown marker only where every stop was clean."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import klog
from klog import Log
from klog.disk import DirectoryLock
from klog.errors import AlreadyLocked, CorruptLog, InconsistentTopicId
from klog.log import closing
from klog.log.directory import checkpoint
from klog.log.opening import OpenLog
from klog.log.state._health import Health
from klog.log.state._log_core import LogCore
from tests.support.batches import marker, transactional
from tests.support.logs import tree
from tests.support.patience import PATIENCE, until
from tests.support.powerless import powerless

MARKER = ".kafka_cleanshutdown"


def two_topics(path: Path) -> None:
    with klog.open(path, create=True) as logs:
        for topic in ("a", "b"):
            logs.create_topic(topic)
            logs.append(topic, [(b"k", b"v")])


def test_a_writer_that_crashes_beside_another_prevents_the_marker(tmp_path: Path) -> None:
    two_topics(tmp_path)
    with Log.open(tmp_path / "a-0") as log:
        assert log.recovery.clean_shutdown
        code = "import klog, os, sys; klog.Log.open(sys.argv[1]).append([(b'k', b'v')]); os.kill(os.getpid(), 9)"
        killed = subprocess.run([sys.executable, "-c", code, str(tmp_path / "b-0")], check=False)
        assert killed.returncode == -signal.SIGKILL
        log.append([(b"k", b"v")])
    assert not (tmp_path / MARKER).exists()
    with Log.open(tmp_path / "b-0") as log:
        assert not log.recovery.clean_shutdown and log.log_end_offset == 2


def test_a_single_writer_restores_the_marker(tmp_path: Path) -> None:
    two_topics(tmp_path)
    for _ in range(2):
        with Log.open(tmp_path / "a-0") as log:
            assert log.recovery.clean_shutdown and not (tmp_path / MARKER).exists()
        assert (tmp_path / MARKER).exists()
    assert not list(tmp_path.glob("*.aside"))


def test_a_single_writer_that_crashed_leaves_no_marker(tmp_path: Path) -> None:
    two_topics(tmp_path)
    code = "import klog, os, sys; klog.Log.open(sys.argv[1]).append([(b'k', b'v')]); os.kill(os.getpid(), 9)"
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "b-0")], check=False)
    with Log.open(tmp_path / "a-0") as log:
        assert not log.recovery.clean_shutdown
    assert not (tmp_path / MARKER).exists() and not list(tmp_path.glob("*.aside"))


def test_an_open_that_is_refused_leaves_the_marker(tmp_path: Path) -> None:
    """The others of the log.dir need no recovery, and a broker finds its epoch there."""
    two_topics(tmp_path)
    before = (tmp_path / MARKER).read_bytes()
    os.truncate(tmp_path / "a-0" / f"{0:020d}.log", 60)
    with pytest.raises(CorruptLog, match="Nothing was changed"):
        Log.open(tmp_path / "a-0")
    assert (tmp_path / MARKER).read_bytes() == before
    with Log.open(tmp_path / "b-0") as log:
        assert log.recovery.clean_shutdown


def test_an_open_that_is_refused_beside_another_writer_leaves_no_marker(tmp_path: Path) -> None:
    two_topics(tmp_path)
    os.truncate(tmp_path / "a-0" / f"{0:020d}.log", 60)
    with Log.open(tmp_path / "b-0") as log:
        log.append([(b"k", b"w")])
        with pytest.raises(CorruptLog):
            Log.open(tmp_path / "a-0")
        assert not (tmp_path / MARKER).exists()


def test_a_deletion_leaves_the_marker_for_the_others(tmp_path: Path) -> None:
    two_topics(tmp_path)
    Log.open(tmp_path / "a-0").delete()
    with Log.open(tmp_path / "b-0") as log:
        assert log.recovery.clean_shutdown


def test_a_forked_child_holds_no_lock_of_its_parent(tmp_path: Path) -> None:
    log = Log.open(tmp_path / "a-0")
    child = os.fork()
    if child == 0:
        signal.pause()
        os._exit(0)
    try:
        with pytest.raises(AlreadyLocked):
            Log.open(tmp_path / "a-0")
        log.close()
        Log.open(tmp_path / "a-0").close()
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_a_forked_child_that_closes_leaves_the_lock_to_its_parent(tmp_path: Path) -> None:
    with Log.open(tmp_path / "a-0") as log:
        child = os.fork()
        if child == 0:
            log.close()
            os._exit(0)
        os.waitpid(child, 0)
        with pytest.raises(AlreadyLocked):
            Log.open(tmp_path / "a-0")
        log.append([(b"k", b"v")])


def test_a_lock_file_that_its_holder_unlinks_between_open_and_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, real = DirectoryLock(str(tmp_path)), os.open

    def between(path: Any, *arguments: Any, **more: Any) -> int:
        descriptor = real(path, *arguments, **more)
        if str(path).endswith(".lock"):
            first.release()
        return descriptor

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", between)
        second = DirectoryLock(str(tmp_path))
    with pytest.raises(AlreadyLocked):
        DirectoryLock(str(tmp_path))
    second.release()


def test_writers_of_one_directory_that_close_together_keep_all_checkpoints(tmp_path: Path) -> None:
    logs = [Log.open(tmp_path / f"t-{number}") for number in range(8)]
    for log in logs:
        log.append([(b"k", b"v")] * 5)
    problems: list[BaseException] = []

    def close(log: Log) -> None:
        try:
            log.close()
        except BaseException as problem:
            problems.append(problem)

    threads = [threading.Thread(target=close, args=(log,)) for log in logs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems
    points = checkpoint.read_offsets(str(tmp_path / checkpoint.RECOVERY_POINT))
    assert points == {("t", number): 5 for number in range(8)}


def test_a_writer_leaves_the_log_starts_of_other_partitions_alone(tmp_path: Path) -> None:
    two_topics(tmp_path)
    starts = tmp_path / checkpoint.LOG_START
    starts.write_bytes(b"0\n1\na 0 1\n")
    with Log.open(tmp_path / "b-0") as log:
        log.append([(b"k", b"v")])
    assert starts.read_bytes() == b"0\n1\na 0 1\n"
    with Log.open(tmp_path / "a-0") as log:
        assert log.log_start_offset == 1 and log.count() == 0
    assert starts.read_bytes() == b"0\n1\na 0 1\n"


def test_closing_the_manager_beside_an_append_that_rolls(tmp_path: Path) -> None:
    """The append holds its log's lock and needs the manager's, to record the recovery point."""
    logs = klog.open(tmp_path, create=True)
    logs.create_topic("t")
    log = logs.log("t")
    log.append([(b"k", b"v")])
    rolling, closing = threading.Event(), threading.Event()
    noted = log._core.directory.on_flush

    def note(log: Log) -> None:
        rolling.set()
        closing.wait(PATIENCE)
        noted(log)

    log._core.directory.on_flush = note
    roller = threading.Thread(target=log.roll, daemon=True)
    roller.start()
    assert rolling.wait(PATIENCE)
    closer = threading.Thread(target=logs.close, daemon=True)
    closer.start()
    until(lambda: logs._closing is not None)
    closer.join(0.1)  # then it waits for the log's lock
    assert closer.is_alive()
    log._core.directory.on_flush = noted
    closing.set()
    for thread in (closer, roller):
        thread.join(PATIENCE)
        assert not thread.is_alive()
    assert (tmp_path / MARKER).exists()


def test_an_interrupt_while_a_manager_closes_leaves_no_log_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    two_topics(tmp_path)
    logs = klog.open(tmp_path)
    opened = [logs.log("a"), logs.log("b")]
    with monkeypatch.context() as patch:

        def interrupt(log: LogCore) -> None:
            patch.undo()
            raise KeyboardInterrupt

        patch.setattr(closing, "_finish_locked", interrupt)
        with pytest.raises(KeyboardInterrupt):
            logs.close()
    assert all(log.closed for log in opened)
    assert not (tmp_path / MARKER).exists()


def test_a_close_that_is_interrupted_at_its_first_step_holds_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Log.open(tmp_path / "t-0")
    with monkeypatch.context() as patch:

        class Interrupting:
            def __init__(self, health: Health) -> None:
                self._health = health

            def __getattr__(self, name: str) -> Any:
                return getattr(self._health, name)

            def close(self) -> None:
                self._health.close()
                raise KeyboardInterrupt

        plain = vars(LogCore)["health"]
        patch.setattr(OpenLog, "health", property(lambda core: Interrupting(plain.__get__(core))), raising=False)
        with pytest.raises(KeyboardInterrupt):
            log.close()
    Log.open(tmp_path / "t-0").close()


def test_a_directory_of_another_topic_is_not_opened_under_this_name(tmp_path: Path) -> None:
    """A topic that was deleted and recreated, with a directory of the old one put back."""
    with klog.open(tmp_path / "d", create=True) as logs:
        logs.create_topic("t")
        logs.log("t").append([(b"k", b"v")])
    (tmp_path / "d" / "t-0" / "partition.metadata").write_text("version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw")
    for read_only in (False, True):
        with klog.open(tmp_path / "d", read_only=read_only) as logs, pytest.raises(InconsistentTopicId):
            logs.log("t")


def test_a_partition_needs_its_log_dir(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="create it first") as caught:
        klog.Log.open(tmp_path / "missing" / "t-0")
    assert caught.value.filename == str(tmp_path / "missing")


@pytest.mark.parametrize("text", [b'{"version":0,"brokerEpoch":41}', b'{"version":0,"brokerEpoch":41,"more":[1]}'])
def test_the_epoch_in_a_brokers_marker_outlives_klog(tmp_path: Path, text: bytes) -> None:
    """A broker that finds another epoch there is treated as one that lost data: its partitions wait for an unclean
    election."""
    two_topics(tmp_path)
    (tmp_path / MARKER).write_bytes(text)
    with klog.open(tmp_path) as logs:
        logs.append("a", [(b"k", b"v")])
    assert (tmp_path / MARKER).read_bytes() == text
    with Log.open(tmp_path / "a-0") as log:
        log.append([(b"k", b"v")])
    assert (tmp_path / MARKER).read_bytes() == text


@pytest.mark.parametrize("text", [b"", b"\xff", b"[]", b'{"version":0,"brokerEpoch":"x"}', b'{"version":0' * 9000])
def test_an_invalid_marker_is_replaced_by_a_valid_one(tmp_path: Path, text: bytes) -> None:
    two_topics(tmp_path)
    for stop in (lambda: klog.open(tmp_path).close(), lambda: Log.open(tmp_path / "a-0").close()):
        (tmp_path / MARKER).write_bytes(text)
        stop()
        assert (tmp_path / MARKER).read_bytes() == checkpoint.CLEAN_SHUTDOWN_TEXT


@pytest.mark.parametrize("mode", [0o555, 0o000])
@pytest.mark.parametrize("call", ["klog.open(d)", "klog.open(d, create=True)", "klog.Log.open(d + '/t-0')"])
def test_an_open_without_permission_names_the_next_step_and_changes_nothing(
    tmp_path: Path, call: str, mode: int
) -> None:
    """The clean-shutdown marker, which covers the other partitions too, stays."""
    directory = tmp_path / "data"
    with klog.open(directory, create=True):
        pass
    empty = directory / "t-0"
    empty.mkdir()
    closed = empty if "Log" in call else directory
    before = tree(directory)
    closed.chmod(mode)
    try:
        text = f"import klog, sys\nd = sys.argv[1]\ntry: {call}\nexcept PermissionError as error: print(error)"
        child = subprocess.run(
            [sys.executable, "-c", text, directory], capture_output=True, text=True, preexec_fn=powerless, timeout=PATIENCE,
            check=True,
        )  # fmt: skip
    finally:
        closed.chmod(0o755)
    assert "let this user write there" in child.stdout and str(closed) in child.stdout, child
    assert tree(directory) == before


def test_only_the_group_may_read_and_only_the_owner_write(tmp_path: Path) -> None:
    """Whatever the umask permits."""
    before = os.umask(0)
    try:
        with klog.open([tmp_path / "a", tmp_path / "b"], create=True) as logs:
            logs.create_topic("t", 2, {"cleanup.policy": "compact,delete", "segment.bytes": 2000})
            log = logs.log("t", 0)
            for number in range(30):
                log.append([(b"%d" % (number % 3), bytes(300))])
            log.append_batches(transactional(5, 0, 0, 1))
            log.append_batches(marker(5, 0, "abort"), origin="coordinator")
            log.compact(roll=True)
            with logs.reader("t", name="mine") as reader:
                next(iter(reader))
                reader.commit()
            logs.move("t", 1, tmp_path / ("b" if (tmp_path / "a" / "t-1").exists() else "a"))
    finally:
        os.umask(before)
    modes = {path: path.stat().st_mode & 0o777 for path in tmp_path.rglob("*")}
    assert len(modes) > 30
    assert {mode for path, mode in modes.items() if path.is_dir()} == {0o750}
    assert {mode for path, mode in modes.items() if path.is_file()} <= {0o640, 0o600}
