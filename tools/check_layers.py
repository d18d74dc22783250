"""Lists the imports of klog, and reports each one that points up: to a later package.

Packages in order, lowest first: a package may import those before it. Inside a package no modules may import each other
in a circle, not even inside a function or for types. `python tools/check_layers.py` lists breaches and exits 1 if there
are any; `--all` lists every import.

In a module that calls import_module() or __import__(), every string that names a module of klog counts as an import.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EVERYWHERE = {
    "arguments",
    "errors",
    "extras",
    "lazy",
    "config",
    "clock",
    "durations",
    "histogram",
    "locks",
    "scheduler",
    "scratch",
    "progress",
    "report",
    "shown",
    "values",
    "logger",
    "_c",
    "_start",
}
ORDER = [
    "codec",
    "protocol",
    "record",
    "internal_topics",
    "decode",
    "disk",
    "network",
    "segment",
    "log",
    "cleaner",
    "health",
    "manager",
    "metrics",
    "inspect",
    "repairing",
    "security",
    "coordinator",
    "broker",
    "handover",
    "trial",
    "tuning",
    "importing",
    "exporting",
    "testing",
    "polars",
    "duckdb",
    "spark",
    "demo",
    "cli",
    "__main__",
]
# The sub-packages of log in the same order; modules that are not named here are above all of them.
LOG_ORDER = ["options", "directory", "state", "load", "read", "write", "retain", "staged"]
# Pairs that may not import each other. disk reads and writes bytes, and segment writes record's batches to it, so
# record and disk are independent. network handles frames without their content, and the engine does not use network.
INDEPENDENT = {
    ("record", "protocol"),
    ("disk", "protocol"),
    ("disk", "record"),
    ("disk", "codec"),
    ("network", "record"),
    ("network", "codec"),
    ("network", "decode"),
    ("segment", "network"),
    ("log", "network"),
    ("inspect", "spark"),
    ("importing", "inspect"),
    ("spark", "polars"),
    ("duckdb", "polars"),
    ("spark", "duckdb"),
}
_MODULE_NAME = re.compile(r"klog(\.\w+)+(?=\.?$)")  # an f-string's part ends with a dot
_CIMPORT = re.compile(r"^\s*(?:from\s+(klog[\w.]*)\s+c?import|c?import\s+(klog[\w.]*))", re.MULTILINE)


def modules() -> Iterator[tuple[str, Path]]:
    for path in sorted((ROOT / "klog").rglob("*")):
        if path.suffix in (".py", ".pyx", ".pxd"):
            yield ".".join(path.relative_to(ROOT).with_suffix("").parts), path


def package(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and parts[1] != "__init__" else ""


def imports(path: Path) -> Iterator[tuple[str, bool]]:
    """Yield (module, whether it is imported only when a function runs or for types)."""
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
            for name in {_module_of(node.module, alias.name) for alias in node.names}:
                yield name, node in lazy
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.startswith("klog."):
                    yield alias.name, node in lazy
    yield from ((name, True) for name in _named_in_strings(tree))


def _named_in_strings(tree: ast.AST) -> set[str]:
    """Return the modules of klog that a source may import by name."""
    names = {getattr(node, key, None) for node in ast.walk(tree) for key in ("id", "attr", "name")}
    if names.isdisjoint({"import_module", "__import__"}):
        return set()
    strings = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    return {match[0] for text in strings if (match := _MODULE_NAME.match(text))}


def _module_of(package: str, name: str) -> str:
    """Return the module that `from package import name` imports: a module of the package, or the package itself."""
    inner = ROOT.joinpath(*package.split("."), name)
    is_module = inner.is_dir() or any(map(Path.exists, map(inner.with_suffix, (".py", ".pyx"))))
    return f"{package}.{name}" if is_module else package


def circles() -> Iterator[tuple[str, str]]:
    """Yield the imports between modules of one package that import each other, directly or through others."""
    known = {module for module, _ in modules()}
    arrows: dict[str, set[str]] = {}
    for module, path in modules():
        same = {target for target, _ in imports(path) if package(target) == package(module) != "" and target in known}
        arrows[module] = same - {module}
    reached = {module: _reached(module, arrows) for module in arrows}
    for module in sorted(arrows):
        for target in sorted(arrows[module]):
            if module in reached[target]:
                yield module, target


def _reached(module: str, arrows: dict[str, set[str]]) -> set[str]:
    found: set[str] = set()
    waiting = [module]
    while waiting:
        for target in arrows[waiting.pop()] - found:
            found.add(target)
            waiting.append(target)
    return found


def breaches() -> Iterator[str]:
    for module, path in modules():
        here = package(module)
        for target, _ in imports(path):
            there = package(target)
            if there in ("", here) or there in EVERYWHERE or here == "":
                continue
            if there not in ORDER:
                yield f"{module} -> {target}: package {there} is not in ORDER"
            elif here in EVERYWHERE:
                yield f"{module} -> {target}: {here} is used everywhere and may import no package"
            elif here not in ORDER:
                yield f"{module}: package {here} is not in ORDER"
            elif (here, there) in INDEPENDENT:
                yield f"{module} -> {target}: {here} and {there} may not import each other"
            elif ORDER.index(there) > ORDER.index(here):
                yield f"{module} -> {target}: points up"
            elif path.suffix == ".py" and any(part.startswith("_") for part in target.split(".")[2:]):
                yield f"{module} -> {target}: a module of another package that begins with an underscore"


def breaches_in_log() -> Iterator[str]:
    """Yield the imports between the sub-packages of log that point up."""
    for module, path in modules():
        if package(module) != "log":
            continue
        for target, _ in imports(path):
            if target.startswith("klog.log.") and _rank(target) > _rank(module):
                yield f"{module} -> {target}: points up inside log"


def _rank(module: str) -> int:
    name = [*module.split("."), ""][2]
    return LOG_ORDER.index(name) if name in LOG_ORDER else len(LOG_ORDER)


def main() -> int:
    if "--all" in sys.argv:
        for module, path in modules():
            for target, lazy in imports(path):
                print(f"{module} -> {target}{' (lazy)' if lazy else ''}")
        return 0
    found = sorted(
        {*breaches(), *breaches_in_log(), *(f"{module} -> {target}: closes a circle" for module, target in circles())}
    )
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
