"""Kafka's own loader loads klog's directories: the same log end, records, producers, aborted transactions.

Each directory is tested in three ways: closed, and loaded by Kafka as after a clean stop; closed, but loaded as after a
crash; and as a killed process leaves it.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import klog
from klog.clock import ManualClock
from klog.errors import CorruptBatch, CorruptLog
from klog.log.options import Policy
from tests.interop.kafka import KafkaClasses
from tests.interop.loads import Given, Verdict, differences, kafka_loads, klog_verdict
from tests.support import golden

pytestmark = pytest.mark.java

NOW = 1_700_000_000_000


@dataclass(frozen=True)
class Left:
    """A directory that klog has left, and klog's own view of its log."""

    name: str
    how: str  # "closed", "closed, no marker" or "killed"
    given: Given
    klog: Verdict
    committed: tuple[tuple[int, int], ...]  # (offset, producer id) of records that a read_committed reader got

    def problems(self, verdict: Verdict) -> dict[str, str]:
        """The fields in which Kafka differs, with both values."""
        found = {text.partition(":")[0]: text for text in differences(verdict, self.klog)}
        for pid, first, last, _ in verdict.aborted:
            shown = [offset for offset, of in self.committed if of == pid and first <= offset <= last]
            if shown:
                found["read_committed"] = f"klog shows {shown} of a transaction that Kafka lists as aborted"
        return found


def leave(
    name: str,
    directory: Path,
    *,
    config: Mapping[str, Any],
    now_ms: int,
    expiration_ms: int,
    policy: Policy,
    **given: Any,
) -> Iterator[Left]:
    """Open the log, inspect it, and leave it with each ending. Returns nothing if the recovery policy refuses the log."""
    options = {**config, "producer.id.expiration.ms": expiration_ms}
    try:
        log = klog.Log.open(directory, config=options, recovery=policy, clock=ManualClock(now_ms), **given)
    except CorruptLog:
        return
    try:
        verdict, committed = klog_verdict(log), tuple(read_committed(log))
        point, start, base = log.recovery_point, log.log_start_offset, log.segments[0].base_offset
        killed = copy(directory, "killed")
    finally:
        log.close()
    for how, left, clean in (
        ("closed", copy(directory, "closed"), True),
        ("closed, no marker", directory, False),
        ("killed", killed, False),
    ):
        known = Given(
            left,
            clean=clean,
            now_ms=now_ms,
            recovery_point=verdict.log_end_offset if clean else point,
            log_start_offset=start if start > base else 0,  # as the log-start checkpoint then has it
            config=config,
            producer_expiration_ms=expiration_ms,
        )
        yield Left(name, how, known, verdict, committed)


def copy(directory: Path, name: str) -> Path:
    return Path(shutil.copytree(directory, directory.parent / name / directory.name))


def read_committed(log: klog.Log) -> Iterator[tuple[int, int]]:
    """The records of a reader that continues past damage, offset by offset."""
    start = log.log_start_offset
    while start < log.log_end_offset:
        try:
            for record in log.read(start, isolation="read_committed"):
                assert record.offset is not None
                yield record.offset, record.producer_id
                start = record.offset + 1
            return
        except CorruptBatch:
            start = start + 1 if log.log_end_offset - start < 1000 else log.log_end_offset


def leave_case(case: golden.LoaderCase, directory: Path, policy: Policy) -> Iterator[Left]:
    config = case.config
    return leave(
        case.name,
        directory,
        config=config["config"],
        now_ms=config["now_ms"],
        expiration_ms=config["producer_id_expiration_ms"],
        policy=policy,
        clean_shutdown=config["clean_shutdown"],
        recovery_point=config["recovery_point"],
        log_start_offset=config["log_start_offset"],
        topic_id=config["topic_id"],
    )


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, golden.LoaderCase]:
    return golden.unpack_loader_cases(tmp_path_factory.mktemp("loader"))


def given(case: golden.LoaderCase, directory: Path) -> Given:
    config = case.config
    return Given(
        directory,
        clean=config["clean_shutdown"],
        now_ms=config["now_ms"],
        recovery_point=config["recovery_point"],
        log_start_offset=config["log_start_offset"],
        config=config["config"],
        producer_expiration_ms=config["producer_id_expiration_ms"],
    )


