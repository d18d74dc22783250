from collections.abc import Iterable
from types import EllipsisType
from typing import Any, ClassVar, Self, dataclass_transform, final

from klog.protocol._program import Programs

@final
class Shape:
    names: tuple[str, ...]
    defaults: list[Any]
    def __new__(cls, owner: type, names: tuple[str, ...], defaults: list[Any]) -> Self: ...

@dataclass_transform(kw_only_default=True, eq_default=True)
class Message:
    _programs: ClassVar[Programs | None]
    _shape: ClassVar[Shape]
    @classmethod
    def set_shape(cls, names: Iterable[str], defaults: Iterable[EllipsisType | Any]) -> None: ...
    @classmethod
    def set_programs(cls, programs: Programs) -> None: ...
    def __init__(self, **fields: Any) -> None: ...
    def __eq__(self, other: object, /) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]
