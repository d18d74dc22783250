"""Values that are UTF-8 text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from klog.decode.decoder import Decoder

if TYPE_CHECKING:
    import pyarrow as pa


class TextDecoder(Decoder):
    """binary → string; bytes that are not UTF-8 are bad values."""

    @property
    def type(self) -> pa.DataType:
        import pyarrow as pa

        return pa.string()

    def decode(self, values: pa.Array) -> tuple[pa.Array, dict[int, str]]:
        """Return the texts, null where a value is bad, and {index of a bad value: why}."""
        import pyarrow as pa

        try:
            return values.cast(pa.string()), {}
        except pa.ArrowInvalid:
            bad = {}
            texts: list[str | None] = []
            for index, value in enumerate(values.to_pylist()):
                try:
                    texts.append(None if value is None else value.decode())
                except UnicodeDecodeError as error:
                    texts.append(None)
                    bad[index] = f"byte {error.start} is not UTF-8: {error.reason}"
            return pa.array(texts, pa.string()), bad
