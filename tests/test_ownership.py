"""Every field has one owner: no module of klog stores into a private field of another object.

KNOWN lists what is left from before the rule, as module and field. A new pair fails, and so does one that is gone from
the code and still listed here: the list only gets shorter.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import klog

PACKAGE = Path(klog.__file__).parent
KNOWN = {
    "log/directory/lifecycle.py": {"_directory", "_keeps_metadata", "_segments"},
    "log/read/fetch.py": {"_file", "_log", "_reads_failed"},
    "log/read/refresh.py": {
        "_directory_mtime", "_generation", "_log_end_offset", "_log_start_offset", "_rewritten", "_segments",
        "_tail_fingerprint",
    },
    "log/state/high_watermark.py": {"_high_watermark"},
    "log/write/commit.py": {"_applied", "_offline", "_written_end"},
    "log/write/truncate.py": {
        "_generation", "_high_watermark", "_log_start_offset", "_producers", "_rewritten",
        "_segments", "_taken_back",
    },
}  # fmt: skip


def targets(node: ast.AST) -> Iterator[ast.expr]:
    """What a statement stores into or deletes."""
    if isinstance(node, ast.Assign | ast.Delete):
        waiting = list(node.targets)
    elif isinstance(node, ast.AugAssign | ast.AnnAssign):
        waiting = [node.target]
    else:
        return
    while waiting:
        target = waiting.pop()
        if isinstance(target, ast.Tuple | ast.List):
            waiting += target.elts
        elif isinstance(target, ast.Starred):
            waiting.append(target.value)
        else:
            yield target


def foreign_fields(source: str) -> set[str]:
    """Private fields of other objects than self or cls that the source stores into."""
    return {
        target.attr
        for node in ast.walk(ast.parse(source))
        for target in targets(node)
        if isinstance(target, ast.Attribute)
        and target.attr.startswith("_")
        and not (isinstance(target.value, ast.Name) and target.value.id in ("self", "cls"))
    }


def test_no_module_stores_into_a_private_field_of_another_object() -> None:
    found = {
        str(path.relative_to(PACKAGE)): fields
        for path in sorted(PACKAGE.rglob("*.py"))
        if (fields := foreign_fields(path.read_text()))
    }
    assert found == KNOWN


def test_every_form_of_a_store_is_found() -> None:
    source = (
        "log._a = 1\nlog._b += 1\nlog._c: int = 1\ndel log._d\nx, (*self.log._e, y._f) = z\nself._own = log.g = 1\n"
    )
    assert foreign_fields(source) == {"_a", "_b", "_c", "_d", "_e", "_f"}
