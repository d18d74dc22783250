"""Lines that the inputs of the fuzz targets reach: tools/fuzz_coverage.sh, which makes the build that counts them.

The C targets are linked with that build's csrc library, the Python targets use its extensions; every input of the
repository is read once, and every prefix of the short ones. Lines that only a search reaches are not counted.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import shlex
import subprocess
import sys
from collections import Counter
from pathlib import Path

from tests.fuzz import build
from tests.fuzz.programs import write_header

SCANNERS = ("klog/record", "klog/segment", "klog/codec", "klog/cleaner")
"""Packages whose Cython modules take bytes apart."""
PARSERS = [
    f"csrc/{name}.c"
    for name in ("batch", "clean", "columns", "headers", "index", "leader", "legacy", "lz4", "rows", "wire")
]
LEAST = 0.7
"""Files that take hostile bytes apart, and the least share of their lines that inputs must reach."""
_FLAVOUR = build.ROOT / "build" / "coverage"


def _run_c_target(name: str) -> None:
    library = _FLAVOUR / "lib" / "libklogcore.a"
    program = build.WORK / "coverage" / name
    program.parent.mkdir(parents=True, exist_ok=True)
    sources = [str(build.HERE / f"{name}_fuzz.c"), str(build.HERE / "replay.c"), str(library)]
    if name == "wire":
        write_header(program.parent)
    folders = [f"-I{build.ROOT / 'csrc'}", f"-I{build.HERE}", f"-I{program.parent}"]
    flags = ["-std=c11", "-D_GNU_SOURCE", "-O1", *folders, "--coverage", "-lpthread"]
    compiler = shlex.split(os.environ.get("CC", "cc"))
    # With --coverage only for the linker: the target's own lines do not count.
    subprocess.run([*compiler, *flags, *sources, "-o", str(program)], check=True, cwd=program.parent)
    subprocess.run([program, *map(str, build.inputs(name))], check=True, capture_output=True)


def _run_python_target(name: str) -> None:
    from tests.fuzz.face import TARGETS

    for path in build.inputs(name):
        TARGETS[name](path.read_bytes())


def executed() -> dict[str, Counter[bool]]:
    """Lines by whether they were executed, by file of csrc and of the Cython modules."""
    lines: dict[str, dict[int, bool]] = {}
    for data in sorted(_FLAVOUR.rglob("*.gcda")):
        done = subprocess.run(
            ["gcov", "--json-format", "--stdout", str(data)], capture_output=True, check=True, cwd=build.ROOT
        )
        for each in done.stdout.splitlines():
            for file in json.loads(each)["files"]:
                path = os.path.relpath(build.ROOT / file["file"], build.ROOT)
                counts = {line["line_number"]: line["count"] for line in file["lines"]}
                if path.startswith("csrc/"):
                    _add(lines.setdefault(path, {}), counts)
                elif path.endswith(".c") and (pyx := _source_of(path)).startswith(SCANNERS):
                    _add(lines.setdefault(pyx, {}), _statements(build.ROOT / path, pyx, counts))
    return {path: Counter(each.values()) for path, each in sorted(lines.items()) if each}


def _add(lines: dict[int, bool], counts: dict[int, int]) -> None:
    for number, count in counts.items():
        lines[number] = lines.get(number, False) or count > 0


def _source_of(path: str) -> str:
    """The .pyx file of a file of C that Cython has made."""
    _, _, rest = path.partition("/cython/")
    return rest.removesuffix(".c") + ".pyx"


def _statements(c_file: Path, pyx: str, counts: dict[int, int]) -> dict[int, int]:
    """For each statement inside a function, the largest count of its C lines. Cython writes the statement into a
    comment before these lines."""
    source = (build.ROOT / pyx).read_text().splitlines()
    marker = re.compile(rf'\s*/\* "{re.escape(pyx)}":(\d+)$')
    largest: dict[int, int] = {}
    statement = 0
    for number, text in enumerate(c_file.read_text().splitlines(), 1):
        if found := marker.match(text):
            statement = int(found[1])
        elif statement and number in counts and _inside_a_function(source[statement - 1]):
            largest[statement] = max(largest.get(statement, 0), counts[number])
    return largest


def _inside_a_function(text: str) -> bool:
    return text.startswith("    ") and not text.lstrip().startswith(("def ", "cdef ", "cpdef ", "class ", "@"))


def main() -> int:
    # A process each: its counts are written when it ends, and a target's limits are its own.
    context = multiprocessing.get_context("spawn")
    with context.Pool(os.cpu_count(), maxtasksperchild=1) as pool:
        work = [pool.apply_async(_run_c_target, (name,)) for name in build.C_TARGETS]
        work += [pool.apply_async(_run_python_target, (name,)) for name in build.FACE_TARGETS]
        for each in work:
            each.get()
        pool.close()
        pool.join()
    print("| file | lines | reached |\n|---|---:|---:|")
    missed = []
    for path, counts in executed().items():
        share = counts[True] / counts.total()
        print(f"| {path} | {counts.total():,} | {share:.0%} |")
        if path in PARSERS and share < LEAST:
            missed.append(path)
    for path in missed:
        print(f"{path}: less than {LEAST:.0%}; give its targets inputs that reach the rest, or write a target")
    return bool(missed)


if __name__ == "__main__":
    sys.exit(main())
