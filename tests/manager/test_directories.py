"""A LogManager over several log directories: in which one a log is created, and the effect of a failing directory on
the others."""

from __future__ import annotations

import errno
import json
import logging
import os
import shutil
import uuid
from pathlib import Path
from typing import Any

import pytest

import klog
from klog.clock import ManualClock
from klog.disk import RealFiles, os_error
from klog.errors import (
    AlreadyLocked,
    CorruptCheckpoint,
    DuplicateLog,
    InconsistentTopicId,
    NewerFormat,
    StorageOffline,
    UnknownTopicOrPartition,
)
from klog.log.directory import checkpoint
from klog.log.directory.checkpoint import encode_uuid
from tests.support.abandon import abandon
from tests.support.failing_files import CountingFiles, FailingFiles
from tests.support.logs import tree
from tests.support.own_json import unchecked_in

MARKER = ".kafka_cleanshutdown"
NOW = 1_700_000_000_000


def three(tmp_path: Path) -> list[Path]:
    return [tmp_path / name for name in "abc"]


def opened(paths: list[Path], **options: Any) -> klog.LogManager:
    return klog.open(paths, create=True, clock=ManualClock(NOW), **options)


def homes(logs: klog.LogManager, topic: str) -> list[str]:
    """The directory of each partition, by its last letter."""
    return [Path(logs.log(topic, number).path).parent.name for number in logs.topics()[topic]]


# ---- which directories -----------------------------------------------------------------------------------------------


def test_opening_a_list_of_directories(tmp_path: Path) -> None:
    paths = three(tmp_path)
    with opened(paths) as logs:
        assert logs.paths == tuple(map(str, paths))
        assert logs.path == str(paths[0])
        assert logs.offline_directories == {}
        for path in paths:
            with pytest.raises(AlreadyLocked):
                klog.open(path)
    assert all((path / MARKER).exists() and not (path / ".lock").exists() for path in paths)


def test_duplicate_directories_raise(tmp_path: Path) -> None:
    """10.1: duplicates raise, also under another name."""
    (tmp_path / "link").symlink_to(tmp_path / "a")
    for second in (tmp_path / "a", tmp_path / "link", f"{tmp_path}/./a/", tmp_path / "b" / ".." / "a"):
        with pytest.raises(ValueError, match="is given twice"):
            klog.open([tmp_path / "a", second], create=True)
    with pytest.raises(ValueError, match="no log.dir given"):
        klog.open([])
    assert not (tmp_path / "a").exists()


