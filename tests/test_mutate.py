"""The mutants of tools.mutate are valid modules that differ from the source, and those argued equivalent still exist."""

from __future__ import annotations

from tools import mutate
from tools.broken_copy import ROOT


def test_mutants_are_valid_and_different() -> None:
    for module in mutate.MUTATED:
        source, keys = (ROOT / module).read_text(), set()
        for mutant in mutate.mutants(module):
            compile(mutant.mutated, module, "exec")
            assert mutant.mutated != source
            keys.add(mutant.key)
        assert keys, f"{module}: nothing to change"


def test_equivalent_mutants_exist_and_have_a_reason() -> None:
    for entry in mutate.argued():
        found = [m for m in mutate.mutants(entry["file"]) if m.change == entry["change"]]
        assert any(mutate.line_of(m) == entry["line"] for m in found), entry
        assert entry["why"]


def test_every_kind_of_change_is_made() -> None:
    changes = {m.change for module in mutate.MUTATED for m in mutate.mutants(module)}
    for change in ("< →  <= ", "and →  or ", "True → False", "raise → pass", "+ →  - ", "0 → 1"):
        assert change in changes
