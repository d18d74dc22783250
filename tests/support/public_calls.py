"""Every public callable of klog with its parameters, as sources and stubs declare them."""

from __future__ import annotations

import ast
import functools
import inspect
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import klog

# Others are used inside klog, or need Spark or Polars: their own tests check their arguments.
CHECKED = ("clock", "errors", "metrics", "record")
# Of these only functions: a program gets the objects of their classes from them.
FUNCTIONS = ("exporting", "handover", "importing", "inspect", "repairing", "tuning")


@dataclass(frozen=True)
class Parameter:
    """annotation: as written."""

    name: str
    annotation: str
    required: bool
    by_keyword: bool


@dataclass(frozen=True)
class Call:
    """A function, a constructor (owner, no method), or a method or class method of owner."""

    name: str
    target: Any
    owner: type | None
    method: str | None
    parameters: tuple[Parameter, ...]

    @property
    def of_an_object(self) -> bool:
        """Whether it is called on an instance."""
        if self.owner is None or self.method is None:
            return False
        return not isinstance(inspect.getattr_static(self.owner, self.method), classmethod | staticmethod)


def public_calls() -> Iterator[Call]:
    """Yields the public callables in the order of klog.__all__, with those of the modules CHECKED: the names in their
    __all__, or those that they define; then the functions of the modules FUNCTIONS."""
    seen: set[object] = set()
    for name in klog.__all__:
        thing = getattr(klog, name)
        if isinstance(thing, types.ModuleType) and name not in CHECKED:
            continue
        for each in _members(thing) if isinstance(thing, types.ModuleType) else (thing,):
            if each not in seen and callable(each):
                seen.add(each)
                yield from _calls(each)
    for name in FUNCTIONS:
        for each in _members(getattr(klog, name)):
            if inspect.isfunction(each) and each not in seen:
                yield from _calls(each)


def _members(module: types.ModuleType) -> Iterator[Any]:
    for name in getattr(module, "__all__", None) or vars(module):
        thing = getattr(module, name)
        if not name.startswith("_") and getattr(thing, "__module__", "").startswith("klog"):
            yield thing


def _calls(thing: Any) -> Iterator[Call]:
    if not isinstance(thing, type):
        yield Call(thing.__qualname__, thing, None, None, _declared(thing.__module__, (thing.__qualname__,)))
        return
    methods: dict[str, type] = {}
    for base in thing.__mro__:
        if base.__module__.startswith("klog"):
            for name in vars(base):
                methods.setdefault(name, base)
    for name, base in methods.items():
        member = inspect.getattr_static(base, name)
        if name.startswith("_") or isinstance(member, property) or not callable(getattr(thing, name)):
            continue
        if not inspect.isroutine(getattr(thing, name)):
            continue
        parameters = _declared(base.__module__, (base.__qualname__, name))
        if not isinstance(member, staticmethod):
            parameters = parameters[1:]
        yield Call(f"{thing.__qualname__}.{name}", thing, thing, name, parameters)
    if "__init__" in methods:
        base = methods["__init__"]
        yield Call(
            thing.__qualname__, thing, thing, None, _declared(base.__module__, (base.__qualname__, "__init__"))[1:]
        )


@functools.cache
def _tree(module: str) -> ast.Module:
    file = Path(str(sys.modules[module].__file__))
    if file.suffix == ".so":
        file = file.parent / f"{file.name.partition('.')[0]}.pyi"
    return ast.parse(file.read_text())


def _declared(module: str, path: tuple[str, ...]) -> tuple[Parameter, ...]:
    """The parameters as written in the source, including self or cls."""
    body: list[ast.stmt] = _tree(module).body
    for name in path:
        found = [node for node in body if getattr(node, "name", None) == name]
        if not found:
            return ()
        node = found[-1]
        body = getattr(node, "body", [])
    assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    given = node.args
    plain = [*given.posonlyargs, *given.args]
    defaults = len(plain) - len(given.defaults)
    keywords = zip(given.kwonlyargs, given.kw_defaults, strict=True)
    return (
        *(
            Parameter(one.arg, _text(one.annotation), number < defaults, number >= len(given.posonlyargs))
            for number, one in enumerate(plain)
        ),
        *(Parameter(one.arg, _text(one.annotation), default is None, True) for one, default in keywords),
    )


def _text(annotation: ast.expr | None) -> str:
    return "" if annotation is None else ast.unparse(annotation)