def test_trailing_slashes_and_relative_names_are_the_same_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LM5: the recovery-point checkpoint is also correct if the path has a trailing slash or is relative."""
    monkeypatch.chdir(tmp_path)
    for name in ("a", "a/", f"{tmp_path}/a/", "./a", "../" + tmp_path.name + "/a"):
        with klog.open(name, create=True, clock=ManualClock(NOW)) as logs:
            if "t" not in logs.topics():
                logs.create_topic("t")
            log = logs.log("t")
            assert log.recovery.clean_shutdown or log.log_end_offset == 0
            log.append([(None, b"x")])
            log.flush()
            lines = (tmp_path / "a" / "recovery-point-offset-checkpoint").read_text().splitlines()
            assert lines == ["0", "1", f"t 0 {log.recovery_point}"]


@pytest.mark.parametrize("spoil", ["file", "below a file", "lock is a directory", "missing"])
def test_an_unusable_directory_is_offline_and_the_others_work(
    tmp_path: Path, spoil: str, caplog: pytest.LogCaptureFixture
) -> None:
    """LM3: a directory that is broken at the start is offline, and the others work. An unwritable directory does not
    prevent the start."""
    paths = three(tmp_path)
    for path in paths:
        path.mkdir()
    broken = paths[1]
    broken.rmdir()
    if spoil == "file":
        broken.write_bytes(b"")
    elif spoil == "below a file":
        (tmp_path / "f").write_bytes(b"")
        paths[1] = broken = tmp_path / "f" / "b"
    elif spoil == "lock is a directory":
        (broken / ".lock").mkdir(parents=True)
    with (
        caplog.at_level(logging.WARNING, "klog.log"),
        klog.open(paths, create=spoil != "missing", clock=ManualClock(NOW)) as logs,
    ):
        assert list(logs.offline_directories) == [str(broken)]
        assert f"event=directory_unusable path={broken}" in caplog.text
        assert logs.metrics()["LogDirectoryOffline"] == {str(path): int(path == broken) for path in paths}
        assert logs.metrics()["OfflineLogDirectoryCount"] == {"": 1}
        logs.create_topic("t", partitions=4)
        assert homes(logs, "t") == ["a", "c", "a", "c"]
        logs.append("t", [(b"%d" % i, b"x") for i in range(50)])
    assert (paths[0] / MARKER).exists()
    assert not broken.is_dir() or not (broken / MARKER).exists()


def test_without_a_usable_directory_open_raises(tmp_path: Path) -> None:
    """LM3: all are broken."""
    (tmp_path / "a").write_bytes(b"")
    (tmp_path / "b").write_bytes(b"")
    with pytest.raises(StorageOffline, match="none of the log directories can be used: .*a is a file.*b is a file"):
        klog.open([tmp_path / "a", tmp_path / "b"], create=True)


def test_a_locked_directory_raises_and_releases_the_others(tmp_path: Path) -> None:
    """LM7: a second manager on the same directory is refused; closing the first one removes the lock file."""
    paths = three(tmp_path)
    with klog.open(paths[2], create=True), pytest.raises(AlreadyLocked, match="c is held by process"):
        opened(paths)
    assert [(path / ".lock").exists() for path in paths] == [False] * 3
    opened(paths).close()
    assert [(path / ".lock").exists() for path in paths] == [False] * 3


def test_reading_several_directories_takes_no_lock_and_changes_nothing(tmp_path: Path) -> None:
    paths = three(tmp_path)
    with opened(paths) as logs:
        logs.create_topic("t", partitions=6)
        logs.append("t", [(b"%d" % i, b"v%d" % i) for i in range(60)])
        before = tree(tmp_path)
        with klog.open(paths, read_only=True) as reader:
            assert reader.topics() == {"t": [0, 1, 2, 3, 4, 5]}
            assert sorted(record.value for record in reader.read("t")) == sorted(b"v%d" % i for i in range(60))
        assert tree(tmp_path) == before


# ---- where a partition goes ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 3])
def test_partitions_are_spread_evenly(tmp_path: Path, count: int) -> None:
    """LM6: with 20 partitions in 2 or 3 directories, the numbers differ by at most one. Of equally full directories the
    first one is used."""
    paths = three(tmp_path)[:count]
    with opened(paths) as logs:
        for number in range(10):
            logs.create_topic(f"t{number}", partitions=2)
        counts = [len([entry for entry in path.iterdir() if entry.is_dir()]) for path in paths]
        assert sum(counts) == 20
        assert max(counts) - min(counts) <= 1
        assert counts == sorted(counts, reverse=True)
    with opened(paths) as logs:  # found wherever it is
        assert sum(len(partitions) for partitions in logs.topics().values()) == 20
        for log in logs.logs():
            log.append([(None, b"x")])


def test_the_preferred_directory_by_path_or_id(tmp_path: Path) -> None:
    """LM1: a preferred directory is used; a reserved id (UNASSIGNED, LOST) is ignored."""
    paths = three(tmp_path)
    ids = [uuid.uuid4() for _ in paths]
    for path, directory_id in zip(paths, ids, strict=True):
        path.mkdir()
        (path / "meta.properties").write_text(f"#\nversion=1\ndirectory.id={encode_uuid(directory_id)}\nnode.id=1\n")
    with opened(paths) as logs:
        logs.create_topic("one", partitions=3, directory=paths[2])
        assert homes(logs, "one") == ["c", "c", "c"]
        logs.create_topic("two", partitions=2, directory=ids[1])
        assert homes(logs, "two") == ["b", "b"]
        for reserved in (uuid.UUID(int=0), uuid.UUID(int=1)):
            name = f"three{reserved.int}"
            logs.create_topic(name, directory=reserved)
            assert homes(logs, name) == ["a"]
        for stranger in (tmp_path / "elsewhere", uuid.uuid4()):
            with pytest.raises(ValueError, match="directory=.* is not a log.dir of this LogManager"):
                logs.create_topic("four", directory=stranger)
        assert "four" not in logs.topics()


def test_an_unreadable_meta_properties_is_an_error(tmp_path: Path) -> None:
    """Its directory id would be missing silently."""
    (tmp_path / "a" / "meta.properties").mkdir(parents=True)
    with pytest.raises(OSError, match=r"meta\.properties"):
        klog.open(tmp_path / "a")


def test_directories_of_different_clusters_are_not_written_together(tmp_path: Path) -> None:
    """Each has topic t; one copy would be stray. A directory without meta.properties goes with any."""
    paths = [tmp_path / name for name in "abc"]
    for path, cluster in zip(paths, ("one", "other", None), strict=True):
        with klog.open(path, create=True) as logs:
            if cluster is not None:
                logs.create_topic("t")
                (path / "meta.properties").write_text(f"version=1\ncluster.id={cluster}\n")
    before = {path: tree(path) for path in paths}
    with pytest.raises(ValueError, match=r"b is of the cluster 'other', .*a of 'one'.* read_only=True"):
        klog.open([paths[2], *paths[:2]])
    assert {path: tree(path) for path in paths} == before
    klog.open(paths, read_only=True).close()
    klog.open(paths[::2]).close()


@pytest.mark.parametrize(("mode", "warns"), [(0o750, False), (0o775, False), (0o777, True), (0o1777, False)])
def test_a_directory_that_every_user_may_write_is_a_warning(
    tmp_path: Path, mode: int, warns: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """With the sticky bit, as /tmp has it, others can neither remove nor rename its files."""
    tmp_path.chmod(mode)
    klog.open(tmp_path).close()
    assert ("every user of the machine may remove" in caplog.text) == warns
    caplog.clear()
    klog.open(tmp_path, read_only=True).close()
    assert caplog.text == ""


def test_log_creates_no_log(tmp_path: Path) -> None:
    """LM1: a created log has its directory and partition.metadata, and accepts appends; others stay unknown."""
    with opened(three(tmp_path)) as logs:
        logs.create_topic("t")
        log = logs.log("t")
        assert log.append([(None, b"x")]).first_offset == 0
        assert (Path(log.path) / "partition.metadata").read_text().endswith(encode_uuid(log.topic_id))  # type: ignore[arg-type]
        before = tree(tmp_path)
        with pytest.raises(UnknownTopicOrPartition):
            logs.log("u")
        assert tree(tmp_path) == before


def test_creation_skips_a_broken_directory_and_leaves_one_copy(tmp_path: Path) -> None:
    """LM3: creation continues in the next directory; exactly one copy of each partition is left."""
    paths = three(tmp_path)
    with opened(paths):
        pass
    files = FailingFiles()
    logs = opened(paths, files=files)
    files.under = [str(paths[0])]
    logs.create_topic("t", partitions=4)
    assert list(logs.offline_directories) == [str(paths[0])]
    assert homes(logs, "t") == ["b", "c", "b", "c"]
    files.under = [str(path) for path in paths]
    with pytest.raises((StorageOffline, OSError)):
        logs.create_topic("u")
    files.under = []
    abandon(logs)
    with opened(paths) as logs:
        assert logs.topics() == {"t": [0, 1, 2, 3]}
        assert sorted(path.name for path in tmp_path.glob("*/*-*/")) == ["t-0", "t-1", "t-2", "t-3"]


def test_creation_skips_a_full_directory_which_stays_in_use(tmp_path: Path) -> None:
    """ENOSPC is not a disk failure."""
    paths = three(tmp_path)[:2]
    files = FailingFiles(error=28)
    with opened(paths, files=files) as logs:
        files.under = [str(paths[0] / "t-0")]
        logs.create_topic("t")
        assert homes(logs, "t") == ["b"]
        assert logs.offline_directories == {}
        files.under = [str(path / "u-0") for path in paths]
        with pytest.raises(StorageOffline, match="u-0 cannot be created in any log directory"):
            logs.create_topic("u")
        assert "u" not in logs.topics()
        assert not list(tmp_path.glob("*/u-*"))


# ---- a directory fails while it is used ------------------------------------------------------------------------------


def test_a_failing_directory_goes_offline_and_the_others_work(tmp_path: Path) -> None:
    """UL85, LM2: after the first error append and read raise for every log of the directory; it gets no clean- shutdown
    file and its checkpoints are not written; the others' are."""
    paths = three(tmp_path)[:2]
    files = FailingFiles()
    logs = opened(paths, files=files)
    logs.create_topic("t", partitions=4)  # 0 and 2 in a, 1 and 3 in b
    held = [logs.log("t", number) for number in range(4)]
    for log in held:
        log.append([(None, b"kept")])
        log.flush()
    reader = held[0].read()
    files.under = [str(paths[0])]
    with pytest.raises(OSError, match="Input/output"):
        held[0].flush()
    files.under = []
    assert list(logs.offline_directories) == [str(paths[0])]
    for number in (0, 2):
        for act in (
            lambda log=held[number]: log.append([(None, b"no")]),
            lambda log=held[number]: list(log.read()),
            lambda log=held[number]: log.fetch(0),
            lambda number=number: logs.log("t", number).append([(None, b"no")]),
        ):
            with pytest.raises(StorageOffline) as caught:
                act()  # type: ignore[no-untyped-call]
            assert caught.value.code == 56
    with pytest.raises(StorageOffline):
        list(reader)
    for number in (1, 3):
        assert held[number].append([(None, b"on")]).first_offset == 1
        assert [record.value for record in held[number].read()] == [b"kept", b"on"]
    assert logs.topics() == {"t": [0, 1, 2, 3]}  # the partitioner uses all partitions
    with pytest.raises(StorageOffline):
        list(logs.read("t"))
    before = tree(paths[0])
    with pytest.raises(OSError, match="Input/output"):
        logs.close()
    after = tree(paths[0])
    assert (after, ".lock" in before) == ({name: data for name, data in before.items() if name != ".lock"}, True)
    assert not (paths[0] / MARKER).exists()
    assert (paths[1] / MARKER).exists()
    with opened(paths) as logs:
        assert not logs.log("t", 0).recovery.clean_shutdown
        assert logs.log("t", 1).recovery.clean_shutdown
        assert [log.count() for log in logs.logs()] == [1, 2, 1, 2]


