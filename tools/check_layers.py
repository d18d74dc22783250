"""Every import arrow of klog, and a complaint about each one that points up.

Rooms in order, left to right: a room may import what stands before it. `python tools/check_layers.py` lists breaches
and exits 1 if there are any; `--all` lists every arrow.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EVERYWHERE = {"arguments", "errors", "config", "clock", "locks", "scheduler", "progress", "_c"}
ORDER = [
    "codec",
    "record",
    "disk",
    "segment",
    "log",
    "cleaner",
    "manager",
    "inspect",
    "trial",
    "importing",
    "spark",
    "demo",
    "cli",
    "__main__",
]
# disk takes and gives bytes and segment puts record's batches on it: neither of record and disk knows the other.
STRANGERS = {
    ("disk", "record"),
    ("disk", "codec"),
    ("inspect", "spark"),
    ("importing", "inspect"),
    ("spark", "inspect"),
    ("spark", "importing"),
}
# Doors that lead right on purpose, each loaded only when called: a log's verify() is inspect's, its compact() the
# cleaner's.
LAZY = {("log", "inspect"), ("log", "cleaner")}
_CIMPORT = re.compile(r"^\s*(?:from\s+(klog[\w.]*)\s+c?import|c?import\s+(klog[\w.]*))", re.MULTILINE)


def modules() -> Iterator[tuple[str, Path]]:
    for path in sorted((ROOT / "klog").rglob("*")):
        if path.suffix in (".py", ".pyx", ".pxd"):
            yield ".".join(path.relative_to(ROOT).with_suffix("").parts), path


def room(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and parts[1] != "__init__" else ""


def imports(path: Path) -> Iterator[tuple[str, bool]]:
    """(module, is it imported only when a function runs or for types)"""
    text = path.read_text()
    if path.suffix != ".py":
        for match in _CIMPORT.finditer(text):
            yield match[1] or match[2], False
        return
    tree = ast.parse(text)
    lazy: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or (
            isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        ):
            lazy.update(ast.walk(node))
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("klog"):
            names = [f"{node.module}.{alias.name}" for alias in node.names] if node.module == "klog" else [node.module]
            for name in names:
                yield name, node in lazy
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.startswith("klog."):
                    yield alias.name, node in lazy


def breaches() -> Iterator[str]:
    for module, path in modules():
        here = room(module)
        for target, lazy in imports(path):
            there = room(target)
            if there in ("", here) or there in EVERYWHERE or there not in ORDER:
                continue
            if here == "" or (lazy and (here, there) in LAZY):
                continue
            if here in EVERYWHERE:
                yield f"{module} -> {target}: {here} is used everywhere and may know no room"
            elif here not in ORDER:
                yield f"{module}: room {here} has no place in ORDER"
            elif (here, there) in STRANGERS:
                yield f"{module} -> {target}: {here} and {there} do not know each other"
            elif ORDER.index(there) > ORDER.index(here):
                yield f"{module} -> {target}: points up"
            elif path.suffix == ".py" and any(part.startswith("_") for part in target.split(".")[2:]):
                yield f"{module} -> {target}: a module of another room that begins with an underscore"


def main() -> int:
    if "--all" in sys.argv:
        for module, path in modules():
            for target, lazy in imports(path):
                print(f"{module} -> {target}{' (lazy)' if lazy else ''}")
        return 0
    found = sorted(set(breaches()))
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
