"""README.md has a row for every rule and fault, and names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
PAGE = (TESTS / "crash" / "README.md").read_text()
ROWS = {match[1]: match[2] for match in re.finditer(r"^\| ([A-Z]\d+) \|.*\| (`.*`) \|$", PAGE, re.MULTILINE)}


def test_every_rule_and_fault_has_a_row() -> None:
    expected = [("S", 12), ("W", 5), ("F", 32)]
    assert list(ROWS) == [f"{letter}{number}" for letter, last in expected for number in range(1, last + 1)]


def test_the_tests_of_the_table_exist() -> None:
    for row, shown_by in ROWS.items():
        for test in shown_by.split(", "):
            path, _, name = test.strip("`").partition("::")
            assert f"def {name}(" in (TESTS / path).read_text(), (row, test)
