"""Settings of the whole suite: examples of random tests, valid reasons for skips, and how tests are distributed.

HYPOTHESIS_PROFILE picks dev (the default), ci (the same examples in every run) or deep. --only-needs-skips fails a run
with a skip whose reason is not a missing requirement of the machine: "needs: <what>".

With -n the tests run in that many processes. A file is one unit of work, so that its module's fixtures are created
once; only in the directories of SPLIT, whose tests share nothing and may take minutes, is each test a unit. The tests
that may take longest start first.
"""

from __future__ import annotations

import gc
import os
import signal
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

from tests.support.counts import counts
from tests.support.in_memory import memory
from tests.support.leftovers import NoThreadIsLeft
from tools import snappy_java

if TYPE_CHECKING:
    from xdist.scheduler import LoadFileScheduling

_SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]
settings.register_profile("dev", max_examples=50, deadline=None, suppress_health_check=_SLOW, print_blob=True)
settings.register_profile("ci", settings.get_profile("dev"), max_examples=100, derandomize=True)
settings.register_profile("deep", settings.get_profile("dev"), max_examples=300)  # more: tests/support/examples.py
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))

snappy_java.use_glibc()

# Tests run little in each of Spark's JVMs: without the second compiler and the parallel collector they take a third less
# CPU.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


# network, segment and others have few files; disk, trial, tuning and health look at the disk.
PACKAGES_IN_MEMORY = frozenset(
    [
        "broker",
        "cleaner",
        "cli",
        "coordinator",
        "crash",
        "exporting",
        "handover",
        "history",
        "importing",
        "inspect",
        "log",
        "manager",
        "property",
        "repairing",
        "security",
        "testing",
    ]
)


@pytest.fixture
def tmp_path(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """pytest's tmp_path, but in memory for the packages whose tests sync often. Tests that need the page cache or the disk
    are marked `disk`. If there is no file system in memory, or a small one, every directory is on the disk."""
    package = request.path.relative_to(Path(__file__).parent).parts[0]
    home = memory()
    if home is None or package not in PACKAGES_IN_MEMORY or request.node.get_closest_marker("disk"):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="klog-", dir=home, ignore_cleanup_errors=True) as path:
        yield Path(path)


SPLIT = ("tests/crash/", "tests/property/")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling:
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return nodeid if nodeid.startswith(SPLIT) else super()._split_scope(nodeid)

    config.option.loadscopereorder = False  # it sorts by number of tests; pytest_collection_modifyitems sorts better
    return Scheduling(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):
        items.sort(key=_longest_first)


def pytest_collection_finish() -> None:
    """Leave the collected tests out of garbage collections: a forked child would go through all of them, and copy them."""
    gc.collect()
    gc.freeze()


def _longest_first(item: pytest.Item) -> tuple[float, bool]:
    """Sort the tests by their own time limits, then those that start a JVM or are deep; the others keep their order."""
    limit = item.get_closest_marker("timeout")
    slow = any(item.get_closest_marker(mark) for mark in ("spark", "java", "cargo", "deep"))
    return -(limit.args[0] if limit else 0), not slow


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--only-needs-skips",
        action="store_true",
        help="fail when a test was skipped for a reason that does not start with 'needs:'",
    )


def pytest_configure(config: pytest.Config) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a shell sets it for a job in the background
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # kafka-python reads its message schemas by deprecated calls of importlib.
    config.addinivalue_line("filterwarnings", "ignore:(read|open)_text is deprecated:DeprecationWarning")
    config.pluginmanager.register(_Skips(config.getoption("--only-needs-skips")), "klog-skips")
    config.pluginmanager.register(_Counts(), "klog-counts")
    config.pluginmanager.register(NoThreadIsLeft(), "klog-threads")


class _Counts:
    """Adds up the numbers that tests have counted, and prints the sums at the end, for tools/guarantee_counts.py."""

    def __init__(self) -> None:
        self._found: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.passed:
            self._found += counts(report.capstdout)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._found:
            terminalreporter.section("counted")
            for what, number in sorted(self._found.items()):
                terminalreporter.line(f"count: {number} {what}")


class _Skips:
    """Records every skip whose reason is not `needs: ...`."""

    def __init__(self, strict: bool) -> None:
        self.strict = strict
        self.dishonest: list[str] = []

    def _note(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if not report.skipped or hasattr(report, "wasxfail"):
            return
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        reason = reason.removeprefix("Skipped: ")
        if not reason.startswith("needs:"):
            self.dishonest.append(f"{report.nodeid}: {reason}")

    pytest_runtest_logreport = _note
    pytest_collectreport = _note

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if (
            self.strict
            and self.dishonest
            and session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
        ):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.strict and self.dishonest:
            terminalreporter.section("skipped without 'needs: <what>'")
            for line in self.dishonest:
                terminalreporter.line(line)
