"""A FIFO in place of any file of a log.dir: each verb ends, with an error or a note that names the file, and leaves it."""

from __future__ import annotations

import logging
import os
import shutil
import stat
from pathlib import Path

import pytest

import klog
from klog.clock import ManualClock
from klog.security import Users
from tests.cli.test_verbs import run
from tests.support.logs import tree

PARTITION = [
    *(f"{0:020d}.log", f"{0:020d}.index", f"{0:020d}.timeindex", f"{0:020d}.txnindex", f"{9:020d}.snapshot"),
    *(f"{99:020d}.log", "leader-epoch-checkpoint", "partition.metadata", "klog-gaps", "klog-future.json"),
]
ROOT = [
    *("recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "replication-offset-checkpoint"),
    *("cleaner-offset-checkpoint", "meta.properties", ".kafka_cleanshutdown", ".lock", "klog-topics.json"),
    *("klog-reader.me.json", "klog-audit.jsonl", "klog-users.json", "klog-broker.json", "klog-producer-ids.json"),
    *("klog-stream-q.json", "klog-commit-a.json", "klog-staging-a.json", "bootstrap.checkpoint", "u-0"),
]
NAMES = [*(f"t-0/{name}" for name in PARTITION), *ROOT]
# DATA: the directory. COPY: the same without the FIFO. NEW: nothing is there.
LINES = [
    *("ls DATA", "dump DATA", "verify DATA", "groups DATA", "transactions DATA", "diff DATA COPY", "health DATA"),
    *("tune DATA --no-disk", "repair DATA --dry-run", "rescue DATA --to NEW", "handover DATA --dry-run", "cache DATA"),
    *("top DATA --once --interval 0.01", "compact DATA --dry-run", "cat --dir DATA --topic t"),
    *("export DATA --topic t -o NEW.csv", "compact DATA --purge-key k"),
]


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("strange") / "data"
    with klog.open(path, create=True, clock=ManualClock(1_700_000_000_000)) as logs:
        logs.create_topic("t", config={"cleanup.policy": "compact", "segment.bytes": 1 << 20})
        log = logs.log("t")
        for _ in range(3):
            log.append([(b"k", b"v")] * 3)
        with logs.reader("t", "me") as reader:
            next(iter(reader))
        Users(str(path)).set_password("ann", "SCRAM-SHA-256", "correct horse")
        log.roll()
        log.append([(b"k", b"v")])
    return path


def with_fifo(original: Path, tmp_path: Path, name: str) -> Path:
    data = tmp_path / "data"
    shutil.copytree(original, data)
    (data / name).unlink(missing_ok=True)
    os.mkfifo(data / name)
    return data


@pytest.mark.timeout(300)  # a call that opens the FIFO and waits for its writer
@pytest.mark.parametrize("name", NAMES)
def test_no_verb_waits_for_the_writer_of_a_fifo(name: str, original: Path, tmp_path: Path) -> None:
    data = with_fifo(original, tmp_path, name)
    places = {"DATA": data, "COPY": original, "NEW": tmp_path / "new"}
    for line in LINES:
        for word, path in places.items():
            line = line.replace(word, str(path))
        result = run(*line.split())
        assert result.exit_code in (0, 1, 3), (line, result.output)
        if not line.startswith("health"):  # whose exit code is that of the whole machine
            named = "commit a" if "commit" in name and "handover" in line else os.path.basename(name)
            assert result.exit_code == 0 or named in result.output, (line, result.output)
        if "purge" not in line and name != ".lock":  # a dry run that locks the directory unlinks it
            assert stat.S_ISFIFO(os.lstat(data / name).st_mode), line


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", NAMES)
def test_no_call_waits_for_the_writer_of_a_fifo(name: str, original: Path, tmp_path: Path) -> None:
    data = with_fifo(original, tmp_path, name)
    text = name
    try:
        _use(data)
    except (klog.KlogError, OSError) as error:
        text = str(error)
    assert os.path.basename(name) in text


def _use(data: Path) -> None:
    with klog.open(data, read_only=True) as logs:
        logs.health()
        assert [record.value for record in logs.read("t")]
    with klog.open(data) as logs:
        logs.append("t", [(b"k", b"v")])
        logs.start()
        with logs.reader("t", "me") as reader:
            assert list(reader)
        logs.log("t").purge_key(b"k")
    with klog.TestBroker(copy_of=data) as broker:
        assert broker.logs.topics()


def test_a_directory_that_is_not_a_topics_stays(
    original: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Names that only look like those of partitions, links to partitions, and names that are not UTF-8."""
    caplog.set_level(logging.CRITICAL, "klog")  # pytest-xdist cannot send a warning with such a name
    data = tmp_path / "data"
    shutil.copytree(original, data)
    odd = [
        ".-0",
        "..-0",
        "t-01",
        "t-2147483648",
        "t--1",
        "a b-0",
        "x-0-delete",
        "x-0.short-stray",
        "-0",
        f"{'n' * 250}-0",
    ]
    for each in (*map(os.fsencode, odd), b"\xff-0"):
        shutil.copytree(os.fsencode(data / "t-0"), os.fsencode(data) + b"/" + each)
    (data / "loop-0").symlink_to("loop-0")
    (data / "link-0").symlink_to("t-0")
    before = tree(data)
    with klog.open(data, read_only=True) as logs:
        assert [*logs.topics()] == ["t", "t-"]
        assert len(list(logs.read("t"))) == 10
    for line in ("ls", "verify", "dump", "groups", "health", "cache", "top --once --interval 0.01", "repair --dry-run"):
        verb, *more = line.split()
        assert run(verb, data, *more).exit_code in (0, 3), line
    assert tree(data) == before
    with klog.open(data) as logs:
        logs.start()
        logs.delete_topic("t")
    assert all((data / name).is_dir() for name in odd)