def test_reads_work_while_the_last_directory_is_offline(tmp_path: Path) -> None:
    """Kafka stops the broker; klog stops the appends (P6)."""
    files = FailingFiles()
    logs = opened([tmp_path / "a"], files=files)
    logs.create_topic("t", partitions=2)
    log, other = logs.log("t", 0), logs.log("t", 1)
    for each in (log, other):
        each.append([(None, b"kept")])
    files.under = [str(tmp_path / "a" / "t-0")]
    with pytest.raises(OSError, match="Input/output"):
        log.flush()
    files.under = []
    for each in (log, other):
        with pytest.raises(StorageOffline):
            each.append([(None, b"no")])
        assert [record.value for record in each.read()] == [b"kept"]
    with pytest.raises(OSError, match="Input/output"):
        logs.close()
    assert not (tmp_path / "a" / MARKER).exists()


def test_a_partition_of_an_offline_directory_is_not_unknown(tmp_path: Path) -> None:
    """10.1: isNew=false while a directory is offline: the log may be in that directory."""
    paths = three(tmp_path)[:2]
    with opened(paths) as logs:
        logs.create_topic("t", partitions=2)
        logs.log("t", 0).append([(None, b"x")])
    hidden = paths[0].rename(tmp_path / "unmounted")
    paths[0].write_bytes(b"")
    with opened(paths) as logs:
        assert logs.topics() == {"t": [0, 1]}
        logs.log("t", 1).append([(None, b"y")])
        with pytest.raises(StorageOffline, match=f"t-0 is in none of the online directories; offline: {paths[0]}"):
            logs.log("t", 0)
        with pytest.raises(UnknownTopicOrPartition):
            logs.log("t", 2)
    paths[0].unlink()
    hidden.rename(paths[0])
    with opened(paths) as logs:
        assert [log.count() for log in logs.logs()] == [1, 1]


