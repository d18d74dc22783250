"""Test brokers leave no files, even if 8 processes use them at once and some are killed."""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from klog.protocol import ApiKey, messages
from klog.testing import TestBroker, place
from klog.testing.place import new_directory, remove_directory, remove_left
from tests.support.patience import PATIENCE
from tests.support.wire_client import WireClient

SUITE = """
import os, signal
import pytest

@pytest.mark.parametrize("number", range(3))
@pytest.mark.klog_broker(topics=["orders"], control=True)
def test_one(klog_broker, number):
    klog_broker.topic("orders").append([(b"k", b"v")])
    if number == 2 and os.environ["DIES"] == "1":
        print("DIES", klog_broker.directory, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    assert klog_broker.topic("orders").values() == [b"v"]
"""
# Runs pytest with a temporary directory of its own, so that the directories of other runs do not matter.
RUN = "from klog.testing import place; import pytest, sys; place._TMPFS = sys.argv[1]; sys.exit(pytest.main(sys.argv[2:]))"


@pytest.mark.deep
def test_eight_processes_leave_only_what_the_next_start_removes(tmp_path: Path) -> None:
    memory = tmp_path / "shm"
    memory.mkdir()
    (tmp_path / "test_it.py").write_text(SUITE)
    options = ["-q", "-s", "-p", "klog.testing.pytest_plugin", "-p", "no:cacheprovider", "test_it.py"]
    processes = [
        subprocess.Popen(
            [sys.executable, "-P", "-c", RUN, str(memory), *options],
            cwd=tmp_path,
            env={**os.environ, "DIES": str(number % 4 // 3), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(8)
    ]
    ended = [(process.communicate(timeout=PATIENCE)[0], process.returncode) for process in processes]
    assert [code for _, code in ended] == [0, 0, 0, -signal.SIGKILL] * 2
    died = {output.split("DIES ")[1].split()[0] for output, code in ended if code}
    left = {str(each / "log") for each in memory.iterdir()}
    assert left <= died  # a process that started after the death of another has removed its directory
    remove_left(str(memory))
    assert list(memory.iterdir()) == []


def test_only_directories_of_dead_processes_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(place, "_TMPFS", str(tmp_path))
    dead, other = tmp_path / "klog-test-dead" / "log", tmp_path / "other"
    dead.mkdir(parents=True)
    other.mkdir()
    (tmp_path / "klog-test-link").symlink_to(other)
    (tmp_path / "klog-test-file").write_text("")
    alive = new_directory()
    assert not dead.exists()
    assert os.path.isdir(alive) and other.is_dir() and (tmp_path / "klog-test-link").is_symlink()
    assert os.stat(alive).st_mode & 0o777 == os.stat(os.path.dirname(alive)).st_mode & 0o777 == 0o700
    remove_directory(alive)
    remove_directory(alive)
    assert not os.path.exists(os.path.dirname(alive))


EXITS = """
import os, sys
from klog.testing import TestBroker, place
place._TMPFS = sys.argv[1]
broker = TestBroker(topics=["orders"], record=sys.argv[2]).start()
broker.topic("orders").append([(b"k", b"v")])
child = os.fork()
if child == 0:
    sys.exit()
os.waitpid(child, 0)
print(os.listdir(sys.argv[1]))
"""


def test_a_process_removes_what_it_has_not_closed_when_it_exits(tmp_path: Path) -> None:
    """A forked child does not, nor does it write what is recorded: the broker is not its own."""
    made, record = tmp_path / "made", tmp_path / "requests"
    made.mkdir()
    done = subprocess.run([sys.executable, "-c", EXITS, made, record], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("['klog-test-"), done.stdout + done.stderr
    assert list(made.iterdir()) == []
    assert record.read_text() == '{"klog_requests":1}\n'


def test_a_restored_broker_keeps_its_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(place, "_TMPFS", str(tmp_path / "shm"))
    (tmp_path / "shm").mkdir()
    with TestBroker(topics=["orders"]) as b:
        b.snapshot(tmp_path / "s")
        b.restore(tmp_path / "s")
        remove_left(str(tmp_path / "shm"))
        b.topic("orders").append([(b"k", b"v")])
        assert b.restart().topic("orders").values() == [b"v"]
    assert list((tmp_path / "shm").iterdir()) == []


def test_too_much_for_memory_goes_to_a_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(place, "_TMPFS", str(tmp_path / "shm"))
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path / "disk"))
    (tmp_path / "shm").mkdir()
    (tmp_path / "disk").mkdir()
    path = new_directory(1 << 60)
    assert path.startswith(str(tmp_path / "disk"))
    remove_directory(path)


def test_a_broker_that_does_not_start_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(place, "_TMPFS", str(tmp_path))
    with TestBroker() as b:
        address = b.bootstrap_servers
        with pytest.raises(ValueError, match="brokers"):
            TestBroker(brokers=0)
        with pytest.raises(OSError, match="in use"), TestBroker(listeners=[address], control=True):
            pass
        with pytest.raises(FileNotFoundError):
            TestBroker(tls=True, copy_of=tmp_path / "missing")
        with pytest.raises(ValueError, match="listeners: PLAINTEXT"):
            TestBroker(tls=True, listeners=["PLAINTEXT://127.0.0.1:0"])
        assert len(list(tmp_path.iterdir())) == 1


def test_a_broker_whose_end_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(place, "_TMPFS", str(tmp_path))
    before = set(threading.enumerate())
    b = TestBroker(topics=["orders"], tls=True, control=True, record=tmp_path / "requests")
    with pytest.raises(FileNotFoundError, match=os.path.dirname(b.directory)), b:
        shutil.rmtree(b.directory)
    assert not b.is_running and set(threading.enumerate()) <= before
    b.close()
    assert [each.name for each in tmp_path.iterdir()] == ["requests"]


def test_an_exception_that_takes_no_report_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Refuses(Exception):
        def add_note(self, note: str, /) -> None:
            raise ValueError("no notes")

    monkeypatch.setattr(place, "_TMPFS", str(tmp_path))
    with pytest.raises(ValueError, match="no notes"), TestBroker() as b:
        raise Refuses
    assert not b.is_running and list(tmp_path.iterdir()) == []


def test_a_thread_of_the_broker_cannot_end_it() -> None:
    """Nothing has ended then: a broker without its logs or coordinators would still have its port."""
    found: list[str] = []
    with TestBroker(topics=["orders"], brokers=2) as b:

        def end(_context: object) -> None:
            for call in (b.close, b.kill, b.broker.stop, lambda: b.stop_broker(b.broker_ids[1])):
                with pytest.raises(RuntimeError, match="a handler cannot stop its server") as raised:
                    call()
                found.append(str(raised.value))

        b.inject("metadata", respond=end)
        with WireClient(b.bootstrap_servers.split(",")[0]) as client:
            brokers = client.call(ApiKey.METADATA, 9, topics=[]).brokers
            groups = client.call(ApiKey.LIST_GROUPS, 4)
        assert (len(found), len(brokers), groups.error_code) == (4, 2, 0)
        assert b.restart().topic("orders").values() == []


def test_a_forked_child_ends_nothing() -> None:
    """Nor does it answer what waits at its parent's broker."""
    with TestBroker(control=True) as b:
        dropped = b.inject("metadata", drop=True)
        with WireClient(b.bootstrap_servers) as waiting, WireClient(b.bootstrap_servers) as other:
            waiting.send(ApiKey.METADATA, 9, messages.Metadata.Request(topics=[]))
            dropped.wait(timeout=PATIENCE)
            child = os.fork()
            if child == 0:
                signal.alarm(int(PATIENCE))
                try:
                    b.kill()
                    b.close()
                    os._exit(0)
                finally:
                    os._exit(1)
            assert os.waitpid(child, 0)[1] == 0
            assert not select.select([waiting.socket], [], [], 0)[0]
            assert other.call(ApiKey.METADATA, 9, topics=[]).topics == []
            assert Path(b.directory).is_dir()
