"""Build and run the fuzz targets: python -m tests.fuzz.build [--seconds N | --keep | --input FILE] [NAME ...]

    tests/fuzz/<name>_fuzz.c       over csrc, by libFuzzer with address and undefined sanitizers (clang)
    tests/fuzz/face.py             over the Python API, by atheris
    tests/fuzz/kept/<name>/        inputs that once failed, and other useful ones; each run begins with them
    tests/fuzz/corpus/<name>.zip   the smallest inputs of earlier runs that together reach all that those reached
    build/fuzz/                    programs, seeds made from tests/golden, new inputs of runs, and findings

--keep writes the corpus. A finding stops the run with its input in build/fuzz/found/: copy it to kept/<name>/, where
replay.c and the suite then read it, with any compiler. long.py gives the C targets many inputs.
"""

from __future__ import annotations

import argparse
import fcntl
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from tests.fuzz.face import PROGRAM, TARGETS
from tests.fuzz.programs import write_header
from tests.fuzz.seeds import make_seeds

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
WORK = ROOT / "build" / "fuzz"
C_TARGETS = sorted(path.name.removesuffix("_fuzz.c") for path in HERE.glob("*_fuzz.c"))
FACE_TARGETS = sorted(TARGETS)
_BYTES_MAX = {"varint": 512}
"""The longest input where a shorter one than of 4 KiB reaches all."""
_FLAGS = ["-std=c11", "-D_GNU_SOURCE", "-O2", "-g", "-fno-omit-frame-pointer", "-fno-sanitize-recover=undefined"]


class Unavailable(Exception):
    """This machine lacks a program or a library; the text names it."""


def _objects(compiler: str, folder: Path, sanitize: str) -> list[str]:
    """csrc, compiled once for all targets."""
    sources = sorted((ROOT / "csrc").glob("*.c"))
    newest = max(path.stat().st_mtime for path in (ROOT / "csrc").iterdir())
    folder.mkdir(parents=True, exist_ok=True)
    made, built = folder / "built", [str(folder / f"{source.stem}.o") for source in sources]
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests run in several processes
        if not made.exists() or made.read_text() != repr(built) or made.stat().st_mtime < newest:
            made.unlink(missing_ok=True)
            _call([compiler, *_FLAGS, f"-fsanitize={sanitize}", "-c", *map(str, sources)], folder)
            made.write_text(repr(built))
    return built


def _compile(compiler: str, name: str, output: Path, sanitize: str, extra: list[Path]) -> Path:
    objects = _objects(compiler, output.parent / "csrc", sanitize.replace("fuzzer", "fuzzer-no-link"))
    if name == "wire":
        write_header(output.parent)
    folders = [f"-I{ROOT / 'csrc'}", f"-I{HERE}", f"-I{output.parent}"]
    command = [compiler, *_FLAGS, f"-fsanitize={sanitize}", *folders, str(HERE / f"{name}_fuzz.c"), *map(str, extra)]
    _call([*command, *objects, "-o", str(output)], output.parent)
    return output


