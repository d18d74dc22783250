"""Finds threads that a test has started and that still run after it. They would run beside later tests, and change what
those tests count in this process or draw from `random`.

Threads of a Kafka client fail the test: they connect again and again. Other threads cause a warning. A thread that is
about to end is waited for. A thread of a fixture for several tests may run as long as the fixture exists.
"""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Generator, Iterable
from typing import Any

import pytest

CLIENTS = ("kafka", "aiokafka")
CLEANER = "kafka-log-cleaner"  # klog's own, which a broker of several tests starts when a log is to be cleaned
SECONDS = 60.0  # for the threads of a client to end
_SECONDS_OF_OTHERS = 2.0


def _threads() -> set[threading.Thread]:
    """The threads that Python has started. Threads of a library that have called Python cannot be joined."""
    return {thread for thread in threading.enumerate() if not isinstance(thread, threading._DummyThread)}


def _of_client(thread: threading.Thread) -> bool:
    return thread.name.startswith(CLIENTS) and not thread.name.startswith(CLEANER)


def _names(threads: Iterable[threading.Thread]) -> str:
    return ", ".join(sorted(thread.name for thread in threads))


class NoThreadIsLeft:
    """A plugin of pytest."""

    def __init__(self) -> None:
        self._known: set[threading.Thread] = set()
        self._of_fixtures: dict[pytest.FixtureDef[Any], set[threading.Thread]] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self) -> None:
        self._known |= _threads()

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Generator[None, object, object]:
        before = _threads()
        try:
            return (yield)
        finally:
            if fixturedef.scope != "function":
                self._of_fixtures[fixturedef] = _threads() - before

    def pytest_fixture_post_finalizer(self, fixturedef: pytest.FixtureDef[Any]) -> None:
        self._of_fixtures.pop(fixturedef, None)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, object, object]:
        if item.get_closest_marker("spark"):  # PySpark's connection to its JVM, and its threads, are the process's
            result = yield
            self._known |= _threads()
            return result
        try:
            result = yield
        finally:
            left = self._left()
            self._known |= left  # reported once
        clients = set(filter(_of_client, left))
        if left - clients:
            warnings.warn(pytest.PytestWarning(f"{item.nodeid} leaves threads: {_names(left - clients)}"), stacklevel=1)
        assert not clients, f"threads of clients are left: {_names(clients)}; close what has started them"
        return result

    def _left(self) -> set[threading.Thread]:
        """The threads that do not end in time."""
        allowed = self._known.union(*self._of_fixtures.values())
        begin = time.monotonic()
        for thread in _threads() - allowed:
            seconds = SECONDS if _of_client(thread) else _SECONDS_OF_OTHERS
            thread.join(max(0.0, begin + seconds - time.monotonic()))
        return _threads() - allowed
