"""The cleaner's threads: the events that end them, their metrics, and calls that run concurrently with them."""

from __future__ import annotations

import gc
import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import klog
from klog.cleaner import RoundStats
from klog.clock import ManualClock, SystemClock
from klog.errors import InvalidConfig, KlogError
from klog.manager.throttle import Throttle
from tests.manager.cleaned_logs import NOW, checkpoints, dirty, first_dirty, is_clean, opened, pass_time, topic, values
from tests.support.patience import until

GAUGES = {
    "max-buffer-utilization-percent",
    "cleaner-recopy-percent",
    "max-clean-time-secs",
    "max-compaction-delay-secs",
    "DeadThreadCount",
    "uncleanable-partitions-count",
    "uncleanable-bytes",
    "max-dirty-percent",
    "time-since-last-run-ms",
}
OFTEN = {"log.cleaner.backoff.ms": 5}


def cleaners() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("kafka-log-cleaner-thread")]


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A cleaning waits for the throttle at its first chunk, until it is ended."""
    monkeypatch.setattr(Throttle, "count", lambda _throttle, _size: float("inf"))
    yield
    monkeypatch.undo()


def test_threads_clean_and_end(tmp_path: Path) -> None:
    with opened(tmp_path, SystemClock(), {**OFTEN, "log.cleaner.threads": 2}) as logs:
        several = [topic(logs, f"t{n}") for n in range(4)]
        for log in several:
            dirty(log)
        logs.start()
        assert len(cleaners()) == 2
        logs.start()
        assert len(cleaners()) == 2
        until(lambda: all(map(is_clean, several)))
        dirty(several[1], value=b"w", rounds=8)
        until(lambda: is_clean(several[1]))
    assert cleaners() == []


def test_a_manager_that_was_never_closed_warns(tmp_path: Path) -> None:
    logs = [opened(tmp_path, SystemClock(), OFTEN)]
    dirty(topic(logs[0], "t"))
    logs[0].start()
    until(lambda: first_dirty(logs[0].log("t")))

    def forget() -> None:
        logs.clear()
        until(lambda: gc.collect() >= 0 and not cleaners())

    with pytest.warns(ResourceWarning, match="never closed"):
        forget()


# ---- metrics ---------------------------------------------------------------------------------------------------------


def test_gauges_exist_as_long_as_the_cleaner(tmp_path: Path) -> None:
    """CL40: the metrics exist while the cleaner runs, also after a reconfiguration, and not before and after. They are
    0 while nothing was cleaned, then the largest value of the last cleanings of the threads."""
    clock = ManualClock(NOW)
    with opened(tmp_path, clock) as logs:
        assert GAUGES.isdisjoint(logs.metrics())
        log = topic(logs, "t")
        logs.start()
        metrics = logs.metrics()
        assert set(metrics) >= GAUGES
        for name in GAUGES:
            assert set(metrics[name].values()) == {0}, name
        dirty(log)
        pass_time(clock)
        metrics = logs.metrics()
        (share,) = metrics["cleaner-recopy-percent"].values()
        assert 0 < share < 50
        assert metrics["max-buffer-utilization-percent"][""] == pytest.approx(100 * 5 / ((1 << 20) // 24))
        assert metrics["time-since-last-run-ms"] == {"": 0}
        logs.alter_config({"log.cleaner.dedupe.buffer.size": 1 << 21})
        assert set(logs.metrics()) >= GAUGES
        logs._cleaner.stop()
        assert GAUGES.isdisjoint(logs.metrics())


def test_gauges_of_several_threads(tmp_path: Path) -> None:
    """CL40: the value is the maximum of all threads, or a ratio over all threads."""
    with opened(tmp_path, SystemClock(), {"log.cleaner.threads": 3}) as logs:
        logs.start()
        until(lambda: len(logs._cleaner._workers) == 3)
        for number, worker in enumerate(logs._cleaner._workers):
            stats = RoundStats(map_utilization=number / 10, bytes_read=100, bytes_written=10 * number)
            worker.cleaned(stats, number)
            worker.surveyed(number * 1000)
        metrics = logs.metrics()
        assert metrics["max-buffer-utilization-percent"] == {"": pytest.approx(20)}
        assert metrics["cleaner-recopy-percent"] == {"": pytest.approx(10)}
        assert metrics["max-clean-time-secs"] == {"": 2}
        assert metrics["max-compaction-delay-secs"] == {"": 2}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_threads_that_die_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CL44: each dead thread is counted. Its log is released, and a reconfiguration starts new threads."""
    with opened(tmp_path, SystemClock(), {**OFTEN, "log.cleaner.threads": 2}) as logs:
        several = [topic(logs, f"t{n}") for n in range(2)]
        from klog.manager import cleaner_work

        class Death(BaseException):
            pass

        def die(*_args: Any, **_more: Any) -> None:
            raise Death

        with monkeypatch.context() as broken:
            broken.setattr(cleaner_work, "clean_round", die)
            logs.start()
            assert logs.metrics()["DeadThreadCount"] == {"": 0}
            for log in several:
                dirty(log)
            until(lambda: logs.metrics()["DeadThreadCount"] == {"": 2})
        assert [log._core.cleaning.state for log in several] == ["none", "none"]
        logs.alter_config({"log.cleaner.dedupe.buffer.size": 1 << 21})
        assert logs.metrics()["DeadThreadCount"] == {"": 0}
        until(lambda: all(map(is_clean, several)))


