"""Crash states of seeded workloads on the simulated disk: P1 to P4, S10, and rebuilt caches are equal (workloads.py).

The message of a failure has its seed; `python tools/crash_replay.py SEED` shows the case. `python -m tests.crash.long`
examines any number of states.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from klog.log.options import Policy
from tests.crash import history, long, workloads
from tests.crash.compaction import cleaning_of, cut_cleaning
from tests.crash.history import OPERATIONS, History
from tests.crash.jobs import JOBS, cut_job
from tests.crash.opening import PartitionOpener, Start
from tests.crash.producing import cut_producers
from tests.crash.topics import Found, TopicsOpener, content_of, cut_topics, open_both
from tests.crash.workloads import WORKLOADS, cut, dies, name_of
from tests.support.abandon import abandon
from tests.support.child import in_new_process
from tests.support.crash_files import CrashFiles
from tests.support.crash_states import State
from tests.support.power_cuts import AT_THE_END, Tally

PARTS, STATES_OF_A_PART = 8, 126_000


def first_seed(name: str, *, with_deaths: bool = False) -> int:
    return next(seed for seed in range(1000) if name_of(seed) == name and dies(seed) == with_deaths)


def examined(tally: Tally) -> None:
    """Check that the run has compared states, and has opened some of them twice: otherwise it shows nothing."""
    assert tally.compared >= tally.distinct > 100, tally
    assert tally.cuts > 30
    assert tally.full > 3
    assert tally.second > 3


@pytest.mark.parametrize("name", sorted(WORKLOADS.keys() - {"jobs"}))
def test_each_workload_keeps_its_promises(tmp_path: Path, name: str) -> None:
    examined(cut(tmp_path, first_seed(name), randoms=8, stride=5, share=20))


@pytest.mark.deep
@pytest.mark.parametrize("name", ["writer", "producers", "cleaning", "topics", "repair"])
def test_each_workload_keeps_its_promises_after_deaths(tmp_path: Path, name: str) -> None:
    """Processes die inside operations, the next ones go on, then the power is cut."""
    examined(cut(tmp_path, first_seed(name, with_deaths=True), randoms=8, stride=7, share=20))


@pytest.mark.parametrize("name", JOBS)
def test_each_job_keeps_its_promises(tmp_path: Path, name: str) -> None:
    tally = cut_job(tmp_path, seed=len(name), randoms=4, stride=4, share=5, name=name)
    assert tally.compared >= tally.distinct > 5 and tally.full and tally.second, tally


@pytest.mark.parametrize("seed", [100, *range(1000, 1006)])
def test_histories_keep_their_promises(tmp_path: Path, seed: int) -> None:
    """100: a process dies in a restart at an offset of a log that begins inside a batch."""
    examined(history.cut_history(tmp_path, seed=seed, randoms=10, share=30))


@pytest.mark.parametrize("seed", [171, 216, 337])
def test_a_new_process_makes_durable_what_a_killed_one_has_left(tmp_path: Path, seed: int) -> None:
    """A roll (171), a restart at an offset (216) and a truncation (337) that were killed, then a power cut."""
    examined(history.cut_history(tmp_path, seed=seed, randoms=10, stride=2, share=30, deaths=True))


def test_one_more_history(tmp_path: Path, crash_seed: int) -> None:
    """The seed is another one in each run."""
    examined(history.cut_history(tmp_path, seed=crash_seed, randoms=10, share=20))


@pytest.mark.deep
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("part", range(PARTS))
def test_a_million_states(part: int, crash_seed: int) -> None:
    """All parts together examine a million states. The parts differ by their seeds."""
    tally, distinct, after, cpu = in_new_process(long.many, STATES_OF_A_PART, (crash_seed + part) * 100_000)
    print(f"{distinct} distinct states to seed {after - 1}, {cpu:.0f} s of CPU: {tally}")
    print(
        f"count: {distinct} different crash states of a simulated disk\ncount: {cpu:.0f} CPU seconds of a simulated disk"
    )
    print(f"count: {tally.second} second crashes during recovery")
    assert distinct >= STATES_OF_A_PART
    assert tally.compared >= distinct


def test_histories_do_everything(tmp_path: Path) -> None:
    """The histories contain each operation, and each kind of ending after unflushed appends."""
    done: set[str] = set()
    unflushed: set[str] = set()
    for seed in range(15):
        one = History(seed)
        one.run(tmp_path / str(seed))
        done |= set(one.done)
        unflushed |= one.unflushed
    assert done == {*OPERATIONS, "stop", "die"}
    assert unflushed == {"stop", "die"}


def test_a_partition_that_was_read_before_need_not_be_opened_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The quick check of topics opens equal partitions once. The content is that of all partitions, opened and read."""
    quick, opened, read = TopicsOpener.quick, 0, 0

    def checked(self: TopicsOpener, state: State, root: Path, recovery: Policy) -> Found:
        nonlocal opened, read
        found = quick(self, state, root, recovery)
        opened, read = len(self._loads.known), read + len(found.content)
        with open_both(root, recovery=recovery) as logs:
            assert content_of(logs) == found.content
        return found

    monkeypatch.setattr(TopicsOpener, "quick", checked)
    tally = cut_topics(tmp_path, seed=3, randoms=2, stride=20, share=1000)
    assert tally.distinct > 30
    assert opened < read