# ---- clean-shutdown files --------------------------------------------------------------------------------------------


def test_clean_shutdown_files_keep_the_broker_epoch(tmp_path: Path) -> None:
    """LM2: the files carry the broker epoch; the directories must agree on it; an unreadable file has none."""
    paths = three(tmp_path)[:2]
    opened(paths).close()
    for path in paths:
        (path / MARKER).write_text('{"version":0,"brokerEpoch":17}')
    with opened(paths) as logs:
        assert logs.broker_epoch == 17
        assert logs.clean_shutdown
    assert [json.loads((path / MARKER).read_text())["brokerEpoch"] for path in paths] == [17, 17]
    (paths[1] / MARKER).write_text('{"version":0,"brokerEpoch":18}')
    with opened(paths) as logs:
        assert logs.broker_epoch is None
    for text in ("", "{}", "[]", "\xff"):
        (paths[0] / MARKER).write_text(text)
        (paths[1] / MARKER).write_text(text)
        with opened(paths) as logs:
            assert logs.broker_epoch is None


def test_closing_before_all_logs_are_loaded_keeps_an_unclean_directory_unclean(tmp_path: Path) -> None:
    """LM2: closing before the load has completed writes no clean-shutdown file."""
    paths = three(tmp_path)[:2]
    with opened(paths) as logs:
        logs.create_topic("t", partitions=4)
        logs.append("t", [(b"%d" % i, b"x") for i in range(40)])
    (paths[0] / MARKER).unlink()
    with opened(paths) as logs:
        logs.log("t", 0)  # loads 1 of 2 logs
    assert not (paths[0] / MARKER).exists()
    assert (paths[1] / MARKER).exists()
    with opened(paths) as logs:
        logs.load_all()
    assert (paths[0] / MARKER).exists()


