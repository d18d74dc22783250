"""The table of statements and tests is complete and up to date."""

from __future__ import annotations

import pytest

from tools import statements


def test_every_statement_has_a_test_or_a_reason() -> None:
    assert statements.problems() == []


def test_a_statement_without_a_test_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    proved = statements.proofs()
    proved.pop("LE1")
    monkeypatch.setattr(statements, "proofs", lambda: proved)
    assert statements.problems() == ["LE1: no test names it, and not_here.md has no reason"]


def test_a_reason_with_a_test_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    absent = {**statements.reasons(), "LE1": "it is too hard"}
    monkeypatch.setattr(statements, "reasons", lambda: absent)
    assert any(line.startswith("LE1: in not_here.md, yet ") for line in statements.problems())
