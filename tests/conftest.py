"""Settings of the whole suite: how long random tests look, and which skips are honest.

HYPOTHESIS_PROFILE picks dev (the default), ci (the same examples in every run) or deep. --only-needs-skips fails a run
in which a test was skipped for another reason than something that the machine lacks: "needs: <what>".
"""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

_SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]
settings.register_profile("dev", max_examples=50, deadline=None, suppress_health_check=_SLOW, print_blob=True)
settings.register_profile("ci", settings.get_profile("dev"), max_examples=100, derandomize=True)
settings.register_profile("deep", settings.get_profile("dev"), max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--only-needs-skips",
        action="store_true",
        help="fail when a test was skipped for a reason that does not start with 'needs:'",
    )


def pytest_configure(config: pytest.Config) -> None:
    # kafka-python reads its own message schemas by calls that importlib is about to drop.
    config.addinivalue_line("filterwarnings", "ignore:(read|open)_text is deprecated:DeprecationWarning")
    config.pluginmanager.register(_Skips(config.getoption("--only-needs-skips")), "klog-skips")


class _Skips:
    """Remembers every skip whose reason names nothing that is missing."""

    def __init__(self, strict: bool) -> None:
        self.strict = strict
        self.dishonest: list[str] = []

    def _look(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if not report.skipped or hasattr(report, "wasxfail"):
            return
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        reason = reason.removeprefix("Skipped: ")
        if not reason.startswith("needs:"):
            self.dishonest.append(f"{report.nodeid}: {reason}")

    pytest_runtest_logreport = _look
    pytest_collectreport = _look

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
