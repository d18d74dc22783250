"""Attributes of a package, or of a module, whose modules are imported when they are first used."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any


def attributes(
    module: dict[str, Any], places: Mapping[str, str], before: Callable[[], object] | None = None
) -> Callable[[str], Any]:
    """Return the __getattr__ of a package, or of a module in one. module: its globals(). places: {name: its module in
    the package, or the package in which it is a module}. before: called before the first use of each name."""

    def find(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {module['__name__']!r} has no attribute {name!r}")
        if before is not None:
            before()
        place = f"{module['__package__']}.{places[name]}"
        found = module[name] = getattr(__import__(place, fromlist=(name,)), name)
        return found

    return find
