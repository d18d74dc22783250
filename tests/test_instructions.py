"""The instruction counts of csrc stay at the values in bench/baselines/instructions.json, and the check can fail. The
counts of a fetch and of an append, called from Python, stay at CALLS."""

from __future__ import annotations

import ast
import json
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bench import instructions
from klog.log.read import _fetch
from tests.support.singlestep import steps_of


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
    assert instructions._report(counts, saved) == 0
    counts["validate"] *= 1.04
    assert instructions._report(counts, saved) == 1
    messages = capsys.readouterr().err
    assert "validate rose by 4.0%, more than 3%" in messages
    assert "--save" in messages
    monkeypatch.setattr(instructions.platform, "machine", lambda: "abacus")
    assert instructions._report(counts, saved) == 0
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


# Of a release build with CPython 3.11 and gcc 12. docs/performance.md has them beside their goals.
CALLS = {
    "fetch of one batch at a random offset": 3370,
    "... where the last slice ended": 2720,
    "... at a random offset, read_committed": 3070,
    "... the same, by a snapshot": 3870,
    "append_batches of one batch, leader": 5210,
    "append_batches of one batch, follower": 4830,
    "append_batches of one batch of an idempotent producer": 7220,
    "append of one record": 6210,
}
CALLS_OF = (3, 11), "gcc 12"
CALLS_RISE_MAX = 0.05


def optimisation(module: Path) -> str:
    """The last -O option that gcc has recorded in a native module: "-O3"; "" without a record, as by clang."""
    record = re.search(rb"GNU C\d\d [^\0]+", module.read_bytes())
    return ["-O0", *re.findall(r"-O\w*", record[0].decode())][-1] if record else ""


def test_the_optimisation_of_a_native_module_is_known(tmp_path: Path) -> None:
    if shutil.which("gcc") is None:
        pytest.skip("needs: gcc")
    source, module = tmp_path / "one.c", tmp_path / "one.o"
    source.write_text("int one(void) { return 1; }\n")
    for options, expected in (("-O3 -O1 -g", "-O1"), ("-O1 -O3 -g1", "-O3"), ("-g", "-O0")):
        subprocess.run(
            ["gcc", "-std=c11", *options.split(), "-gz=none", "-c", "-fPIC", source, "-o", module], check=True
        )
        assert optimisation(module) == expected


# The clock stands still, so that no append checks for due tasks. One call in 16 is timed, and one append in 24 adds an entry to
# the index: the smallest count of three is that of the call alone.
_CALLS = """
import struct, sys
import klog
from klog.clock import ManualClock
from klog.record import encode

batch, records = encode([(b"k", b"v" * 100, 1_700_000_000_000)]), [(b"k", b"v" * 100)]

def replicated(offset):
    return struct.pack(">qii", offset, len(batch) - 12, 0) + batch[16:]

def produced(sequence):
    return encode([(b"k", b"v" * 100, 1_700_000_000_000)], producer_id=7, producer_epoch=0, base_sequence=sequence)

with klog.Log.open(sys.argv[1] + "/t-0", clock=ManualClock()) as log:
    for _ in range(400):
        log.append(records)
    reader = log.snapshot()
    read = reader.fetch
    fetch, append, append_batches = log.fetch, log.append, log.append_batches
    for offset in range(1, 20):
        fetch(200, 1), fetch(offset, 1), append(records), append_batches(batch)
        append_batches(replicated(log.log_end_offset), origin="replication"), append_batches(produced(offset - 1))
        fetch(offset, 1, isolation="read_committed"), read(20 * offset, 1, isolation="read_committed")
    trace()
    measured(lambda: None)
    for offset in (100, 200, 150, 151, 152, 153):
        measured(lambda: fetch(offset, 1))
    for offset in (101, 201, 141):
        measured(lambda: fetch(offset, 1, isolation="read_committed"))
    for offset in (101, 201, 141):
        measured(lambda: read(offset, 1, isolation="read_committed"))
    for _ in range(3):
        measured(lambda: append_batches(batch))
    for _ in range(3):
        given = replicated(log.log_end_offset)
        measured(lambda: append_batches(given, origin="replication"))
    for sequence in range(19, 22):
        given = produced(sequence)
        measured(lambda: append_batches(given))
    for _ in range(3):
        measured(lambda: append(records))
    reader.close()
"""


def test_a_fetch_and_an_append_take_no_more_instructions_than_before(tmp_path: Path) -> None:
    if platform.machine() != "x86_64":
        pytest.skip("needs: x86_64")
    if shutil.which(instructions.compiler()[0]) is None:
        pytest.skip(f"needs: {instructions.compiler()[0]}")
    if optimisation(Path(_fetch.__file__)) in ("-O0", "-O1", "-Og"):
        pytest.skip("needs: a build with optimisation, not that of make debug")
    steps = steps_of(_CALLS, str(tmp_path))
    assert len(steps) == 3 * len(CALLS)
    counts = {name: float(min(steps[at * 3 : at * 3 + 3])) for at, name in enumerate(CALLS)}
    same = (sys.version_info[:2], instructions.compiler_name().partition(".")[0]) == CALLS_OF
    margin = CALLS_RISE_MAX if same else instructions.RISE_MAX_OTHER_COMPILER
    assert instructions.failures(instructions.compare(counts, dict(CALLS)), margin) == [], counts
