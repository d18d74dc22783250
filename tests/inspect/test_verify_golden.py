"""verify finds no problem in Kafka's directories, and finds damage."""

from __future__ import annotations

import collections
import os
from pathlib import Path

import pytest

import klog
from klog.inspect import verify
from tests.support import golden

# Kafka keeps these on purpose (README.md of tests/golden, "Files").
KEPT_BY_KAFKA = {"internal": 40, "trimmed": 11}

# Damage that no other file of the partition directory contradicts: see the docstring of verify.
NOT_VISIBLE = {
    "active-segment-missing-unclean": "no snapshot at the log end: nothing shows that there was more",
    "cut-boundary-unclean": "a whole batch is missing at the end, and neither snapshot nor time entry lies above",
    "first-segment-missing": "retention deletes it too",
    "foreign-file": "Kafka ignores unknown names",
    "last-delta-wrong-good-crc": "fewer records than offsets: compaction writes such batches too",
    "metadata-other-id": "another id, in the right form",
    "metadata-missing": "no meta.properties: logs of Log.open have no topic id either",
}
# Differences in the loader's arguments, not in the files; or files that Kafka writes itself.
SOUND = (
    "none",
    "lookup",
    "lso",
    "rp",
    "prealloc-clean",
    "rolled-empty-active",
    "producers-expired",
    "snapshot-all-missing",
    "snapshot-last-missing",
    "crash-copy-called-clean",
    "v1-tail",
    "left-deleted",  # a note
    "epochs-past-end",  # a note
)


@pytest.mark.parametrize("case", golden.CASES)
def test_kafkas_directories_have_no_problem(case: str, tmp_path: Path) -> None:
    directory = golden.copy_logdir(case, tmp_path)
    report = verify(directory)
    assert not report.problems
    assert len(report.notes) == KEPT_BY_KAFKA.get(case, 0), report.notes
    entries = golden.manifest(case)["partitions"]
    assert report.partitions == len(entries)
    assert report.records == sum(segment["records"] for entry in entries for segment in entry["segments"])
    assert report.batches == sum(segment["batches"] for entry in entries for segment in entry["segments"])
    assert report.bytes == sum(segment["size"] for entry in entries for segment in entry["segments"])


@pytest.mark.parametrize("partition", golden.all_partitions(), ids=lambda partition: partition.id)
def test_single_partition_directories_have_no_problem(partition: golden.Partition, tmp_path: Path) -> None:
    """Without checkpoints verify knows less. It must not report a problem because of that."""
    copy = golden.copy_logdir(partition.case, tmp_path) / partition.name
    for path in copy.parent.iterdir():
        if path.is_file():
            path.unlink()
    assert [problem for problem in verify(copy).problems if problem.kind != "leftover"] == []


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> dict[str, golden.LoaderCase]:
    return golden.unpack_loader_cases(tmp_path_factory.mktemp("loader"))


def test_damage_is_found_without_false_alarms(damaged: dict[str, golden.LoaderCase], tmp_path: Path) -> None:
    wrong = {}
    for name, case in damaged.items():
        expected = not name.startswith(SOUND) and not name.startswith(tuple(NOT_VISIBLE))
        report = verify(case.copy(tmp_path / name))
        if bool(report.problems) != expected:
            wrong[name] = report.problems
    assert wrong == {}


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("flip-middle-clean", "crc"),
        ("flip-last-crc-clean", "crc"),
        ("cut-mid-records-clean", "length"),
        ("garbage-tail-clean", "length"),
        ("zero-tail-1k-clean", "length"),
        ("magic-5-clean", "length"),
        ("bad-payload-good-crc-clean", "length"),
        ("batch-repeated-clean", "offset_order"),
        ("segments-overlap-clean", "offset_order"),
        ("flip-leader-epoch-field-clean", "epoch"),
        ("epochs-not-monotonic-clean", "epoch"),
        ("epochs-corrupt-clean", "checkpoint"),
        ("metadata-empty-clean", "checkpoint"),
        ("index-wrong-position-middle-clean", "index"),
        ("index-missing-middle-clean", "index"),
        ("timeindex-odd-size-middle-clean", "timeindex"),
        ("txnindex-missing-clean", "txnindex"),
        ("abort-open-txn-tail-clean", "txnindex"),
        ("snapshot-last-corrupt-clean", "snapshot"),
        ("snapshot-lies-clean", "snapshot"),
        ("swap-one-clean", "leftover"),
        ("segment-gap-clean", "gap"),
    ],
)
def test_a_problem_has_its_kind(damaged: dict[str, golden.LoaderCase], name: str, kind: str, tmp_path: Path) -> None:
    problems = verify(damaged[name].copy(tmp_path)).problems
    assert kind in {problem.kind for problem in problems}, problems


def test_verify_changes_no_file(tmp_path: Path) -> None:
    for case in ("internal", "unclean"):
        directory = golden.copy_logdir(case, tmp_path)
        before = golden.file_tree(directory)
        verify(directory)
        assert golden.file_tree(directory) == before


def test_progress_counts_the_bytes_of_the_log(tmp_path: Path) -> None:
    events: list[klog.progress.Event] = []
    report = klog.verify(golden.copy_logdir("flights", tmp_path), progress=events.append)
    assert events[-1].done == events[-1].total == report.bytes
    assert {event.unit for event in events} == {"bytes"}


def test_a_log_verifies_itself(tmp_path: Path) -> None:
    with klog.open(tmp_path / "data", create=True) as logs:
        logs.create_topic("t")
        log = logs.log("t")
        log.append([(b"k", b"v")] * 100)
        assert log.verify().problems == []
    assert klog.verify(tmp_path / "data").ok


def test_a_missing_directory_raises(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        verify(tmp_path / "nothing")
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(NotADirectoryError):
        verify(tmp_path / "file")


def test_a_fifo_or_directory_is_reported_without_blocking(tmp_path: Path) -> None:
    directory = golden.copy_logdir("plain", tmp_path) / "plain-0"
    os.mkfifo(directory / "00000000000000000400.txnindex")
    (directory / "leader-epoch-checkpoint").rename(tmp_path / "epochs")
    (directory / "leader-epoch-checkpoint").symlink_to(tmp_path / "epochs")
    assert "a symbolic link" in "".join(map(str, verify(directory.parent).problems))
    kinds = collections.Counter(problem.kind for problem in verify(directory.parent).problems)
    assert kinds["leftover"] == 1  # the FIFO, an index without its log
    assert sum(kinds.values()) == 2