# ---- klog-topics.json ------------------------------------------------------------------------------------------------


def topics_of(path: Path) -> Any:
    return json.loads((path / "klog-topics.json").read_text())


def test_every_directory_has_the_topics_file_and_the_newest_copy_counts(tmp_path: Path) -> None:
    paths = three(tmp_path)
    with opened(paths) as logs:
        logs.create_topic("t", partitions=3, config={"retention.ms": 5})
        old = (paths[2] / "klog-topics.json").read_text()
        logs.alter_topic("t", {"retention.ms": 6})
        assert topics_of(paths[0]) == topics_of(paths[1]) == topics_of(paths[2])
    (paths[2] / "klog-topics.json").write_text(old)  # as if it was offline during the alteration
    (paths[0] / "klog-topics.json").unlink()
    with opened(list(reversed(paths))) as logs:
        assert logs.topic_config("t").retention_ms == 6
        assert topics_of(paths[0]) == topics_of(paths[1]) == topics_of(paths[2])
    (paths[1] / "klog-topics.json").write_text("{")
    with opened(paths) as logs:  # a broken copy is ignored if there is a valid one
        assert logs.topic_config("t").retention_ms == 6
    for path in paths:
        (path / "klog-topics.json").write_text("{")
    with pytest.raises(CorruptCheckpoint, match="move the file away"):
        opened(paths)
    (paths[1] / "klog-topics.json").write_text('{"version": 9}')
    with pytest.raises(NewerFormat):
        opened(paths)


def test_a_topics_file_without_generation_is_read(tmp_path: Path) -> None:
    with opened([tmp_path]) as logs:
        logs.create_topic("t", config={"retention.ms": 5})
    document = unchecked_in(tmp_path / "klog-topics.json")
    del document["generation"]
    (tmp_path / "klog-topics.json").write_text(json.dumps(document))
    with opened([tmp_path]) as logs:
        assert logs.topic_config("t").retention_ms == 5


def test_a_change_that_failed_in_every_directory_does_not_return(tmp_path: Path) -> None:
    """The first copy was replaced before its sync failed, the second one was not. Later changes reach only that one."""
    paths = three(tmp_path)[:2]

    class Failing(RealFiles):
        armed = False

        def replace(self, path: str, data: bytes, *, private: bool = False) -> None:
            if self.armed and path.startswith(str(paths[1])):
                raise os_error(errno.ENOSPC, path)
            super().replace(path, data, private=private)
            if self.armed:
                raise os_error(errno.EIO, path)

    files = Failing()
    logs = opened(paths, files=files)
    logs.create_topic("t", config={"retention.ms": 5})
    files.armed = True
    with pytest.raises(OSError, match="No space"):
        logs.alter_topic("t", {"retention.ms": 6})
    files.armed = False
    assert list(logs.offline_directories) == [str(paths[0])]
    logs.alter_topic("t", {"retention.ms": 7})
    abandon(logs)
    with opened(paths) as logs:
        assert logs.topic_config("t").retention_ms == 7


