"""klog.values behaves as the standard module dataclasses does, for what klog uses of it."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import pytest

from klog import values


def make(library: Any) -> dict[str, Any]:
    """The same classes, made by one of the two libraries."""

    @library.dataclass(frozen=True, slots=True)
    class Point:
        """A point."""

        x: int
        y: int = 2
        name: str = library.field(default="p", repr=False)
        tags: list[str] = library.field(default_factory=list, compare=False)
        kind: ClassVar[str] = "point"

    @library.dataclass(frozen=True, slots=True)
    class Place(Point):
        z: int = 5

    @library.dataclass(slots=True)
    class Counter:
        total: int
        seen: dict[str, int] = library.field(default_factory=dict, init=False)

        def __post_init__(self) -> None:
            self.total *= 2

    @library.dataclass(frozen=True, slots=True, kw_only=True)
    class Named:
        a: int
        b: int = library.field(default=1, metadata={"name": "b.b"})

    @library.dataclass(frozen=True, order=True)
    class Version:
        major: int
        minor: int = 0

    @library.dataclass(eq=False)
    class Plain:
        value: Any
        other: Any = None

    return {each.__name__: each for each in (Point, Place, Counter, Named, Version, Plain)}


OURS, STANDARD = make(values), make(dataclasses)
ARGUMENTS: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("Point", (1,), {}),
    ("Point", (1, 3), {"name": "q", "tags": ["a"]}),
    ("Place", (1,), {"z": 7}),
    ("Counter", (4,), {}),
    ("Named", (), {"a": 3}),
    ("Version", (1,), {"minor": 9}),
    ("Point", (), {}),
    ("Point", (1, 2, "n", [], 5), {}),
    ("Point", (1,), {"unknown": 2}),
    ("Named", (3,), {}),
    ("Counter", (1,), {"seen": {}}),
]


def outcome(work: Any) -> Any:
    try:
        return work()
    except Exception as error:
        return type(error), str(error).replace("make.<locals>.", "").replace("Standard", "Ours")


@pytest.fixture(params=["first", "later"])
def ours(request: pytest.FixtureRequest) -> dict[str, Any]:
    """The classes, before or after so many objects were made that their __init__ is compiled."""
    made = make(values)
    if request.param == "later":
        for kind in made.values():
            for _ in range(values.PLAIN_MAX + 1):
                kind(**{values.fields(kind)[0].name: 1})
    return made


@pytest.mark.parametrize(("name", "args", "kwargs"), ARGUMENTS)
def test_objects_look_and_compare_as_standard_ones(
    ours: dict[str, Any], name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    for ask in (
        repr,
        hash,
        lambda value: value == copy.copy(value),
        lambda value: value == 3,
        lambda value: dataclasses.asdict(value),
        lambda value: repr(dataclasses.replace(value)),
        lambda value: hasattr(value, "__dict__"),
        lambda value: setattr(value, next(iter(kwargs), "x"), 1),
        lambda value: delattr(value, next(iter(kwargs), "x")),
        lambda value: type(value).__match_args__,
        lambda value: type(value).__doc__ if name == "Point" else None,
        lambda value: [each.name for each in dataclasses.fields(value)],
    ):
        assert outcome(lambda ask=ask: ask(ours[name](*args, **kwargs))) == outcome(
            lambda ask=ask: ask(STANDARD[name](*args, **kwargs))
        )


@pytest.mark.parametrize("name", ["Point", "Place", "Counter", "Named", "Version", "Plain"])
def test_signatures(name: str) -> None:
    """Before __init__ is compiled, and afterwards."""
    kind = make(values)[name]
    standard = inspect.signature(STANDARD[name]).parameters
    for _ in range(values.PLAIN_MAX + 2):
        ours = inspect.signature(kind).parameters
        assert [(each.name, each.kind) for each in ours.values()] == [
            (each.name, each.kind) for each in standard.values()
        ]
        assert [repr(each.default) for each in ours.values()] == [repr(each.default) for each in standard.values()]
        kind(**{"a" if name == "Named" else values.fields(kind)[0].name: 1})


def test_signatures_of_subclasses_with_another_init() -> None:
    class Near(OURS["Plain"]):  # type: ignore[misc]
        def __init__(self, near: int) -> None:
            super().__init__(near)

    class Pair(Ours):
        __slots__ = ()

        def __new__(cls, pair: str) -> Any:
            return super().__new__(cls, len(pair))

    assert [list(inspect.signature(kind).parameters) for kind in (Near, Pair)] == [["near"], ["pair"]]
    assert Near(1).value == 1
    assert Pair("ab") == (2, 2)
    assert str(inspect.signature(Ours)) == "(a: 'int', b: 'int' = 2)"


def test_order() -> None:
    Version = OURS["Version"]
    assert sorted([Version(2), Version(1, 5), Version(1)]) == [Version(1), Version(1, 5), Version(2)]
    with pytest.raises(TypeError):
        assert Version(1) < 2


def test_functions_of_this_module() -> None:
    Point, Place = OURS["Point"], OURS["Place"]
    point = Point(1, tags=["a"])
    assert values.asdict(Place(1, tags=["a"])) == {"x": 1, "y": 2, "name": "p", "tags": ["a"], "z": 5}
    assert values.asdict(point)["tags"] is not point.tags
    assert values.replace(point, x=9).x == 9
    assert [each.metadata.get("name") for each in values.fields(OURS["Named"])] == [None, "b.b"]
    for wrong in (3, int):
        with pytest.raises(TypeError, match="not a dataclass"):
            values.fields(wrong)
    with pytest.raises(ValueError, match="seen"):
        values.replace(OURS["Counter"](1), seen={})
    with pytest.raises(ValueError, match="mutable"):
        values.dataclass(type("Bad", (), {"__annotations__": {"a": "list"}, "a": []}))
    with pytest.raises(TypeError, match="follows"):
        values.dataclass(type("Bad", (), {"__annotations__": {"a": "int", "b": "int"}, "a": 1}))(b=1)


class Ours(values.NamedTuple):
    """A pair."""

    a: int
    b: int = 2

    @property
    def total(self) -> int:
        return self.a + self.b


class Standard(NamedTuple):
    """A pair."""

    a: int
    b: int = 2

    @property
    def total(self) -> int:
        return self.a + self.b


PAIRS: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((1,), {}),
    ((1, 3), {}),
    ((), {"b": 4, "a": 5}),
    ((), {}),
    ((1, 2, 3), {}),
    ((1,), {"a": 2}),
    ((1,), {"c": 2}),
]


@pytest.mark.parametrize(("args", "kwargs"), PAIRS)
def test_named_tuples_look_and_compare_as_standard_ones(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    def seen(kind: Any) -> Any:
        value = kind(*args, **kwargs)
        first, *rest = value
        match value:
            case kind(x, y):
                matched = x, y
        facts = value == (first, *rest), hash(value) == hash((first, *rest)), isinstance(value, tuple), matched
        more = value._asdict(), kind._fields, kind._field_defaults, kind.__doc__, hasattr(value, "__dict__")
        return facts, more, value.a, value.b, value.total, value._replace(b=7).b, repr(value).partition("(")[2]

    assert outcome(lambda: seen(Ours)) == outcome(lambda: seen(Standard))


@pytest.mark.parametrize(
    "wrong",
    [lambda kind: kind(1)._replace(c=2), lambda kind: kind._make([1]), lambda kind: kind(1).__setattr__("a", 2)],
)
def test_mistakes_with_named_tuples(wrong: Callable[[Any], Any]) -> None:
    found, standard = outcome(lambda: wrong(Ours)), outcome(lambda: wrong(Standard))
    assert found[0] is standard[0]
    assert found[1] == standard[1]


def test_named_tuples_can_be_pickled_copied_and_subclassed() -> None:
    class Place(Ours):
        __slots__ = ()

        @property
        def doubled(self) -> int:
            return 2 * self.total

    assert pickle.loads(pickle.dumps(Ours(1))) == copy.deepcopy(Ours(1)) == (1, 2)
    assert type(pickle.loads(pickle.dumps(Ours(1)))) is Ours
    assert Place(1).doubled == 6
    assert repr(Place(1)) == "Place(a=1, b=2)"
    assert list(inspect.signature(Ours).parameters) == ["a", "b"]


@values.dataclass(frozen=True, slots=True)
class Kept:
    a: int
    b: tuple[int, ...] = ()


def test_objects_can_be_pickled_and_copied() -> None:
    kept = Kept(1, (2, 3))
    assert pickle.loads(pickle.dumps(kept)) == kept == copy.deepcopy(kept)


def test_the_import_of_the_broker_loads_no_dataclasses() -> None:
    """These modules would take most of the import time."""
    script = "import sys, klog.broker; print(*({'dataclasses', 'inspect', 'asyncio', 'numpy', 'pyarrow'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-I", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