# ---- another configuration -------------------------------------------------------------------------------------------


def test_the_rate_changes_in_place(tmp_path: Path) -> None:
    """CL41: the threads continue with the new rate."""
    with opened(tmp_path, SystemClock(), {"log.cleaner.io.max.bytes.per.second": 10e6}) as logs:
        logs.start()
        before, throttle = cleaners(), logs._cleaner._throttle
        assert throttle.rate == 10e6
        logs.alter_config({"log.cleaner.io.max.bytes.per.second": 20e6})
        assert logs._cleaner._throttle is throttle
        assert throttle.rate == 20e6
        assert cleaners() == before


def test_a_new_rate_wakes_threads_that_wait_for_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = {**OFTEN, "log.cleaner.io.max.bytes.per.second": 1.0}
    with opened(tmp_path, SystemClock(), config) as logs:
        log = topic(logs, "t")
        dirty(log)
        with monkeypatch.context() as slow:
            slow.setattr(Throttle, "count", lambda _throttle, _size: 1e6)
            logs.start()
            until(lambda: log._core.cleaning.state == "in progress")
            assert not is_clean(log)
        logs.alter_config({"log.cleaner.io.max.bytes.per.second": 1e9})
        until(lambda: is_clean(log))


def test_reconfiguring_threads_and_memory(tmp_path: Path) -> None:
    """CL45: a reconfiguration from one thread with hardly any memory to two with more; the cleaning completes.

    Kafka's test makes no progress with log.cleaner.io.buffer.size=1. klog's chunks do not depend on it: they have their
    own size and grow with the largest batch.
    """
    config = {**OFTEN, "log.cleaner.io.buffer.size": 1, "log.cleaner.dedupe.buffer.size": 24 * 3}
    with opened(tmp_path, SystemClock(), config) as logs:
        log = topic(logs, "t", **{"min.cleanable.dirty.ratio": 0.0})
        dirty(log, keys=20)
        logs.start()
        more = {"log.cleaner.io.buffer.size": 100_000, "log.cleaner.dedupe.buffer.size": 1 << 20}
        logs.alter_config({**more, "log.cleaner.threads": 2})
        assert len(cleaners()) == 2
        settings = logs._cleaner._settings
        assert settings is not None
        assert settings.map_bytes == 1 << 19
        until(lambda: is_clean(log))
        for threads, wrong in ((5, True), (4, False), (1, True), (2, False)):
            if wrong:
                with pytest.raises(InvalidConfig):
                    logs.alter_config({"log.cleaner.threads": threads})
            else:
                logs.alter_config({"log.cleaner.threads": threads})
                assert len(cleaners()) == threads


# ---- beside a cleaning -----------------------------------------------------------------------------------------------


