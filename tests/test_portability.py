"""The C core is for any Linux on x86-64 and aarch64, with glibc and with musl."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCES = [str(path) for path in (*sorted(ROOT.glob("csrc/*.c")), *sorted(ROOT.glob("csrc/selftest/*.c")))]
FLAGS = ["-std=c11", "-D_GNU_SOURCE", "-O1", f"-I{ROOT / 'csrc'}"]


def needs(*programs: str) -> None:
    for program in programs:
        if shutil.which(program) is None:
            pytest.skip(f"needs: {program}")


def run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, f"{command[0]}: {done.stdout[-2000:]}{done.stderr[-4000:]}"


def test_the_self_test_passes_with_musl(tmp_path: Path) -> None:
    """musl-gcc, linked statically. It was seen to fail with glibc-only calls."""
    needs("musl-gcc")
    run("musl-gcc", *FLAGS, "-static", *SOURCES, "-o", str(tmp_path / "selftest"))
    run(str(tmp_path / "selftest"))


@pytest.mark.deep
def test_the_self_test_passes_on_aarch64(tmp_path: Path) -> None:
    needs("aarch64-linux-gnu-gcc", "qemu-aarch64")
    run("aarch64-linux-gnu-gcc", *FLAGS, "-static", *SOURCES, "-o", str(tmp_path / "selftest"))
    run("qemu-aarch64", str(tmp_path / "selftest"))


@pytest.mark.deep
def test_the_self_test_passes_with_clang(tmp_path: Path) -> None:
    """clang wants each instruction set by its own name; a recent one was seen to refuse crc32 as a part of SSE 4.2."""
    needs("clang")
    run("clang", *FLAGS, *SOURCES, "-o", str(tmp_path / "selftest"))
    run(str(tmp_path / "selftest"))
