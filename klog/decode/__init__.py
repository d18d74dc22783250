"""Decodes the bytes of keys and values: takes an Arrow binary array, returns a typed Arrow array, and the reasons why
some values are bad.

    decoder = JsonDecoder(parse_ddl("id BIGINT, delay DOUBLE"))
    array, bad = decoder.decode(values)         # null where a value is bad; {index: why}

Readers take formats, which make the decoders: the words "utf8" and "json", or Json, Avro and Protobuf with a schema.

Each decoder has the `type` of its arrays, can be pickled, and takes any bytes: they cannot make it crash or hang, and
its memory is bounded by a multiple of their length. One thread at a time. Importing this package loads neither pyarrow
nor the libraries that parse: msgspec for JSON, fastavro for Avro, protobuf for Protobuf.
"""

from __future__ import annotations

from klog.decode.confluent import ConfluentAvroDecoder
from klog.decode.confluent_protobuf import ConfluentProtobufDecoder
from klog.decode.ddl import parse as parse_ddl
from klog.decode.decoder import Decoder, slices
from klog.decode.formats import COLUMNS, Avro, Decode, Format, Json, Protobuf, Utf8, decoders_of, formats_of
from klog.decode.json_text import JsonTextDecoder
from klog.decode.json_values import JsonDecoder
from klog.decode.registry import TOPIC, Schema, Schemas, from_file, from_records
from klog.decode.text import TextDecoder

__all__ = [
    "COLUMNS",
    "TOPIC",
    "Avro",
    "ConfluentAvroDecoder",
    "ConfluentProtobufDecoder",
    "Decode",
    "Decoder",
    "Format",
    "Json",
    "JsonDecoder",
    "JsonTextDecoder",
    "Protobuf",
    "Schema",
    "Schemas",
    "TextDecoder",
    "Utf8",
    "decoders_of",
    "formats_of",
    "from_file",
    "from_records",
    "parse_ddl",
    "slices",
]


def __dir__() -> list[str]:
    return sorted(__all__)