def _call(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        if "libclang_rt" in done.stderr:
            raise Unavailable("clang with its run-time libraries (libclang-rt-14-dev)")
        raise AssertionError(f"{shlex.join(command[:1])} could not build {folder}:\n{done.stderr[-4000:]}")


def build_fuzzer(name: str, fast: bool = False) -> Path:
    """One C target with libFuzzer. fast: without sanitizers. Raises Unavailable without clang."""
    clang = shutil.which("clang")
    if clang is None:
        raise Unavailable("clang")
    if fast:
        return _compile(clang, name, WORK / "fast" / name, "fuzzer", [])
    return _compile(clang, name, WORK / "bin" / name, "fuzzer,address,undefined", [])


def build_replay(name: str) -> Path:
    """The same target with its own main(), built by any C compiler."""
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None:
        raise Unavailable("a C compiler")
    return _compile(compiler, name, WORK / "replay" / name, "address,undefined", [HERE / "replay.c"])


def kept(name: str) -> list[Path]:
    return sorted((HERE / "kept" / name).glob("*")) if (HERE / "kept" / name).is_dir() else []


def seeds(name: str) -> Path:
    """A directory of seeds for one target, made from the golden files."""
    folder = WORK / "seeds" / name
    make_seeds(folder, name)
    return folder


def corpus(name: str) -> Path:
    """A directory with the corpus of the repository and the inputs that runs on this machine have added."""
    folder, packed = WORK / "corpus" / name, HERE / "corpus" / f"{name}.zip"
    folder.mkdir(parents=True, exist_ok=True)
    if packed.exists():
        with zipfile.ZipFile(packed) as archive:
            archive.extractall(folder)
    return folder


def inputs(name: str) -> list[Path]:
    """Every input of the repository for one target."""
    return [*sorted(seeds(name).iterdir()), *kept(name), *sorted(corpus(name).iterdir())]


def command(program: list[str], name: str, *limits: str) -> list[str]:
    """A program with its options and inputs; limits: libFuzzer's options for when to stop."""
    found = WORK / "found"
    found.mkdir(parents=True, exist_ok=True)
    options = [
        f"-dict={HERE / 'klog.dict'}",
        f"-artifact_prefix={found}/{name}-",
        f"-max_len={_BYTES_MAX.get(name, 4096)}",
        "-timeout=60",
        "-malloc_limit_mb=1024",
        "-rss_limit_mb=4096",  # also counts the sanitizer's own memory, which differs from machine to machine
        "-print_final_stats=1",
        *limits,  # the last one of an option counts
    ]
    folders = [corpus(name), seeds(name)]
    if kept(name):
        folders.append(HERE / "kept" / name)
    return [*program, *options, *map(str, folders)]


def environment() -> dict[str, str]:
    """Without a stack for each allocation: a finding is run again, with stacks."""
    return {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "ASAN_OPTIONS": "malloc_context_size=2:quarantine_size_mb=16",
    }


def fuzz(name: str, *limits: str, timeout: float | None = None) -> subprocess.CompletedProcess[str]:
    """Run a target; returns its exit status."""
    return subprocess.run(
        command(_program(name), name, *limits),
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        errors="replace",
        timeout=timeout,
        check=False,
    )


def run(name: str, seconds: int) -> subprocess.CompletedProcess[str]:
    """Fuzz for this long."""
    return fuzz(name, f"-max_total_time={seconds}", timeout=seconds + 300)


def _program(name: str) -> list[str]:
    if name in C_TARGETS:
        return [str(build_fuzzer(name))]
    if importlib.util.find_spec("atheris") is None:
        raise Unavailable("atheris (extra [fuzz])")
    return [str(_program_of_face(name))]


def _program_of_face(name: str) -> Path:
    """A program, since libFuzzer starts itself again to merge."""
    program = WORK / "bin" / name
    program.parent.mkdir(parents=True, exist_ok=True)
    face = shlex.join([sys.executable, "-m", "tests.fuzz.face", name])
    program.write_text(f'#!/bin/sh\n{PROGRAM}="$0" exec {face} "$@"\n')
    program.chmod(0o755)
    return program


def keep(name: str) -> int:
    """Store the smallest set of inputs that, together with the seeds, reaches all code that this target's inputs reach.
    Returns their number."""
    smallest = WORK / "smallest" / name
    shutil.rmtree(smallest, ignore_errors=True)
    shutil.copytree(seeds(name), smallest)
    of_seeds = {path.name for path in smallest.iterdir()}
    merge = [*_program(name), "-merge=1", "-set_cover_merge=1", str(smallest), str(corpus(name))]
    subprocess.run(merge, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, check=True)
    chosen = sorted(path for path in smallest.iterdir() if path.name not in of_seeds)
    (HERE / "corpus").mkdir(exist_ok=True)
    if not chosen:
        (HERE / "corpus" / f"{name}.zip").unlink(missing_ok=True)
        return 0
    with zipfile.ZipFile(HERE / "corpus" / f"{name}.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for path in chosen:
            archive.writestr(zipfile.ZipInfo(path.name), path.read_bytes(), zipfile.ZIP_DEFLATED)
    return len(chosen)


def figures(output: str) -> dict[str, int]:
    """libFuzzer's final statistics by name, and what its inputs reached, as "edges" and "features"."""
    found = {key: int(value) for key, value in re.findall(r"^stat::(\w+):\s+(\d+)", output, re.MULTILINE)}
    reached = re.findall(r"\bcov: (\d+) ft: (\d+)", output)
    return {**found, "edges": int(reached[-1][0]), "features": int(reached[-1][1])} if reached else found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.build", description="fuzz klog")
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"of {', '.join(C_TARGETS + FACE_TARGETS)}; default all"
    )
    much = parser.add_mutually_exclusive_group()
    much.add_argument("--seconds", type=int, default=300, help="for each target")
    much.add_argument("--keep", action="store_true", help="write tests/fuzz/corpus from the inputs of earlier runs")
    much.add_argument("--input", type=Path, metavar="FILE", help="run the target NAME on this input alone")
    asked = parser.parse_args()
    failed = False
    if asked.input:
        if len(asked.names) != 1:
            parser.error("--input FILE: one NAME expected")
        (name,) = asked.names
        return subprocess.run([*_program(name), asked.input.resolve()], cwd=ROOT, check=False).returncode
    if asked.keep:
        for name in asked.names or C_TARGETS + FACE_TARGETS:
            try:
                print(f"{name}: {keep(name)} inputs kept", flush=True)
            except Unavailable as missing:
                print(f"{name}: left as it is, needs: {missing}", flush=True)
        return False
    for name in asked.names or C_TARGETS + FACE_TARGETS:
        try:
            done = run(name, asked.seconds)
        except Unavailable as missing:
            print(f"{name}: skipped, needs: {missing}", flush=True)
            continue
        seen = figures(done.stderr)
        counts = f"{seen.get('number_of_executed_units', 0):,} inputs, {seen.get('edges', 0):,} edges"
        print(f"{name}: {'ok' if done.returncode == 0 else 'FOUND SOMETHING'}, {counts}", flush=True)
        if done.returncode != 0:
            failed = True
            print((done.stdout + done.stderr)[-6000:], flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
