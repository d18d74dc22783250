from collections.abc import Iterable
from os import PathLike
from typing import Final, Never, final

from typing_extensions import Buffer, disjoint_base

from klog.record.payloads import Payloads

FIELDS: Final[tuple[str, ...]]
ORIGIN_FIELDS: Final[tuple[str, ...]]

@disjoint_base
class Layout:
    @property
    def names(self) -> tuple[str, ...]: ...

@final
class Fields(Layout): ...

@disjoint_base
class ArrowColumns:
    @property
    def fields(self) -> tuple[str, ...]: ...
    @property
    def num_rows(self) -> int: ...
    def __arrow_c_schema__(self) -> object: ...
    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]: ...

@final
class Columns(ArrowColumns):
    def __init__(self, /, *args: Never, **kwargs: Never) -> None: ...
    def __len__(self) -> int: ...
    @property
    def nbytes(self) -> int: ...

@final
class ArrowStream:
    def __init__(
        self, iterable: Iterable[ArrowColumns], fields: Iterable[str] | Layout | None = None, *, views: bool = False
    ) -> None: ...
    @property
    def fields(self) -> tuple[str, ...]: ...
    @property
    def error(self) -> BaseException | None: ...
    def __arrow_c_schema__(self) -> object: ...
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...

def columns(
    buffer: Buffer,
    *,
    start: int = 0,
    stop: int = ...,
    include_control: bool = False,
    aborted: Iterable[tuple[int, int, int]] = (),
    path: str | PathLike[str] | None = None,
    file_position: int = 0,
    verify_crc: bool = True,
    fields: Iterable[str] | None = None,
    views: bool = False,
    payloads: Payloads | None = None,
    origin: tuple[str, int] | None = None,
    offsets: Buffer | None = None,
    spark: bool = False,
) -> Columns: ...
def column_names(columns: Iterable[str]) -> tuple[str, ...]: ...