def held_log(logs: klog.LogManager) -> klog.Log:
    """A log that is being cleaned until the cleaning is ended."""
    log = topic(logs, "t", **{"min.cleanable.dirty.ratio": 0.0})
    dirty(log)
    logs.start()
    until(lambda: log._core.cleaning.state == "in progress")
    return log


ENDS: dict[str, Callable[[klog.LogManager, klog.Log], object]] = {
    "truncate_to": lambda _logs, log: log.truncate_to(7),
    "truncate_fully": lambda _logs, log: log.truncate_fully_and_start_at(0),
    "close": lambda _logs, log: log.close(),
    "delete": lambda logs, _log: logs.delete_topic("t"),
    "not compacted": lambda logs, _log: logs.alter_topic("t", {"cleanup.policy": "delete"}),
    "not compacted by default": lambda logs, _log: logs.alter_config({"log.cleanup.policy": "delete"}),
    "reconfigure": lambda logs, _log: logs.alter_config({"log.cleaner.dedupe.buffer.size": 1 << 21}),
    "close all": lambda logs, _log: logs.close(),
}


@pytest.mark.usefixtures("held")
@pytest.mark.parametrize("name", ENDS)
def test_calls_that_end_a_cleaning(tmp_path: Path, name: str) -> None:
    """CM7: truncation, deletion and other calls that need the segments end the cleaning. While they run, no thread
    cleans the log."""
    broker = {"log.cleaner.backoff.ms": 3_600_000}
    if name == "not compacted by default":
        broker["log.cleanup.policy"] = "compact"
    with opened(tmp_path, SystemClock(), broker) as logs:
        if name == "not compacted by default":
            logs.create_topic("t", config={"segment.bytes": 16384, "min.cleanable.dirty.ratio": 0.0})
            log = logs.log("t")
            dirty(log)
            logs.start()
            until(lambda: log._core.cleaning.state == "in progress")
        else:
            log = held_log(logs)
        ENDS[name](logs, log)
        if name == "reconfigure":
            until(lambda: log._core.cleaning.state == "in progress")  # by a new thread
        else:
            assert log._core.cleaning.state == "none"
    assert checkpoints(tmp_path) == {}
    assert not [path for path in tmp_path.rglob("*.cleaned") if "-delete" not in str(path)]


@pytest.mark.usefixtures("held")
def test_a_move_ends_a_cleaning(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    with klog.open([a, b], create=True, config={"log.cleaner.backoff.ms": 3_600_000}) as logs:
        logs.create_topic("t", config={"cleanup.policy": "compact"}, directory=a)
        log = logs.log("t")
        dirty(log)
        before = values(log)
        logs.start()
        until(lambda: log._core.cleaning.state == "in progress")
        logs.move("t", 0, b)
        assert log._core.cleaning.state == "none"
        assert values(log) == before


@pytest.mark.usefixtures("held")
def test_compact_ends_a_background_cleaning(tmp_path: Path) -> None:
    """compact() of a log that is being cleaned ends that cleaning and does all of the work itself."""
    with opened(tmp_path, SystemClock(), OFTEN) as logs:
        log = held_log(logs)
        assert log.compact().rounds == 1
        assert is_clean(log)
        assert first_dirty(log) == 20


def test_two_concurrent_compact_calls(tmp_path: Path) -> None:
    """They run one after the other: neither finds the files of the other, or loses its results."""
    with opened(tmp_path, SystemClock()) as logs:
        log, failures = topic(logs, "t"), []
        for number in range(3):
            dirty(log, value=b"%d" % number)

        def compact() -> None:
            try:
                for _ in range(3):
                    log.compact(roll=True)
                    log.append([(b"more", b"x")])
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=compact) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        log.compact(roll=True)
        assert sorted(dict(values(log))) == [b"active", *(b"key-%d" % key for key in range(5)), b"more"]
        assert is_clean(log)


# ---- everything at once ----------------------------------------------------------------------------------------------


