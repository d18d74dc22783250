"""The mutants of tools.mutate are valid modules that differ from the source, and those argued equivalent still exist."""

from __future__ import annotations

from tools import mutate
from tools.broken_copy import ROOT


def test_mutants_are_valid_and_different() -> None:
    for module in (*mutate.MUTATED, *mutate.COMPILED):
        source, keys = (ROOT / module).read_text(), list[str]()
        for mutant in mutate.mutants(module):
            if module in mutate.MUTATED:
                compile(mutant.mutated, module, "exec")
            assert mutant.mutated != source
            keys.append(mutant.key)
        assert keys, f"{module}: nothing to change"
        assert len(set(keys)) == len(keys)


def test_equivalent_mutants_exist_and_have_a_reason() -> None:
    files = {entry.file for entry in mutate.argued()}
    known = {file: {(mutate.line_of(m), m.change) for m in mutate.mutants(file)} for file in files}
    for entry in mutate.argued():
        assert (entry.line, entry.change) in known[entry.file], entry
        assert entry.why


def test_every_kind_of_change_is_made() -> None:
    changes = {m.change for module in mutate.MUTATED for m in mutate.mutants(module)}
    changes |= {m.change for module in mutate.COMPILED for m in mutate.mutants(module)}
    for change in (
        "^ → |",
        "return; → ;",
        "< →  <= ",
        "and →  or ",
        "True → False",
        "raise → pass",
        "+ →  - ",
        "0 → 1",
    ):
        assert change in changes
