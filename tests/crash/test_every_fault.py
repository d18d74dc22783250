"""Every call site of file I/O meets every fault that its calls can have, and every allocation fails.

The table of call sites is made from the sources (tests/support/io_sites.py), so a new site is in it at once. It must be on
the stack of a call of some operation (tests/crash/operations.py), or be named here with the reason. The ordinary run
injects a sample of the faults; `deep` injects all.
"""

from __future__ import annotations

import json
import re
import shutil
from functools import cache
from typing import Any

import pytest

from tests.support.intercept import APPLICABLE, NOT_APPLICABLE, preloaded
from tests.support.io_sites import ROOT, sites

needs_debug_info = pytest.mark.skipif(
    shutil.which("addr2line") is None or not (ROOT / "build" / "release" / "cython").is_dir(),
    reason="needs: addr2line, and the C files that Cython has generated (make build)",
)
pytestmark = needs_debug_info
SAMPLE = 60  # every 60th fault in the ordinary run
ALLOCATIONS = 13
FAULTS = {"EIO", "ENOSPC", "EDQUOT", "short", "torn", "lost", "EINTR", "killed"}

ELSEWHERE: dict[str, str] = {}


@cache
def ran(*command: str) -> Any:
    return json.loads(preloaded("-m", *command).splitlines()[-1])


def site_names() -> list[str]:
    return [str(site) for site in sites().values()]


def without_line(name: str) -> str:
    return re.sub(r":\d+ ", " ", name)


def test_every_call_site_is_reached() -> None:
    """A site that is not: add an operation to tests/crash/operations.py."""
    found = ran("tests.crash.every_fault", "reach")
    missing = [name for name in found["missing"] if without_line(name) not in ELSEWHERE]
    assert missing == [], "no operation reaches these call sites"
    assert found["stray"] == [], "file calls whose call site the scanner does not know"
    assert found["sites"] > 400 and found["cells"] > 2000


def test_the_exceptions_exist() -> None:
    assert set(ELSEWHERE) <= {without_line(name) for name in site_names()}


def test_every_fault_is_applicable_somewhere_or_has_a_reason() -> None:
    named = {name for names in NOT_APPLICABLE for name in names.split(", ")}
    for call, kinds in APPLICABLE.items():
        assert set(kinds) <= FAULTS | {"killed in the middle", "ENOMEM"}
        assert set(kinds) | named >= FAULTS, f"{call}: a fault is neither applicable nor explained"


def test_a_sample_of_faults_breaks_no_promise() -> None:
    found = ran("tests.crash.every_fault", "inject", str(SAMPLE))
    assert found["wrong"] == [] and found["injected"] > 30


@pytest.mark.deep
@pytest.mark.timeout(3600)
def test_every_fault_at_every_call_site_breaks_no_promise() -> None:
    found = ran("tests.crash.every_fault", "inject", "1")
    assert "\n".join(found["wrong"]) == "" and found["injected"] > 2000


def test_a_sample_of_failed_allocations_breaks_no_promise() -> None:
    found = ran("tests.crash.every_allocation", str(ALLOCATIONS), "encode")
    assert found["wrong"] == [] and found["failed"]["encode_and_decode"] > 20


@pytest.mark.deep
@pytest.mark.timeout(3600)
def test_every_failed_allocation_breaks_no_promise() -> None:
    found = ran("tests.crash.every_allocation", "1")
    assert "\n".join(found["wrong"]) == "" and sum(found["failed"].values()) > 1000
