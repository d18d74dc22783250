"""Suites of clients against klog's broker: each test that fails is listed with a reason, and each listed test fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.clients import suites
from tests.clients.suite import franz_go, kafka_python, librdkafka
from tests.clients.suite.base import Outcomes, Unavailable


@pytest.mark.deep
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", suites.SUITES)
def test_a_suite_passes(name: str) -> None:
    try:
        report = suites.run(name, "klog")
    except Unavailable as missing:
        pytest.skip(f"needs: {missing}")
    assert report.outcomes
    assert not report.failed, report.table()
    assert not report.unexpected_passes, report.table()


def test_every_entry_of_the_lists_has_a_reason() -> None:
    for name in suites.SUITES:
        for kind in ("klog", "kafka"):
            for known in suites.known(name, kind):
                assert all(isinstance(reason, str) and len(reason) > 10 for reason in known.values()), name


def test_a_report_compares_outcomes_with_the_expected_ones() -> None:
    outcomes: Outcomes = {"a": "passed", "b": "failed", "c": "failed", "d": "passed", "e": "skipped"}
    report = suites.Report("x", "klog", outcomes, {"c": "known", "d": "known"}, {}, 1.0, Path("log"))
    assert report.failed == ["b"]
    assert report.unexpected_passes == ["d"]
    assert "failed: b" in report.table()


def test_outcomes_are_read_from_the_output_of_go() -> None:
    output = "=== RUN   TestA\n=== RUN   TestB\n=== RUN   TestB/part\n--- PASS: TestA (0.1s)\n    --- PASS: TestB/part (0s)\n"
    assert franz_go.outcomes(output) == {"TestA": "passed", "TestB": "failed"}  # TestB did not end


def test_outcomes_are_read_from_a_report_of_librdkafka() -> None:
    report = '{"tests": {"0001_x": {"state": "PASSED"}, "0002_y": {"state": "RUNNING"}}}'
    assert librdkafka.outcome(report, "0001_x") == "passed"
    assert librdkafka.outcome(report, "0002_y") == "failed"
    assert librdkafka.outcome(report, "0003_z") == "skipped"
    assert librdkafka.outcome(report[:-3], "0001_x") == "failed"  # the report is cut off


def test_tests_that_need_a_broker_are_found_in_the_source_of_librdkafka() -> None:
    source = "    _TEST(0001_a, 0),\n    _TEST(0002_b, TEST_F_LOCAL),\n    _TEST(0003_c, TEST_F_SOCKEM, .extra = 1),\n"
    assert librdkafka.tests_of(source) == ["0001_a", "0003_c"]


def test_outcomes_are_read_from_a_report_of_pytest() -> None:
    report = (
        '<testsuites><testsuite><testcase classname="test.x.test_a" name="test_1"/>'
        '<testcase classname="test.x.test_a" name="test_2"><failure/></testcase>'
        '<testcase classname="test.x.test_a" name="test_3"><skipped/></testcase></testsuite></testsuites>'
    )
    assert kafka_python.outcomes(report) == {
        "test_a::test_1": "passed",
        "test_a::test_2": "failed",
        "test_a::test_3": "skipped",
    }
