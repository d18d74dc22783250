"""Instruction counts of the hot loops, which noise does not affect: python -m bench.instructions [--save]

bench/instructions.c is built with csrc and the flags of setup.py, and run once under callgrind. The result depends
on the source and the compiler, not on the machine's speed, its load, or its processor's features (instructions.c, G2).
The counts are compared with bench/baselines/instructions.json:

  M1  with the compiler of the baseline (same name, same major version) a count may rise by 3 %: it includes libc's
      malloc, and minor versions of a compiler differ;
  M2  with another compiler it may rise by 50 %: its loops differ (clang 14 takes up to 30 % more here than gcc 12), so
      only a large rise is significant;
  M3  for another kind of processor there is no baseline: the counts are printed, and nothing fails.

A count that falls does not fail: save the new one as the baseline. To accept an intended rise (for example, one more
check), use --save in the same commit, and give the reason in its message.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
BASELINE = ROOT / "bench" / "baselines" / "instructions.json"
RISE_MAX = 0.03
RISE_MAX_OTHER_COMPILER = 0.50
HOW_TO_ACCEPT = (
    "If the rise is intended: python -m bench.instructions --save, and give the reason in the commit. Else: "
    "callgrind_annotate shows where the instructions are (--keep DIR keeps its file)."
)

# Flags that Python's own build adds to those of setup.py and that change the code.
_PYTHON_FLAGS = ("-DNDEBUG", "-fwrapv")
_DEBUG_FORMAT = "-gdwarf-4"  # the newest that valgrind reads from every compiler
_COUNT = re.compile(r"^cfn=measure_(\w+)\ncalls=1 .*\n\S+ (\d+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Change:
    """A count now and in the baseline; None where it is missing."""

    name: str
    now: float | None
    baseline: float | None

    @property
    def rise(self) -> float:
        """The relative change: 0.1 for ten percent more than the baseline, 0 if one of the counts is missing."""
        return self.now / self.baseline - 1 if self.now is not None and self.baseline else 0.0


def compiler() -> list[str]:
    """Return the command of the C compiler: CC, or cc."""
    return shlex.split(os.environ.get("CC", "cc"))


def needed() -> tuple[str, ...]:
    """Return the programs that a run needs."""
    return "valgrind", compiler()[0]


def compiler_name() -> str:
    """Return the name and version of the compiler, whatever its command is named: "gcc 12.2.0"."""
    asked = [*compiler(), "-dM", "-E", "-x", "c", os.devnull]
    output = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
    macros = dict(line.split(" ", 2)[1:] for line in output.splitlines() if line.count(" ") >= 2)
    if "__clang__" in macros:
        name, parts = "clang", ("__clang_major__", "__clang_minor__", "__clang_patchlevel__")
    else:
        name, parts = "gcc", ("__GNUC__", "__GNUC_MINOR__", "__GNUC_PATCHLEVEL__")
    return f"{name} {'.'.join(macros[part] for part in parts)}"


def release_flags() -> list[str]:
    """The flags that setup.py gives to csrc in a release build, read, not run."""
    found: dict[str, Any] = {}
    for node in ast.parse((ROOT / "setup.py").read_text()).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            value = node.value.value if isinstance(node.value, ast.Subscript) else node.value
            value = value.body if isinstance(value, ast.IfExp) else value
            if node.targets[0].id in ("FLAGS", "TUNE", "WARN"):
                found[node.targets[0].id] = ast.literal_eval(value)
    tune = found["TUNE"] if platform.machine() == "x86_64" else []
    return [*found["FLAGS"]["release"], *tune, *found["WARN"]]


def build(target: Path) -> None:
    """Compile the driver and csrc."""
    flags = [*_PYTHON_FLAGS, *release_flags(), "-D_GNU_SOURCE", "-fPIC", "-fvisibility=hidden", _DEBUG_FORMAT]
    sources = sorted((ROOT / "csrc").glob("*.c"))
    subprocess.run(
        [
            *compiler(),
            *flags,
            f"-I{ROOT / 'csrc'}",
            str(ROOT / "bench" / "instructions.c"),
            *map(str, sources),
            "-o",
            target,
        ],
        check=True,
    )


def count(folder: Path) -> dict[str, float]:
    """Build and run the driver. Returns the instructions per record, lookup or KiB, by name, in the driver's order."""
    driver, profile = folder / "instructions", folder / "callgrind.out"
    build(driver)
    done = subprocess.run(
        [
            "valgrind",
            "-q",
            "--tool=callgrind",
            "--toggle-collect=measure_*",
            "--compress-strings=no",
            "--compress-pos=no",
            f"--callgrind-out-file={profile}",
            str(driver),
        ],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    units = {name: int(number) for name, number in (line.split() for line in done.stdout.splitlines())}
    totals = {name: int(total) for name, total in _COUNT.findall(profile.read_text())}
    if set(units) != set(totals):
        raise RuntimeError(f"callgrind did not see {sorted(set(units) ^ set(totals))}: were they inlined?")
    return {name: round(totals[name] / units[name], 2) for name in units}


def compare(counts: dict[str, float], baseline: dict[str, float]) -> list[Change]:
    return [Change(name, counts.get(name), baseline.get(name)) for name in {**counts, **baseline}]


def rise_max(compiler_now: str, compiler_then: str) -> float:
    """Return the permitted rise, by M1 or M2."""
    return RISE_MAX if _major(compiler_now) == _major(compiler_then) else RISE_MAX_OTHER_COMPILER


def failures(changes: list[Change], margin: float) -> list[str]:
    messages = []
    for change in changes:
        if change.baseline is None:
            messages.append(f"{change.name} has no baseline")
        elif change.now is None:
            messages.append(f"{change.name} is in the baseline and is not counted")
        elif change.rise > margin:
            messages.append(f"{change.name} rose by {change.rise:.1%}, more than {margin:.0%}")
    return messages


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.instructions", description="instruction counts of csrc")
    parser.add_argument("--save", action="store_true", help="make the current counts the baseline")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the driver and callgrind.out in DIR")
    asked = parser.parse_args(arguments)
    for program in needed():
        if shutil.which(program) is None:
            parser.exit(2, f"needs: {program}\n")
    if asked.keep:
        asked.keep.mkdir(parents=True, exist_ok=True)
        counts = count(asked.keep)
    else:
        with tempfile.TemporaryDirectory(prefix="klog-instructions-") as folder:
            counts = count(Path(folder))
    if asked.save:
        return _save(counts)
    return _report(counts, json.loads(BASELINE.read_text()))


def _save(counts: dict[str, float]) -> int:
    described = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    baseline = {
        "commit": subprocess.run(described, capture_output=True, text=True, check=True, cwd=ROOT).stdout.strip(),
        "compiler": compiler_name(),
        "machine": platform.machine(),
        "unit": "instructions per record, per lookup, or per KiB of crc32c",
        "counts": counts,
    }
    BASELINE.write_text(json.dumps(baseline, indent=1) + "\n")
    print(f"saved {BASELINE.relative_to(ROOT)}")
    return 0


def _report(counts: dict[str, float], saved: dict[str, Any]) -> int:
    now = compiler_name()
    if saved["machine"] != platform.machine():
        print(f"the baseline is of {saved['machine']}; this is {platform.machine()}: no comparison")
        for name, value in counts.items():
            print(f"{name:<24} {value:>10.2f}")
        return 0
    changes, margin = compare(counts, saved["counts"]), rise_max(now, saved["compiler"])
    print(f"{'instructions':<24} {'now':>10} {'baseline':>10} {'change':>8}")
    for change in changes:
        cells = ("-" if value is None else f"{value:.2f}" for value in (change.now, change.baseline))
        print(f"{change.name:<24} {' '.join(f'{cell:>10}' for cell in cells)} {change.rise:>+8.1%}")
    other = "" if margin == RISE_MAX else f": the baseline is by {saved['compiler']}, so only a large rise counts"
    print(f"\n{now}, baseline of {saved['commit']}; a rise of up to {margin:.0%} passes{other}")
    wrong = failures(changes, margin)
    for line in wrong:
        print(line, file=sys.stderr)
    if wrong:
        print(HOW_TO_ACCEPT, file=sys.stderr)
    elif any(change.rise < -margin for change in changes):
        print("counts fell: save them as the new baseline, so that they stay low")
    return 1 if wrong else 0


def _major(compiler_name: str) -> str:
    return compiler_name.partition(".")[0]


if __name__ == "__main__":
    sys.exit(main())
