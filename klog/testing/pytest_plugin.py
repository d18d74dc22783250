"""The pytest fixture klog_broker: a new, empty broker for each test that asks for it. Installed with klog.

A failed test reports the newest records of all topics of its broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from klog.testing import TestBroker

_BROKERS = pytest.StashKey[list["TestBroker"]]()


@pytest.fixture
def klog_broker(request: pytest.FixtureRequest) -> Iterator[TestBroker]:
    """A klog.TestBroker, started; `@pytest.mark.klog_broker(topics=["orders"])` gives it arguments."""
    from klog.testing import TestBroker

    marker = request.node.get_closest_marker("klog_broker")
    with TestBroker(**(marker.kwargs if marker else {})) as broker:
        request.node.stash.setdefault(_BROKERS, []).append(broker)
        yield broker


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """Add the records of the broker to the report of a failed test."""
    outcome = yield
    if call.when == "call" and outcome.failed and _BROKERS in item.stash:
        from klog.testing.report import report

        outcome.sections += [("klog_broker", report(broker)) for broker in item.stash[_BROKERS]]
    return outcome


def pytest_configure(config: pytest.Config) -> None:
    """Name the marker."""
    config.addinivalue_line("markers", "klog_broker(**arguments): the arguments of the TestBroker of the fixture")
