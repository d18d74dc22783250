"""A pytest plugin that writes which lines of the mutated modules each test reaches, and the seconds of each test.

    python -m pytest -p tools.lines_by_test --lines-by-test=FILE tests/log

FILE: {test: {"seconds": s, "lines": {module: [line, ...]}}}. Lines that child processes reach are missing.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from tools.mutate import MUTATED


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--lines-by-test", metavar="FILE", type=Path, help="where to write the lines")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(_Lines(config.rootpath, config.getoption("--lines-by-test")))


class _Lines:
    def __init__(self, root: Path, file: Path) -> None:
        self._modules = {str(root / module): module for module in MUTATED}
        self._file = file
        self._reached: defaultdict[str, set[int]] = defaultdict(set)
        self._tests: dict[str, Any] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._reached.clear()
        began = time.monotonic()
        threading.settrace(self._call)
        sys.settrace(self._call)
        try:
            return (yield)
        finally:
            sys.settrace(None)
            threading.settrace(None)  # type: ignore[arg-type]
            if self._reached:
                lines = {module: sorted(found) for module, found in self._reached.items()}
                self._tests[item.nodeid] = {"seconds": time.monotonic() - began, "lines": lines}

    def _call(self, frame: FrameType, event: str, _: object) -> Any:
        module = self._modules.get(frame.f_code.co_filename)
        if module is None:
            return None
        found = self._reached[module]
        found.add(frame.f_lineno)

        def line(frame: FrameType, event: str, _: object) -> Any:
            found.add(frame.f_lineno)
            return line

        return line

    def pytest_sessionfinish(self) -> None:
        self._file.write_text(json.dumps(self._tests))
