"""Every field has one owner: no module of klog stores into a private field of another object."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import klog

PACKAGE = Path(klog.__file__).parent


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
        and not target.attr.endswith("__")
        and not (isinstance(target.value, ast.Name) and target.value.id in ("self", "cls"))
    }


def test_no_module_stores_into_a_private_field_of_another_object() -> None:
    found = {
        str(path.relative_to(PACKAGE)): fields
        for path in sorted(PACKAGE.rglob("*.py"))
        if (fields := foreign_fields(path.read_text()))
    }
    assert found == {}


def test_every_form_of_a_store_is_found() -> None:
    source = (
        "log._a = 1\nlog._b += 1\nlog._c: int = 1\ndel log._d\nx, (*self.log._e, y._f) = z\nself._own = log.g = 1\n"
    )
    assert foreign_fields(source) == {"_a", "_b", "_c", "_d", "_e", "_f"}