class Life:
    """The single writer of a topic: its operations, and the records that the log must have."""

    def __init__(self, logs: klog.LogManager, name: str, seed: int) -> None:
        self.logs, self.name = logs, name
        self.chance = random.Random(seed)
        self.written: list[tuple[int, bytes, bytes]] = []  # (offset, key, value)
        self.number = 0
        self.create()

    def create(self) -> None:
        topic(self.logs, self.name, **{"segment.bytes": 1000, "min.cleanable.dirty.ratio": 0.1, "retention.ms": -1})
        self.written = []

    def step(self) -> None:
        chance, log = self.chance, self.logs.log(self.name)
        kind = chance.random()
        if kind < 0.80:
            pairs = [
                (b"%d" % chance.randrange(12), b"%06d" % (self.number + n)) for n in range(chance.randrange(1, 12))
            ]
            self.number += len(pairs)
            first = log.append(pairs).first_offset
            self.written += [(first + n, key, value) for n, (key, value) in enumerate(pairs)]
        elif kind < 0.85:
            log.roll()
        elif kind < 0.90 and self.written:
            self.truncate(log, chance.choice(self.written)[0])
        elif kind < 0.94:
            policy = chance.choice(["compact", "compact,delete", "delete"])
            self.logs.alter_topic(self.name, {"cleanup.policy": policy})
        elif kind < 0.97:
            log.apply_retention()
        elif kind < 0.98:
            if log.config.compacts:
                log.compact()
        elif kind < 0.99:
            log.close()
        else:
            self.logs.delete_topic(self.name)
            self.create()

    def truncate(self, log: klog.Log, offset: int) -> None:
        """Records that compaction removed for a record that is now truncated stay removed, as in Kafka."""
        log.truncate_to(offset)
        there = {record.offset for record in log.read(isolation="log_end")}
        self.written = [entry for entry in self.written if entry[0] in there]

    def check(self) -> None:
        log = self.logs.log(self.name)
        model = {key: value for _, key, value in self.written}
        found = [(record.offset, record.key, record.value) for record in log.read(isolation="log_end")]
        assert set(found) <= set(self.written)
        assert {key: value for _, key, value in found} == model
        self.logs.alter_topic(self.name, {"cleanup.policy": "compact"})
        log.compact(roll=True)
        assert dict(values(log)) == model
        assert len(values(log)) == len(model)


def live(directory: Path, seed: int, steps: int) -> None:
    """Writers of topics, each in a thread, beside two cleaner threads and the scheduler."""
    config = {
        **OFTEN,
        "log.cleaner.threads": 2,
        "log.initial.task.delay.ms": 1,
        "log.retention.check.interval.ms": 5,
        "log.cleaner.io.max.bytes.per.second": 50e6,
    }
    failures: list[BaseException] = []
    with opened(directory, SystemClock(), config) as logs:
        logs.start()
        lives = [Life(logs, f"t{number}", seed * 10 + number) for number in range(3)]

        def run(life: Life) -> None:
            try:
                for _ in range(steps):
                    life.step()
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=run, args=(life,)) for life in lives]
        for thread in threads:
            thread.start()
        for number in range(4):
            logs.alter_config({"log.cleaner.dedupe.buffer.size": (1 << 20) + number})
            logs.metrics()
            if not any(thread.is_alive() for thread in threads):
                break
        for thread in threads:
            thread.join()
        for failure in failures:
            raise failure
        assert logs.uncleanable == {}
        assert logs.offline_directories == {}
        assert logs.metrics()["DeadThreadCount"] == {"": 0}
        assert logs.metrics()["cleaner-recopy-percent"][""] > 0  # the background cleaned too
        for life in lives:
            life.check()
            assert logs.log(life.name)._core.cleaning.pauses == 0


def test_all_operations_concurrently(tmp_path: Path) -> None:
    """CM7: appends, truncations, retention, changes of policy, deletions and calls of compact() keep the latest
    values."""
    live(tmp_path, 1, 1000)


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(2, 12))
def test_all_operations_concurrently_for_longer(tmp_path: Path, seed: int) -> None:
    """CM7: as above, with other seeds and more steps."""
    try:
        live(tmp_path, seed, 5000)
    except KlogError as error:
        raise AssertionError(f"seed {seed}") from error
