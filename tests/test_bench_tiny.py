"""The benchmarks still work: every contest, pytest-benchmark test and pyperf script, tiny, answers checked."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from platform import machine

import pytest

ROOT = Path(__file__).resolve().parents[1]
NEEDED = ("aiokafka", "google_crc32c", "pytest_benchmark", "pyperf", "pyarrow")

if absent := [name for name in NEEDED if find_spec(name) is None]:
    pytest.skip(f"needs: {', '.join(absent)} (extra [dev])", allow_module_level=True)


def run(*arguments: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "KLOG_BENCH_TINY": "1"}
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


def test_every_contest_races(tmp_path):
    table = run("-m", "bench.compare", "--tiny", "--save", str(tmp_path / "figures.json"))
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert set(figures["machine"]) == {"cpu", "cores", "kernel", "python", "commit"}
    names = [result["contest"] for result in figures["results"]]
    subjects = {"encode", "decode", "views", "crc32c", "append", "recover", "read", "lookup", "compress", "decompress"}
    assert {name.split()[0] for name in names} == subjects
    if machine() in ("x86_64", "AMD64"):
        assert "crc32c kernels 1KiB" in names
    for result in figures["results"]:
        assert result["contest"] in table
        assert len(result["contestants"]) >= 2
        assert all(contestant["seconds"][0] > 0 for contestant in result["contestants"])
        assert result["contestants"][-1]["ratio"] == 1


def test_every_contestant_under_pytest_benchmark():
    said = run("-m", "pytest", "bench", "--benchmark-disable", "-p", "no:cacheprovider", "-rs")
    assert " passed" in said
    for skip in re.findall("^SKIPPED.*", said, re.MULTILINE):
        assert "needs: " in skip


@pytest.mark.parametrize("script", sorted(path.stem for path in (ROOT / "bench" / "micro").glob("[a-z]*.py")))
def test_micro(script):
    said = run("-m", f"bench.micro.{script}", "--debug-single-value")
    assert "klog" in said


def test_an_unknown_name_lists_the_contests():
    done = subprocess.run(
        [sys.executable, "-m", "bench.compare", "nothing"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 2
    assert "encode 100B" in done.stderr
