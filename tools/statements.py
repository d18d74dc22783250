"""Writes the table of statements about the engine and their tests, tests/statements/README.md, from tests' docstrings.

A statement is one sentence about Kafka's log layer that a test can check. UL: UnifiedLog, LL: LocalLog, LS: LogSegment,
OI TI XI: offset, time and transaction index, LC: loader, PS: producer state, LE: leader epochs, LM: log manager,
CL CM OM: cleaner, its manager, its map of keys. A test's docstring begins with the statements that it proves:
`UL4, UL67: what is true`. Statements that do not concern klog, or not yet, are listed with the reason in
tests/statements/not_here.md.

`python tools/statements.py` writes the table; `--check` fails on a stale table or a statement that no test names.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "tests" / "statements" / "README.md"
NOT_HERE = ROOT / "tests" / "statements" / "not_here.md"
GROUPS = {
    "UL": ("UnifiedLog", 106),
    "LL": ("LocalLog", 14),
    "LS": ("LogSegment", 18),
    "OI": ("offset index", 5),
    "TI": ("time index", 4),
    "XI": ("transaction index", 4),
    "LC": ("loader and recovery", 23),
    "PS": ("producer state", 40),
    "LE": ("leader epoch cache", 14),
    "LM": ("log manager", 13),
    "CL": ("cleaner", 45),
    "CM": ("cleaner manager", 12),
    "OM": ("map of a cleaner", 3),
}
_NAMED = re.compile(r"\s*((?:[A-Z]{1,2}\d+)(?:,\s*[A-Z]{1,2}\d+)*):\s*(.*)", re.DOTALL)
_REASON = re.compile(r"- ((?:[A-Z]{2}\d+)(?:, [A-Z]{2}\d+)*): (\S.*)")


class Proof(NamedTuple):
    """A test, by its address, and its docstring about the statement."""

    test: str
    shows: str


def statements() -> list[str]:
    """Return the id of every statement, in order."""
    return [f"{group}{number}" for group, (_, count) in GROUPS.items() for number in range(1, count + 1)]


def proofs() -> dict[str, list[Proof]]:
    """Return the tests that name each statement."""
    found: dict[str, list[Proof]] = defaultdict(list)
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.FunctionDef) or not node.name.startswith("test_"):
                continue
            named = _NAMED.match(ast.get_docstring(node) or "")
            if named is None:
                continue
            proof = Proof(f"{path.relative_to(ROOT)}::{node.name}", " ".join(named[2].split()).split(". ")[0])
            for statement in re.split(r",\s*", named[1]):
                if statement[:2] in GROUPS:
                    found[statement].append(proof)
    return found


def reasons() -> dict[str, str]:
    """Return, for each statement without a test, the reason."""
    found = {}
    for line in NOT_HERE.read_text().splitlines():
        if (match := _REASON.fullmatch(line)) is not None:
            found.update(dict.fromkeys(match[1].split(", "), match[2]))
    return found


def table(proved: dict[str, list[Proof]], absent: dict[str, str]) -> str:
    """Return the text of the table."""
    lines = [
        "# Statements about the engine, and the tests that prove them",
        "",
        "Made by `python tools/statements.py` from the docstrings of the tests; the letters are explained there.",
    ]
    for group, (title, count) in GROUPS.items():
        lines += ["", f"## {group}: {title}", "", "| statement | test | what it shows |", "|---|---|---|"]
        for statement in (f"{group}{number}" for number in range(1, count + 1)):
            if statement in absent:
                lines.append(f"| {statement} | none | {absent[statement]} |")
            for test, shows in proved.get(statement, ()):
                lines.append(f"| {statement} | `{test.removeprefix('tests/')}` | {shows.replace('|', chr(92) + '|')} |")
    return "\n".join(lines) + "\n"


def problems() -> list[str]:
    """Return all errors of the table, the tests and the reasons."""
    proved, absent = proofs(), reasons()
    known = statements()
    found = [
        f"{statement}: no test names it, and not_here.md has no reason"
        for statement in known
        if statement not in proved and statement not in absent
    ]
    found += [
        f"{statement}: named by a test, but there is no such statement"
        for statement in proved
        if statement not in known
    ]
    found += [
        f"{statement}: in not_here.md, but there is no such statement" for statement in absent if statement not in known
    ]
    found += [
        f"{statement}: in not_here.md, yet {proved[statement][0].test} proves it"
        for statement in absent
        if statement in proved
    ]
    if not found and (not TABLE.exists() or TABLE.read_text() != table(proved, absent)):
        found.append(f"{TABLE.relative_to(ROOT)} is stale: run python tools/statements.py")
    return found


def main() -> int:
    if "--check" not in sys.argv:
        TABLE.write_text(table(proofs(), reasons()))
    found = problems()
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