@pytest.mark.deep
def test_kafka_loads_reproduces_the_loader_cases(
    kafka_classes: KafkaClasses, cases: dict[str, golden.LoaderCase], tmp_path: Path
) -> None:
    if kafka_classes.kafka.version != "4.1.0":
        pytest.skip("needs: the version that wrote the cases")
    chosen = [case for case in cases.values() if not case.name.startswith("metadata-")]
    verdicts = kafka_loads(kafka_classes, [given(case, case.copy(tmp_path / case.name)) for case in chosen])
    found = []
    for case, verdict in zip(chosen, verdicts, strict=True):
        expected = case.verdict
        if (verdict.error is None) != expected["ok"]:
            found.append(f"{case.name}: {verdict.error}, expected ok={expected['ok']}")
        if verdict.error is None and expected["ok"]:
            got = verdict.log_start_offset, verdict.log_end_offset, verdict.records, list(verdict.producers)
            producers = golden.expected_producers(expected["producers"])
            wanted = expected["log_start_offset"], expected["log_end_offset"], len(case.records), producers
            if got != wanted:
                found.append(f"{case.name}: {got}, expected {wanted}")
    assert not found, "\n".join(found)


# ---- directories that klog leaves ------------------------------------------------------------------------------------

ENDINGS = ("closed", "closed, no marker", "killed")
CRASH = ENDINGS[1:]
ALL = frozenset(Verdict.__dataclass_fields__)
TAIL = frozenset({"log_end_offset", "first_undecided_offset", "segments", "producers", "aborted", "read_error"})

# Where Kafka differs, and why: (case, how it was left) -> the fields.
OTHERWISE: dict[tuple[str, str], frozenset[str]] = {}


def otherwise(reason: str, names: str, endings: tuple[str, ...], fields: frozenset[str]) -> None:
    OTHERWISE.update(
        {
            (name, ending): fields | OTHERWISE.get((name, ending), frozenset())
            for name in names.split()
            for ending in endings
        }
    )


otherwise(
    "after a crash Kafka truncates at the first bad batch; klog, after a clean stop, has kept it for its readers",
    "flip-first-body-of-active-clean flip-last-crc-clean fuzz-05-clean fuzz-09-clean fuzz-12-clean fuzz-13-clean "
    "fuzz-14-clean zero-block-active-clean",
    CRASH,
    TAIL,
)
wrong_offset = (
    "a base offset, outside the checksum, is wrong: klog's readers get the right one, the file stays unchanged"
)
otherwise(wrong_offset, "fuzz-06-clean fuzz-08-clean fuzz-08-unclean", CRASH, ALL)
otherwise(
    wrong_offset,
    "fuzz-06-clean fuzz-08-clean fuzz-08-unclean",
    ENDINGS[:1],
    frozenset({"records", "digest", "read_error"}),
)
otherwise(
    "Kafka's recovery accepts a leader epoch with a flipped bit; klog compares it with its checkpoint",
    "flip-leader-epoch-field-clean flip-leader-epoch-field-unclean",
    CRASH,
    frozenset({"leader_epochs"}),
)
otherwise(
    "Kafka refuses a file named abc.log; klog ignores files that are not its own",
    "foreign-log-name-clean foreign-log-name-unclean",
    ENDINGS,
    ALL,
)
otherwise(
    "Kafka rebuilds producers from the log start on, and drops older ones",
    "lso-active-clean",
    CRASH,
    frozenset({"first_undecided_offset", "producers", "aborted"}),
)
otherwise("split only by recovery, in klog too", "offset-overflow-clean", CRASH, frozenset({"segments"}))
otherwise(
    "a well-formed snapshot with wrong content is used after a clean stop, in klog too",
    "snapshot-lies-clean",
    CRASH,
    frozenset({"first_undecided_offset", "producers"}),
)
otherwise(
    "Kafka forgets the epochs of a log whose segments are all deleted; klog keeps the last one",
    "lso-past-end-clean lso-past-end-unclean",
    ENDINGS,
    frozenset({"leader_epochs"}),
)
otherwise("an index of a closed segment, which no load checks", "fuzz-09-clean", ENDINGS, frozenset({"bad_indexes"}))


