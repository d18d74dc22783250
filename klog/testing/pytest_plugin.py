"""The pytest fixture klog_broker: a new, empty broker for each test that asks for it. Installed with klog.

A failed test reports the newest records of all topics of its broker.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from klog.testing import TestBroker

# pytest parses and rewrites every module of a package that has a plugin. klog's assert nothing, and its broker imports
# modules in several threads: CPython before 3.11.8 and 3.12.2 raises SystemError when two threads parse at a time.
for _finder in sys.meta_path:
    if isinstance(_names := getattr(_finder, "_must_rewrite", None), set):
        _names.discard("klog")

_BROKERS = pytest.StashKey[list["TestBroker"]]()


@pytest.fixture
def klog_broker(request: pytest.FixtureRequest) -> Iterator[TestBroker]:
    """A klog.TestBroker, started; `@pytest.mark.klog_broker(topics=["orders"])` gives it arguments."""
    from klog.testing import TestBroker

    marker = request.node.get_closest_marker("klog_broker")
    with TestBroker(*(marker.args if marker else ()), **(marker.kwargs if marker else {})) as broker:
        request.node.stash.setdefault(_BROKERS, []).append(broker)
        yield broker


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """Add the records of the broker to the report of a failed test, or of a fixture that failed after klog_broker."""
    outcome = yield
    if call.when != "teardown" and outcome.failed and _BROKERS in item.stash:
        from klog.testing.report import report

        outcome.sections += [("klog_broker", report(broker)) for broker in item.stash[_BROKERS]]
    return outcome


def pytest_configure(config: pytest.Config) -> None:
    """Name the marker."""
    config.addinivalue_line("markers", "klog_broker(**arguments): the arguments of the TestBroker of the fixture")
