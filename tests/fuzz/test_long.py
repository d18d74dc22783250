"""A long run counts what libFuzzer reports, goes on where it was stopped, and ends at a finding: with a program in place of
libFuzzer, which takes its options and prints its lines."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz import build, long
from tests.support.patience import until

FAKE = """#!{python}
import os, re, sys, time
runs = int(next(each[6:] for each in sys.argv if each.startswith("-runs=")))
prefix = next(each[17:] for each in sys.argv if each.startswith("-artifact_prefix="))
with open({calls!r}, "a") as calls:
    print(runs, file=calls)
mode = open({mode!r}).read()
if mode == "hang":
    time.sleep(600)
if mode == "crash":
    print("f.c:1: does not hold: 1 == 2", file=sys.stderr)
    print(f"artifact_prefix='x'; Test unit written to {{prefix}}crash-1", file=sys.stderr)
print("#4\\tNEW    cov: 7 ft: 12 corp: 1/1b", file=sys.stderr)
if mode != "crash":
    print(f"#{{runs + 3}}\\tDONE   cov: 9 ft: 21 corp: 2/9b", file=sys.stderr)
print(f"stat::number_of_executed_units: {{runs + 3 - 10 * (mode == 'few')}}", file=sys.stderr)
sys.exit(77 * (mode == "crash"))
"""


class Fake:
    """mode: what the next processes do."""

    def __init__(self, folder: Path) -> None:
        self.program, self.calls, self._mode = folder / "fake", folder / "calls", folder / "mode"
        self.program.write_text(FAKE.format(python=sys.executable, calls=str(self.calls), mode=str(self._mode)))
        self.program.chmod(0o755)
        self.mode("count")

    def mode(self, mode: str) -> None:
        self._mode.write_text(mode)

    @property
    def runs(self) -> list[int]:
        return [int(line) for line in self.calls.read_text().split()]


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    made = Fake(tmp_path)
    monkeypatch.setattr(build, "WORK", tmp_path / "work")
    monkeypatch.setattr(build, "build_fuzzer", lambda _name, fast=False: made.program)
    return made


def test_a_run_goes_on_where_its_file_ends(fake: Fake, tmp_path: Path) -> None:
    file, shown = tmp_path / "long.json", []
    long.go_on(long.Run(["lz4", "varint"], file), 250, turn=100, report=shown.append)
    assert fake.runs == [100, 100, 22, 22]  # 125 each, of which libFuzzer runs three more in a turn
    assert shown == [103, 206, 231, 256]
    long.go_on(run := long.Run(["lz4"], file), 200, jobs=2)
    assert fake.runs[4:] == [72]
    assert run.targets["lz4"].inputs == 203
    stored = json.loads(file.read_text())
    assert [(each["inputs"], each["turns"]) for each in stored.values()] == [(128, 2), (203, 3)]
    assert {(each["edges"], each["features"], each["crashes"]) for each in stored.values()} == {(9, 21, 0)}
    assert all(each["cpu"] > 0 for each in stored.values())
    assert "203" in run.table()


def test_a_crash_ends_a_run(fake: Fake, tmp_path: Path) -> None:
    file = tmp_path / "long.json"
    fake.mode("crash")
    with pytest.raises(long.Finding, match=r"does not hold(?s:.)*again: \S+fake \S+lz4-crash-1\n.*--input \S+ lz4"):
        long.go_on(long.Run(["lz4"], file), 250)
    stored = json.loads(file.read_text())["lz4"]
    assert (stored["crashes"], stored["inputs"]) == (1, 253)


def test_a_turn_that_has_had_fewer_inputs_than_it_reports_ends_a_run(fake: Fake) -> None:
    fake.mode("few")
    with pytest.raises(long.Finding, match="250 inputs asked, 243 counted"):
        long.go_on(long.Run(["lz4"], None), 250)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_run_and_its_processes(fake: Fake, tmp_path: Path, number: signal.Signals) -> None:
    script = (
        "import sys; from tests.fuzz import build, long; "
        f"build.WORK = __import__('pathlib').Path({str(tmp_path / 'work')!r}); "
        f"build.build_fuzzer = lambda name, fast=False: {str(fake.program)!r}; sys.exit(long.main())"
    )
    fake.mode("hang")
    command = [sys.executable, "-c", script, "lz4", "--inputs", "10", "--file", str(tmp_path / "long.json")]
    with subprocess.Popen(command, cwd=build.ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        until(fake.calls.exists)
        (hanging,) = Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text().split()
        run.send_signal(number)
        out, err = run.communicate()
    assert run.returncode == 130
    assert "the same command goes on" in err and "| lz4 " in out
    assert not os.path.exists(f"/proc/{hanging}")


@pytest.mark.deep
@pytest.mark.timeout(900)
def test_a_real_run(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.fuzz.long", "varint", "--inputs", "60000", "--turn", "20000", "--json"]
    done = subprocess.run(
        [*command, "--file", str(tmp_path / "long.json")], cwd=build.ROOT, capture_output=True, text=True, check=False
    )
    if "needs:" in done.stderr:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr[-6000:]
    found = json.loads(done.stdout)["targets"]["varint"]
    assert found["inputs"] >= 60_000 and found["turns"] == 3 and found["edges"] > 100 and found["crashes"] == 0