# ---- one partition twice, and strays ---------------------------------------------------------------------------------


def put(path: Path, name: str, topic_id: uuid.UUID | None, records: int = 1) -> None:
    """Write a partition directory as a broker could have left it."""
    with klog.Log.open(path / name, topic_id=topic_id, clock=ManualClock(NOW)) as log:
        log.append([(None, b"%d" % number) for number in range(records)])


def test_a_partition_in_two_directories_raises(tmp_path: Path) -> None:
    """4.1: a duplicate live log in one broker."""
    paths = three(tmp_path)[:2]
    for path in paths:
        path.mkdir()
        put(path, "t-0", None)
    with pytest.raises(DuplicateLog, match="t-0 is there twice: .*a/t-0 and .*b/t-0; move away"):
        opened(paths)
    with klog.open(paths, read_only=True) as logs, pytest.raises(DuplicateLog):
        logs.log("t")
    assert not (paths[0] / ".lock").exists()


def test_an_open_that_is_refused_leaves_the_files_of_the_last_stop(tmp_path: Path) -> None:
    """A start without the marker recovers every log, and a broker does not find its epoch."""
    paths = three(tmp_path)[:2]
    with opened(paths) as logs:
        logs.create_topic("t", directory=paths[0])
        logs.create_topic("u", directory=paths[1])
        for topic in ("t", "u"):
            logs.log(topic).append([(None, b"v")])
    marker = b'{"version":0,"brokerEpoch":7}'
    for path in paths:
        (path / ".kafka_cleanshutdown").write_bytes(marker)
    before = [(path / "replication-offset-checkpoint").read_bytes() for path in paths]
    shutil.copytree(paths[0] / "t-0", paths[1] / "t-0")
    with pytest.raises(DuplicateLog):
        opened(paths)
    assert [(path / ".kafka_cleanshutdown").read_bytes() for path in paths] == [marker] * 2
    assert [(path / "replication-offset-checkpoint").read_bytes() for path in paths] == before
    shutil.rmtree(paths[1] / "t-0")
    with opened(paths) as logs:
        assert logs.clean_shutdown and logs.log("t").recovery.clean_shutdown


def test_of_two_copies_the_one_with_another_topic_id_is_stray(tmp_path: Path) -> None:
    """LM13: another topic id -> renamed -stray; known -> kept."""
    paths = three(tmp_path)[:2]
    with opened(paths) as logs:
        logs.create_topic("t")
        logs.log("t").append([(None, b"mine")])
    put(paths[1], "t-0", uuid.uuid4(), records=3)
    with opened(paths) as logs:
        assert [record.value for record in logs.log("t").read()] == [b"mine"]
        strays = [path.name for path in paths[1].iterdir() if path.name.endswith("-stray")]
        assert len(strays) == 1
        assert strays[0].startswith("t-0.")
        assert (paths[1] / strays[0] / "00000000000000000000.log").stat().st_size > 0  # kept for inspection
    with opened(paths) as logs:
        assert (paths[1] / strays[0]).is_dir()
        assert logs.topics() == {"t": [0]}