def check(kafka_classes: KafkaClasses, lefts: list[Left]) -> None:
    """Kafka agrees with klog, except as the table states."""
    found, left_over = [], {(left.name, left.how) for left in lefts} & OTHERWISE.keys()
    for left, verdict in zip(lefts, kafka_loads(kafka_classes, [left.given for left in lefts]), strict=True):
        known = OTHERWISE.get((left.name, left.how), frozenset())
        problems = left.problems(verdict)
        if problems.keys() & known:
            left_over.discard((left.name, left.how))
        found += [f"{left.name}, {left.how}: {text}" for field, text in problems.items() if field not in known]
    found += [f"{name}, {how}: Kafka agrees; remove the row" for name, how in left_over]
    assert not found, "\n".join(found)


SAMPLE = ("none", "cut-mid-records", "cut-half-segment", "crash-copy-called", "swap-one", "flip-middle-rp0", "txnindex-missing", "fuzz-05")  # fmt: skip


@pytest.mark.parametrize("part", ["sample", pytest.param("all", marks=pytest.mark.deep)])
def test_kafka_loads_every_loader_case_after_klog(
    kafka_classes: KafkaClasses, cases: dict[str, golden.LoaderCase], tmp_path: Path, part: str
) -> None:
    lefts: list[Left] = []
    for case in cases.values():
        chosen = part == "all" or case.name.rpartition("-")[0] in SAMPLE
        if chosen and not case.name.startswith("metadata-other"):
            for policy in ("strict", "kafka"):
                lefts += leave_case(case, case.copy(tmp_path / policy / case.name), policy)
    check(kafka_classes, lefts)


def test_kafka_loads_a_swap_beside_any_cleaned_files(
    kafka_classes: KafkaClasses, cases: dict[str, golden.LoaderCase], tmp_path: Path
) -> None:
    """Originals renamed to .deleted are restored; no record that Kafka keeps is lost."""
    lefts: list[Left] = []
    for base in (0, 47, 91, 131, 172, 205):
        for policy in ("strict", "kafka"):
            for kept in (True, False):
                case = cases["swap-one-clean"]
                directory = case.copy(tmp_path / f"{policy}-{base}-{kept}")
                (directory / f"{base:020d}.log.cleaned").write_bytes(b"unfinished")
                for path in [
                    path for old in (0, 47) for path in directory.glob(f"{old:020d}.*") if path.suffix != ".swap"
                ]:
                    if kept and path.suffix != ".cleaned":
                        path.rename(path.with_name(path.name + ".deleted"))
                    elif path.suffix != ".cleaned":
                        path.unlink()
                lefts += leave_case(case, directory, policy)
    assert {left.klog.records for left in lefts} == {len(case.records), 205}  # Kafka's own verdict, or all
    check(kafka_classes, lefts)


def test_kafka_loads_a_torn_tail_after_klog(kafka_classes: KafkaClasses, tmp_path: Path) -> None:
    """A log with an index entry per batch, cut at any byte of its last three batches, opened as after a clean stop."""
    config, original = {"index.interval.bytes": 0}, tmp_path / "original" / "t-0"
    original.parent.mkdir()
    with klog.Log.open(original, config=config, clock=ManualClock(NOW)) as log:
        for number in range(6):
            log.append([(b"key", b"value", NOW + number)] * 3)
        size, end = log.size, log.log_end_offset
    lefts: list[Left] = []
    for cut in range(size // 2, size, 7):
        directory = tmp_path / f"{cut}" / "t-0"
        shutil.copytree(original, directory)
        with open(directory / f"{0:020d}.log", "r+b") as file:
            file.truncate(cut)
        lefts += leave(f"cut at {cut}", directory, config=config, now_ms=NOW, expiration_ms=86_400_000, policy="strict", clean_shutdown=True, recovery_point=end)  # fmt: skip
    check(kafka_classes, lefts)
