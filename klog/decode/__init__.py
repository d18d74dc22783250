"""Decodes the bytes of keys and values: an Arrow binary array in, a typed Arrow array out, and why some are bad.

    decoder = JsonDecoder(parse_ddl("id BIGINT, delay DOUBLE"))
    array, bad = decoder.decode(values)         # null where a value is bad; {index: why}

Each decoder has the `type` of its arrays, can be pickled, and takes any bytes: they cannot make it crash, hang, or use
more memory than in proportion to their length. One thread at a time. Importing this package loads neither pyarrow nor
the libraries that parse: msgspec for JSON, fastavro for Avro.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from klog.decode.confluent import ConfluentAvroDecoder
from klog.decode.ddl import ddl
from klog.decode.ddl import parse as parse_ddl
from klog.decode.json_values import JsonDecoder
from klog.decode.registry import TOPIC, Schema, Schemas, from_file, from_records
from klog.decode.text import TextDecoder

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "TOPIC",
    "ConfluentAvroDecoder",
    "Decoder",
    "JsonDecoder",
    "Schema",
    "Schemas",
    "TextDecoder",
    "ddl",
    "from_file",
    "from_records",
    "parse_ddl",
]


class Decoder(Protocol):
    @property
    def type(self) -> pa.DataType:
        """The type of the decoded values."""

    def decode(self, values: pa.Array) -> tuple[pa.Array, dict[int, str]]:
        """Return the decoded values, null where one is null or bad, and {index of a bad one: why}."""
