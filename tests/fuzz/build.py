"""Build and run the fuzz targets: python -m tests.fuzz.build [--seconds N] [NAME ...]

    tests/fuzz/<name>_fuzz.c    over csrc, by libFuzzer with address and undefined sanitizers (clang)
    tests/fuzz/face.py          over the Python API, by atheris: the codecs' framing and the text files are Python
    tests/fuzz/kept/<name>/     inputs that once failed, and other useful ones; each run begins with them
    build/fuzz/                 programs, seeds made from tests/golden, new inputs of runs, and findings

A finding stops the run with its input in build/fuzz/found/: copy it to kept/<name>/, where replay.c and the suite then
read it, with any compiler.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.fuzz.seeds import make_seeds

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
WORK = ROOT / "build" / "fuzz"
C_TARGETS = sorted(path.name.removesuffix("_fuzz.c") for path in HERE.glob("*_fuzz.c"))
FACE_TARGETS = ["append", "checkpoint", "compact", "decode", "decompress", "segment", "snapshot"]
_FLAGS = ["-std=c11", "-D_GNU_SOURCE", "-O1", "-g", "-fno-omit-frame-pointer", "-fno-sanitize-recover=undefined"]


class Unavailable(Exception):
    """This machine lacks something; the text names it."""


def _sources() -> list[str]:
    return sorted(str(path) for path in (ROOT / "csrc").glob("*.c"))


def _compile(compiler: str, name: str, output: Path, sanitize: str, extra: list[Path]) -> Path:
    output.parent.mkdir(parents=True, exist_ok=True)
    target = HERE / f"{name}_fuzz.c"
    command = [compiler, *_FLAGS, f"-fsanitize={sanitize}", f"-I{ROOT / 'csrc'}", str(target), *map(str, extra)]
    done = subprocess.run([*command, *_sources(), "-o", str(output)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        if "libclang_rt" in done.stderr:
            raise Unavailable("clang with its run-time libraries (libclang-rt-14-dev)")
        raise AssertionError(f"{compiler} could not build {name}:\n{done.stderr[-4000:]}")
    return output


def build_fuzzer(name: str) -> Path:
    """One C target with libFuzzer. Raises Unavailable without clang."""
    clang = shutil.which("clang")
    if clang is None:
        raise Unavailable("clang")
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


def run(name: str, seconds: int) -> subprocess.CompletedProcess[str]:
    """Fuzz for this long; returns libFuzzer's exit status."""
    corpus, found = WORK / "corpus" / name, WORK / "found"
    corpus.mkdir(parents=True, exist_ok=True)
    found.mkdir(parents=True, exist_ok=True)
    options = [
        f"-max_total_time={seconds}",
        f"-dict={HERE / 'klog.dict'}",
        f"-artifact_prefix={found}/{name}-",
        "-max_len=4096",
        "-timeout=60",
        "-malloc_limit_mb=1024",
        "-rss_limit_mb=4096",  # also counts the sanitizer's own memory, which differs from machine to machine
        "-print_final_stats=1",
    ]
    command: list[str]
    if name in C_TARGETS:
        command = [str(build_fuzzer(name))]
    else:
        if importlib.util.find_spec("atheris") is None:
            raise Unavailable("atheris (extra [fuzz])")
        command = [sys.executable, "-m", "tests.fuzz.face", name]
    folders = [corpus, seeds(name)]
    if kept(name):
        folders.append(HERE / "kept" / name)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [*command, *options, *map(str, folders)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=seconds + 300,
        check=False,
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.build", description="fuzz klog")
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"of {', '.join(C_TARGETS + FACE_TARGETS)}; default all"
    )
    parser.add_argument("--seconds", type=int, default=300, help="for each target")
    asked = parser.parse_args()
    failed = False
    for name in asked.names or C_TARGETS + FACE_TARGETS:
        try:
            done = run(name, asked.seconds)
        except Unavailable as missing:
            print(f"{name}: skipped, needs: {missing}", flush=True)
            continue
        figures = [line for line in done.stderr.splitlines() if line.startswith("stat::")][:2]
        print(f"{name}: {'ok' if done.returncode == 0 else 'FOUND SOMETHING'} {' '.join(figures)}", flush=True)
        if done.returncode != 0:
            failed = True
            print((done.stdout + done.stderr)[-6000:], flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