def cut_a_cleaning(place: Path) -> Tally:
    return cut_cleaning(cleaning_of(place, "manager"), stride=40, randoms=2, share=1000)[0]


def cut_many_producers(place: Path) -> Tally:
    return cut_producers(place, stride=20, randoms=4, share=1000)


@pytest.mark.parametrize("workload", [cut_a_cleaning, cut_many_producers])
def test_a_partition_that_is_loaded_alone_is_the_one_that_a_manager_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workload: Callable[[Path], Tally]
) -> None:
    """A quick check starts a manager only for new files outside the partition."""
    opens, alone = PartitionOpener.__call__, 0

    def checked(self: PartitionOpener[Any], state: State, root: Path, recovery: Policy) -> tuple[Start, Any]:
        nonlocal alone
        before = self.through_manager
        start, content = opens(self, state, root, recovery)
        if self.through_manager > before:
            return start, content
        alone += 1
        logs = self._open_logs(root, recovery=recovery)
        try:
            assert content == (self._read(logs.log(self._topic)) if self._topic in logs.topics() else None)
        finally:
            abandon(logs)
        return start, content

    monkeypatch.setattr(PartitionOpener, "__call__", checked)
    tally = workload(tmp_path)
    assert 20 < alone < tally.distinct


def test_a_seed_is_the_same_case_each_time(tmp_path: Path) -> None:
    seed = next(seed for seed in range(50) if History(seed).durability == "os" and name_of(seed) == "history")
    first, second = (cut(tmp_path / run, seed, randoms=4, share=1000) for run in ("first", "second"))
    assert first.steps == second.steps
    assert first.states == second.states


@pytest.mark.parametrize(
    "workload",
    [partial(cut_job, name="finish_a_commit"), partial(cut_job, name="commits_of_a_named_reader"), cut_topics],
)
def test_the_operations_of_a_workload_come_from_one_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workload: Callable[..., Tally]
) -> None:
    """Also where a manager loads and closes several logs: the order of operations of two threads depends on time."""
    step, threads = CrashFiles.step, set[int]()

    def noting(self: CrashFiles, what: str) -> None:
        threads.add(threading.get_ident())
        step(self, what)

    monkeypatch.setattr(CrashFiles, "step", noting)
    workload(tmp_path, seed=1, randoms=1, stride=AT_THE_END, share=1000)
    assert threads == {threading.get_ident()}


def test_a_run_that_compares_nothing_fails(tmp_path: Path) -> None:
    from tests.support.power_cuts import PowerCuts

    with pytest.raises(AssertionError, match="compared nothing"):
        PowerCuts(tmp_path, lambda *_: None, lambda *_: None).run(lambda *_: None)


@pytest.fixture
def only_histories(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workloads, "WORKLOADS", {"history": (1, history.cut_history)})


def test_a_long_run_counts_and_goes_on(
    only_histories: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["long", "--states", "400", "--first", "7"])
    assert long.main() == 0
    shown = capsys.readouterr()
    assert "no violation" in shown.out
    assert "go on with --first 8" in shown.out
    assert "of 400 states" in shown.err


def test_a_long_run_that_was_stopped_goes_on_where_its_file_ends(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def one(seed: int) -> tuple[Tally, float]:
        return Tally(steps=seed, full=1, second=1, digests={*range(90 * seed, 90 * seed + 100)}), 1.5

    monkeypatch.setattr(long, "one", one)
    whole = long.many(700, 7)
    assert long.many(300, 7, file=tmp_path / "run")[1] < whole[1]
    assert long.many(700, 7, file=tmp_path / "run") == whole
    with pytest.raises(ValueError, match="began with seed 7, not 8"):
        long.many(700, 8, file=tmp_path / "run")
