"""The formats that a reader may have been given. Without any, nothing is imported for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from klog.record import ArrowStream, Columns

if TYPE_CHECKING:
    from klog.decode import Decode
    from klog.log.read.decoding import DeadLetter, Decoding, OnBad
    from klog.log.read.tables import Stream


def optional_decoding(
    topic: str,
    decode: Decode | None,
    on_bad: OnBad,
    dead_letter: DeadLetter | None,
    include_control: bool = False,
) -> Decoding | None:
    """Check the arguments of read(), tail() and reader(). Returns None without `decode`. Raises ValueError, TypeError,
    ImportError."""
    if decode is None and dead_letter is None and isinstance(on_bad, str) and on_bad == "raise":
        return None
    from klog.log.read.decoding import decoding_of  # klog.decode takes time to import

    return decoding_of(topic, decode, on_bad, dead_letter, include_control)


def stream_of(
    columns: Callable[[Sequence[str]], Iterator[tuple[int, Columns]]], decoding: Decoding | None, fields: Sequence[str]
) -> Stream:
    """An Arrow stream of these fields, decoded if there are formats. columns: called with names of columns, gives
    (partition, its columns) in order."""
    if decoding is None:
        return ArrowStream((found for _, found in columns(fields)), fields)
    from klog.log.read.decoding import DecodedStream  # klog.decode takes time to import

    return DecodedStream(columns, decoding, fields)
