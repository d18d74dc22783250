"""Krabka's log crate in its own process: rust/src/main.rs, built by cargo below build/. child.py has the protocol."""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
from pathlib import Path

from bench.child import Child
from bench.contest import Unavailable

_ROOT = Path(__file__).resolve().parents[1]
_CRATE = _ROOT / "bench" / "rust"
_TARGET = _ROOT / "build" / "rust"
_MANIFEST = (_CRATE / "Cargo.toml").read_text()
VERSION = re.findall(r'^krabka-log = "=(.*)"$', _MANIFEST, re.MULTILINE)[0]
_CARGO_MIN = (1, 95)


class Krabka(Child):
    """The process of the peer, with segments of `segment_bytes`. Raises Unavailable without cargo or the crates."""

    def __init__(self, segment_bytes: int) -> None:
        super().__init__(f"Krabka {VERSION}", [str(_built()), str(segment_bytes)])


@functools.cache
def _built() -> Path:
    """Return the program; it is built first if its sources have changed, which takes minutes the first time. Cargo has
    a lock of its own."""
    if shutil.which("cargo") is None:
        raise Unavailable("cargo")
    found = re.search(r"\d+\.\d+", subprocess.run(["cargo", "--version"], capture_output=True, text=True).stdout)
    if found is None or tuple(map(int, found[0].split("."))) < _CARGO_MIN:
        raise Unavailable(f"cargo {'.'.join(map(str, _CARGO_MIN))} or newer")
    if subprocess.run(["cargo", "fetch", "--quiet"], cwd=_CRATE).returncode != 0:
        raise Unavailable("the crates of bench/rust, which cargo could not fetch")
    # --ignore-rust-version, because some crates declare a newer compiler than they need.
    options = ["--quiet", "--release", "--frozen", "--ignore-rust-version", "--target-dir", str(_TARGET)]
    subprocess.run(["cargo", "build", *options], cwd=_CRATE, check=True)
    return _TARGET / "release" / "krabka-peer"
