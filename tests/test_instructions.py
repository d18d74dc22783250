"""The instruction counts of csrc stay at bench/baselines/instructions.json, and the gate can fail."""

from __future__ import annotations

import ast
import json
import shutil

import pytest

from bench import instructions


def test_the_hot_loops_take_no_more_instructions_than_before(capfd):
    for program in instructions.needed():
        if shutil.which(program) is None:
            pytest.skip(f"needs: {program}")
    assert instructions.main([]) == 0, "".join(capfd.readouterr())
    assert "validate" in capfd.readouterr().out


def test_a_rise_above_the_margin_fails_and_a_fall_does_not():
    before = {"encode": 100.0, "decode": 200.0, "validate": 50.0}
    changes = instructions.compare({"encode": 102.9, "decode": 206.1, "validate": 40.0}, before)
    assert [round(change.rise, 4) for change in changes] == [0.029, 0.0305, -0.2]
    (messages,) = instructions.failures(changes, instructions.RISE_MAX)
    assert messages == "decode rose by 3.0%, more than 3%"
    assert instructions.failures(changes, instructions.RISE_MAX_OTHER_COMPILER) == []


def test_a_new_or_missing_count_fails():
    messages = instructions.failures(instructions.compare({"new": 1.0}, {"old": 1.0}), 1.0)
    assert messages == ["new has no baseline", "old is in the baseline and is not counted"]


def test_another_compiler_has_a_wider_margin():
    assert instructions.rise_max("gcc 12.2.0", "gcc 12.4.1") == instructions.RISE_MAX
    assert instructions.rise_max("gcc 13.1.0", "gcc 12.4.1") == instructions.RISE_MAX_OTHER_COMPILER
    assert instructions.rise_max("clang 12.2.0", "gcc 12.2.0") == instructions.RISE_MAX_OTHER_COMPILER


def test_the_verdict_is_the_exit_status(capsys, monkeypatch):
    saved = json.loads(instructions.BASELINE.read_text())
    monkeypatch.setattr(instructions, "compiler_name", lambda: saved["compiler"])
    monkeypatch.setattr(instructions.platform, "machine", lambda: saved["machine"])
    counts = dict(saved["counts"])
    assert instructions._judge(counts, saved) == 0
    counts["validate"] *= 1.04
    assert instructions._judge(counts, saved) == 1
    messages = capsys.readouterr().err
    assert "validate rose by 4.0%, more than 3%" in messages
    assert "--save" in messages
    monkeypatch.setattr(instructions.platform, "machine", lambda: "abacus")
    assert instructions._judge(counts, saved) == 0
    assert "no comparison" in capsys.readouterr().out


def test_it_is_built_with_the_packages_flags():
    """The flags are read from setup.py, and must still be the ones that its csrc library is built with."""
    flags = instructions.release_flags()
    assert "-O3" in flags and "-std=c11" in flags
    setup = ast.parse((instructions.ROOT / "setup.py").read_text())
    (cflags,) = (
        value
        for node in ast.walk(setup)
        if isinstance(node, ast.Dict)
        for key, value in zip(node.keys, node.values, strict=True)
        if isinstance(key, ast.Constant) and key.value == "cflags"
    )
    assert ast.unparse(cflags) == "[*FLAGS, *TUNE, *WARN, '-D_GNU_SOURCE', '-fPIC', '-fvisibility=hidden']"
