"""Checks that every native module has a stub, and that mypy.stubtest finds no difference between stub and module."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main() -> int:
    sources = sorted((ROOT / "klog").rglob("*.pyx"))
    missing = [str(path.relative_to(ROOT)) for path in sources if not path.with_suffix(".pyi").exists()]
    if missing:
        print("no stub beside", ", ".join(missing))
        return 1
    names = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in sources]
    allow = ROOT / "tools" / "stubtest-allow.txt"
    options = ["--mypy-config-file", "pyproject.toml", "--allowlist", str(allow), "--ignore-unused-allowlist"]
    command = [sys.executable, "-m", "mypy.stubtest", *options, *names]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
