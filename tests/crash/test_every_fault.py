"""Every fault that a call can have is injected at every call site of file I/O, and every allocation fails.

The table of call sites is made from the sources (tests/support/io_sites.py), so it has each new site at once. A site
must be on the stack of a call of some operation (tests/crash/operations.py), or in unreached_sites.tsv with the reason.
The ordinary run injects a sample of the faults. `deep` injects all, each in one operation, and another sample in each
operation that reaches the call site: `python -m tests.crash.every_fault each` injects these in full.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
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
SAMPLE_OF_EACH = 80  # of 43,000 faults
ALLOCATIONS = 13
FAULTS = {"EIO", "ENOSPC", "EDQUOT", "short", "torn", "lost", "EINTR", "killed"}

UNREACHED = Path(__file__).with_name("unreached_sites.tsv")
SOMETIMES = "sometimes: "  # begins the reason of a site that depends on threads or on the kernel


def ran(*command: str) -> Any:
    return json.loads(preloaded("-m", *command).splitlines()[-1])


def unreached(reason: str = "") -> Counter[str]:
    """The sites that no operation reaches: the number of lines for each Site.key."""
    lines = [line.split("\t") for line in UNREACHED.read_text().splitlines()]
    assert all(len(line) == 2 and line[1] for line in lines)
    return Counter(name for name, why in lines if why.startswith(reason))


def test_every_call_site_is_reached_and_a_sample_of_faults_breaks_no_promise() -> None:
    """If one is not reached: add an operation to tests/crash/operations.py."""
    found = ran("tests.crash.every_fault", "inject", str(SAMPLE))
    missing = Counter(found["missing"])
    assert sorted(missing - unreached()) == [], "no operation reaches these call sites"
    assert sorted(unreached() - missing - unreached(SOMETIMES)) == [], "these are reached: remove their lines"
    assert found["stray"] == [], "file calls whose call site the scanner does not know"
    assert found["sites"] > 400 and found["cells"] > 2000
    assert "\n".join(found["wrong"]) == "" and found["injected"] > 30


def test_the_unreached_sites_exist() -> None:
    assert not unreached() - Counter(site.key for site in sites().values())


def test_every_fault_is_applicable_somewhere_or_has_a_reason() -> None:
    named = {name for names in NOT_APPLICABLE for name in names.split(", ")}
    for call, kinds in APPLICABLE.items():
        assert set(kinds) <= FAULTS | {"killed in the middle", "ENOMEM"}
        assert set(kinds) | named >= FAULTS, f"{call}: a fault is neither applicable nor explained"


@pytest.mark.deep
@pytest.mark.timeout(3600)
def test_every_fault_at_every_call_site_breaks_no_promise() -> None:
    found = ran("tests.crash.every_fault", "inject", "1")
    print(f"count: {found['injected']} faults injected at call sites")
    assert "\n".join(found["wrong"]) == "" and found["injected"] > 2000


@pytest.mark.deep
@pytest.mark.timeout(3600)
def test_a_fault_breaks_no_promise_in_any_operation_that_reaches_its_call_site(crash_seed: int) -> None:
    found = ran("tests.crash.every_fault", "each", str(SAMPLE_OF_EACH), "", str(crash_seed))
    print(f"count: {found['injected']} faults injected in each operation that reaches a call site")
    assert "\n".join(found["wrong"]) == "" and found["injected"] > 300


def test_a_sample_of_failed_allocations_breaks_no_promise() -> None:
    found = ran("tests.crash.every_allocation", str(ALLOCATIONS), "1", "encode")
    assert found["wrong"] == [] and found["failed"]["encode_and_decode"] > 20


@pytest.mark.deep
@pytest.mark.timeout(3600)
def test_a_third_of_all_failed_allocations_breaks_no_promise(crash_seed: int) -> None:
    found = ran("tests.crash.every_allocation", "3", str(1 + crash_seed % 3))
    print(f"count: {sum(found['failed'].values())} failed allocations")
    assert "\n".join(found["wrong"]) == "" and sum(found["failed"].values()) > 1000
