"""Attributes of a package whose modules are imported when they are first used."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any


def attributes(package: dict[str, Any], places: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the __getattr__ of a package. package: its globals(). places: {name: its module in the package}."""

    def find(name: str) -> Any:
        from importlib import import_module

        if name not in places:
            raise AttributeError(f"module {package['__name__']!r} has no attribute {name!r}")
        found = package[name] = getattr(import_module(f"{package['__name__']}.{places[name]}"), name)
        return found

    return find
