"""Each bug of tests/planted/ can be planted in the current sources. In `deep`, the tests that a bug names find it: a third
of the bugs in each run.

`python -m tools.plant` plants all of them, `python -m tools.plant WORD` some.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.seeds import third
from tools import plant
from tools.broken_copy import ROOT, Copy, occurrences

AREAS = sorted({bug.area for bug in plant.bugs()})
BUGS_MIN = 120


def test_every_planted_bug_fits_the_sources() -> None:
    """If a change of the sources breaks this test, adapt the planted bug to the new code."""
    stale = [bug.name for bug in plant.bugs() if occurrences(bug.change) != 1 or bug.change.old == bug.change.new]
    assert stale == [], "in tests/planted: `old` must occur exactly once in its file"


def test_every_planted_bug_has_a_name_and_tests_that_exist() -> None:
    bugs = plant.bugs()
    assert len({bug.name for bug in bugs}) == len(bugs) >= BUGS_MIN
    for bug in bugs:
        if bug.tests[0] == "make":
            continue
        for test in bug.tests:
            path, _, name = test.partition("::")
            assert f"def {name.partition('[')[0]}(" in (ROOT / path).read_text(), (bug.name, test)


@pytest.mark.deep
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("area", AREAS)
def test_planted_bugs_are_found(tmp_path_factory: pytest.TempPathFactory, area: str, crash_seed: int) -> None:
    copy = Copy(Path(tmp_path_factory.mktemp("planted")))
    bugs = third([bug for bug in plant.bugs() if bug.area == area], crash_seed)
    plant.check_clean(copy, bugs)
    missed = []
    for bug in bugs:
        outcome = plant.plant(copy, bug)
        print(plant.row(bug, outcome))
        if not outcome.found:
            missed.append(bug.name)
    assert missed == []