def test_a_topic_deleted_while_a_directory_was_offline_stays_deleted(tmp_path: Path) -> None:
    """LM13: a replica whose topic was deleted -> renamed -stray."""
    paths = three(tmp_path)[:2]
    with opened(paths) as logs:
        logs.create_topic("t", partitions=2)
        logs.create_topic("kept", partitions=2)
        logs.create_topic("gone", partitions=2)
        for log in logs.logs():
            log.append([(None, b"x")])
    hidden = paths[0].rename(tmp_path / "unmounted")
    with klog.open(paths, clock=ManualClock(NOW)) as logs:
        logs.delete_topic("gone")
        logs.delete_topic("t")
        logs.create_topic("t")
        logs.log("t").append([(None, b"new"), (None, b"newer")])
        assert len(topics_of(paths[1])["deleted"]) == 2
    hidden.rename(paths[0])
    with opened(paths) as logs:
        assert logs.topics() == {"kept": [0, 1], "t": [0]}
        assert [record.value for record in logs.log("t").read()] == [b"new", b"newer"]
        strays = sorted(path.name.split(".")[0] for path in paths[0].iterdir() if path.name.endswith("-stray"))
        assert strays == ["gone-0", "t-0"]
        assert "deleted" not in topics_of(paths[0])


def test_a_different_topic_id_alone_renames_nothing(tmp_path: Path) -> None:
    """LM13: a broker may have recreated the topic; klog's file is not authoritative, so nothing is renamed."""
    with opened([tmp_path]) as logs:
        logs.create_topic("t")
    (tmp_path / "t-0" / "partition.metadata").unlink()
    put(tmp_path, "t-0", uuid.uuid4())
    with opened([tmp_path]) as logs:
        with pytest.raises(InconsistentTopicId):
            logs.log("t")
        logs.load_all()
    assert (tmp_path / "t-0").is_dir()


