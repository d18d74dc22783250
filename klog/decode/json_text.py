"""Values that are JSON of any kind, without a schema: text that is checked to be JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from klog import extras
from klog.decode.decoder import Decoder
from klog.decode.text import TextDecoder

if TYPE_CHECKING:
    import pyarrow as pa


class JsonTextDecoder(Decoder):
    """binary → string; bytes that are not one JSON value in UTF-8 are bad. Raises ImportError without msgspec."""

    def __init__(self) -> None:
        try:
            import msgspec
        except ImportError as error:
            raise extras.missing("decoding JSON", "msgspec", "json", error) from error
        self._parse = msgspec.json.Decoder().decode

    def __reduce__(self) -> tuple[Any, ...]:
        return JsonTextDecoder, ()

    @property
    def type(self) -> pa.DataType:
        import pyarrow as pa

        return pa.string()

    def decode(self, values: pa.Array) -> tuple[pa.Array, dict[int, str]]:
        """Return the texts, null where a value is bad, and {index of a bad value: why}."""
        import pyarrow as pa
        import pyarrow.compute as pc
        from msgspec import MsgspecError

        texts, bad = TextDecoder().decode(values)
        broken = {}
        for index, text in enumerate(texts.to_pylist()):
            if text is not None:
                try:
                    self._parse(text)
                except (MsgspecError, RecursionError, ValueError, OverflowError) as error:
                    broken[index] = str(error)
        if broken:
            mask = pa.array([index in broken for index in range(len(texts))], pa.bool_())
            texts = pc.if_else(mask, pa.scalar(None, pa.string()), texts)
        return texts, {**bad, **broken}

    def objects(self, decoded: pa.Array) -> list[Any]:
        """Return the parsed values; None also for the JSON value null."""
        return [None if text is None else self._parse(text) for text in decoded.to_pylist()]