def test_other_entries_of_a_directory(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """LM13: skips the remote index cache and a KRaft node's own log; keeps unknown entries with a warning."""
    for name in (
        "remote-log-index-cache",
        "lost+found",
        "__cluster_metadata-0",
        f"t-0.{5:032x}-stray",
        f"t-0.{6:032x}-future",
    ):
        (tmp_path / name).mkdir()
    (tmp_path / f"t-0.{6:032x}-future" / "00000000000000000000.log").write_bytes(b"a broker's")
    (tmp_path / "__cluster_metadata-0" / "00000000000000000000.log").write_bytes(b"not to be touched")
    before = tree(tmp_path)
    with caplog.at_level(logging.WARNING, "klog.log"), opened([tmp_path]) as logs:
        logs.start()
        assert list(logs.logs()) == []
        assert logs.topics() == {"__cluster_metadata": [0]}
    for what in ("event=foreign_directory", "lost+found", "event=stray_directory", "event=future_directory"):
        assert what in caplog.text
    assert "index-cache" not in caplog.text
    assert {name: data for name, data in tree(tmp_path).items() if "/" in name} == before


def test_many_logs_are_flushed_stopped_and_deleted_with_one_checkpoint(tmp_path: Path) -> None:
    """An operation on all logs writes each file of the directory once, not once for each log."""
    files, clock = CountingFiles(), ManualClock(NOW)
    config = {"log.flush.scheduler.interval.ms": 1000, "log.initial.task.delay.ms": 1000}
    logs = klog.open(tmp_path / "a", create=True, clock=clock, files=files, config=config)
    for name in "tu":
        logs.create_topic(name, partitions=20)
        for number in range(20):
            logs.log(name, number).append([(None, b"x")])
    logs.start()
    files.replaced.clear()
    clock.advance(1000)
    assert all(log.recovery_point == 1 for log in logs.logs())
    assert files.replaced["recovery-point-offset-checkpoint"] == 1  # the task after the flusher finds no change
    files.replaced.clear()
    logs.delete_topic("u")
    assert files.replaced == {"klog-topics.json": 2, "recovery-point-offset-checkpoint": 1}
    for log in logs.logs():
        log.append([(None, b"y")])
    files.replaced.clear()
    logs.close()
    assert files.replaced["recovery-point-offset-checkpoint"] <= 2
    assert (tmp_path / "a" / "recovery-point-offset-checkpoint").read_text().splitlines()[1] == "20"


def test_each_log_has_its_metrics_once(tmp_path: Path) -> None:
    with opened(three(tmp_path)) as logs:
        logs.create_topic("t", partitions=2, config={"segment.bytes": 300})
        log = logs.log("t", 1)
        for _ in range(10):
            log.append([(None, b"x" * 100)])
        logs.log("t", 0)
        found = logs.metrics()
        assert found["NumLogSegments"] == {"t-0": 1, "t-1": len(log.segments)}
        assert found["LogEndOffset"] == {"t-0": 0, "t-1": 10}
        assert found["LogStartOffset"] == {"t-0": 0, "t-1": 0}
        assert found["Size"] == {"t-0": 0, "t-1": log.size}
        assert os.path.basename(log.path) == "t-1"


def test_the_marker_of_the_last_stop_is_gone_while_a_log_is_open(tmp_path: Path) -> None:
    """S10: after that, the next start treats a crash as a crash."""
    marker = tmp_path / "a" / MARKER
    for _ in range(2):
        with opened([tmp_path / "a"]) as logs:
            assert not marker.exists()
            if not logs.topics():
                logs.create_topic("t")
            logs.log("t").append([(None, b"v")])
        assert marker.exists()


def test_high_watermarks_of_the_last_stop_hide_no_record_and_outlive_no_topic(tmp_path: Path) -> None:
    with klog.open(tmp_path, create=True) as logs:
        for name in ("t", "gone"):
            logs.create_topic(name)
            logs.append(name, [(None, b"a")])
    path = str(tmp_path / checkpoint.HIGH_WATERMARK)
    assert checkpoint.read_offsets(path) == {("gone", 0): 1, ("t", 0): 1}
    with klog.open(tmp_path) as logs, klog.open(tmp_path, read_only=True) as reader:
        assert not os.path.exists(path)
        logs.append("t", [(None, b"b")])
        assert len(list(reader.read("t", isolation="high_watermark"))) == 2
        logs.delete_topic("gone")
    assert checkpoint.read_offsets(path) == {("t", 0): 2}


def test_a_recovery_point_above_the_log_end_is_lowered_by_the_load(tmp_path: Path) -> None:
    """Before the first append: records below it would count as durable after a crash."""
    with klog.open(tmp_path, create=True) as logs:
        logs.create_topic("t")
        log = logs.log("t")
        log.append([(b"k", b"a")])
        size = log.segments[-1].size
        log.append([(b"k", b"b")])
    (tmp_path / ".kafka_cleanshutdown").unlink()
    path = str(tmp_path / checkpoint.RECOVERY_POINT)
    assert checkpoint.read_offsets(path)["t", 0] == 2
    os.truncate(tmp_path / "t-0" / "00000000000000000000.log", size)
    with klog.open(tmp_path, recovery="kafka") as logs:
        assert logs.log("t").log_end_offset == 1
        assert checkpoint.read_offsets(path)["t", 0] == 1


@pytest.mark.parametrize("how", ["created again", "truncated"])
def test_a_reader_that_was_open_before_misses_no_record_of_a_log_that_became_shorter(tmp_path: Path, how: str) -> None:
    with klog.open(tmp_path, create=True) as logs:
        logs.create_topic("t")
        for _ in range(5):
            logs.append("t", [(None, b"v")])
    with klog.open(tmp_path, read_only=True) as reader, klog.open(tmp_path) as logs:
        if how == "truncated":
            logs.log("t").truncate_to(2)
        else:
            logs.delete_topic("t")
            logs.create_topic("t")
            logs.append("t", [(None, b"w")])
        log = reader.log("t")
        assert log.log_end_offset == (2 if how == "truncated" else 1)
        assert (log.recovery.offsets_missing, log.recovery.reason) == (0, "")


def test_a_reader_that_was_open_before_takes_no_compacted_segment_for_a_lost_one(tmp_path: Path) -> None:
    config = {"cleanup.policy": "compact", "segment.bytes": 1000}
    with klog.open(tmp_path, create=True) as logs:
        logs.create_topic("t", config=config)
        log = logs.log("t")
        log_of_one_key(log)
        log.compact()
    with klog.open(tmp_path, read_only=True) as reader, klog.open(tmp_path) as logs:
        log = logs.log("t")
        for _ in range(3):
            log_of_one_key(log)
            log.compact()
        logs.alter_topic("t", {"cleanup.policy": "delete"})
        assert any(path.name.endswith(".log.deleted") for path in (tmp_path / "t-0").iterdir())
        assert list(reader.log("t").read()) == list(log.read())


def log_of_one_key(log: klog.Log) -> None:
    for _ in range(12):
        log.append([(b"k", b"v" * 200)])
