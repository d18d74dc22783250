"""The formats of keys and values, as a caller of a reader names them: words or frozen objects → decoders.

    "utf8"              → string
    "json"              → string that is valid JSON; as a Python object, the parsed value
    Json(schema)        → struct
    Avro(schemas)       → the type of the reader's schema      Confluent's framing
    Protobuf(message)   → struct                               Confluent's framing, or none

Any object with a method decoder(subject) is a format. subject: `<topic>-key` or `<topic>-value`, as in a schema
registry.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from klog.arguments import chosen, having, text, wrong_type
from klog.decode.avro_types import parse as parse_avro
from klog.decode.confluent import ConfluentAvroDecoder
from klog.decode.confluent_protobuf import ConfluentProtobufDecoder, descriptor_set_of
from klog.decode.ddl import ddl
from klog.decode.ddl import parse as parse_ddl
from klog.decode.decoder import Decoder
from klog.decode.json_text import JsonTextDecoder
from klog.decode.json_values import JsonDecoder
from klog.decode.registry import Schema, Schemas, from_mapping
from klog.decode.text import TextDecoder
from klog.values import dataclass

if TYPE_CHECKING:
    import pyarrow as pa

WORDS = ("utf8", "json")
COLUMNS = ("key", "value")


class Format(Protocol):
    def decoder(self, subject: str) -> Decoder:
        """Return a new decoder. Raises ImportError, ValueError."""


Decode: TypeAlias = "Literal['utf8', 'json'] | Format | Mapping[str, Literal['utf8', 'json'] | Format]"


@dataclass(frozen=True)
class Utf8:
    """Text in UTF-8."""

    def decoder(self, subject: str) -> Decoder:
        return TextDecoder()


@dataclass(frozen=True)
class Json:
    """JSON. schema: DDL such as "id BIGINT, tags ARRAY<STRING>", the JSON of a Spark schema, a pyarrow.Schema or struct
    type of the same types; None: any JSON value, as text.

    Raises ValueError for a schema that cannot be used.
    """

    schema: str | pa.Schema | pa.DataType | None = None

    def __post_init__(self) -> None:
        if self.schema is not None:
            self._type()

    def _type(self) -> pa.DataType:
        import pyarrow as pa

        if isinstance(self.schema, str):
            return parse_ddl(text("schema", self.schema))
        kind = pa.struct(list(self.schema)) if isinstance(self.schema, pa.Schema) else self.schema
        if not isinstance(kind, pa.DataType):
            raise wrong_type("schema", kind, "DDL, a pyarrow.Schema, a struct type or None")
        if not pa.types.is_struct(kind) or not kind.num_fields:
            raise ValueError(f"schema={kind}: a struct with fields expected")
        ddl(kind)
        return kind

    def decoder(self, subject: str) -> Decoder:
        return JsonTextDecoder() if self.schema is None else JsonDecoder(self._type())


@dataclass(frozen=True)
class Avro:
    """Avro in Confluent's framing. schemas: by id, klog.decode.from_records(logs.read("_schemas").pairs(), "_schemas"),
    or a mapping {7: schema as JSON text or dict}. reader: the schema of the columns, an Avro schema or DDL; None: the
    newest of the subject <topic>-value, or the only one.

    Raises ValueError for a schema that cannot be used.
    """

    schemas: Schemas | Mapping[int, str | Mapping[str, Any]]
    reader: str | Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        schemas = self._schemas()
        if schemas is not self.schemas:  # a registry may have many schemas, few of them in use
            for number, each in schemas.by_id.items():
                try:
                    parse_avro(each.text)
                except ValueError as error:
                    raise ValueError(f"schemas[{number}]: {error}") from None
        if self.reader is not None and not isinstance(self.reader, str | Mapping):
            raise wrong_type("reader", self.reader, "an Avro schema, DDL or None")

    def _schemas(self) -> Schemas:
        if isinstance(self.schemas, Schemas):
            return self.schemas
        if not isinstance(self.schemas, Mapping):
            raise wrong_type("schemas", self.schemas, "klog.decode.Schemas, or a mapping of ids to schemas,")
        return from_mapping(self.schemas, "schemas")

    def decoder(self, subject: str) -> Decoder:
        schemas = self._schemas()
        if self.reader is not None:
            given = self.reader if isinstance(self.reader, str) else json.dumps(self.reader)
            return ConfluentAvroDecoder(schemas, reader_of(given))
        if subject in schemas.newest:
            return ConfluentAvroDecoder(schemas, schemas.of(schemas.newest[subject]))
        if len(schemas.by_id) != 1:
            raise ValueError(
                f"{schemas.origin} has {len(schemas.by_id)} schemas and no subject {subject!r}; name the schema of the "
                f"columns: klog.decode.Avro(schemas, reader=...)"
            )
        return ConfluentAvroDecoder(schemas, next(iter(schemas.by_id.values())))


def reader_of(given: str) -> Schema | Any:
    """Return an Avro schema, or the Arrow type of DDL or a Spark schema. Raises ValueError."""
    if given.lstrip()[:1] not in ("{", "[", '"'):
        return parse_ddl(given)
    try:
        parsed = json.loads(given)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON: {error}") from None
    return parse_ddl(given) if isinstance(parsed, dict) and parsed.get("type") == "struct" else Schema(given)


@dataclass(frozen=True)
class Protobuf:
    """Protobuf messages. message: a generated message class; or the full name of a message in `descriptors`, the bytes
    of a FileDescriptorSet (protoc --include_imports --descriptor_set_out). framing: "confluent", or "none" for
    messages alone.

    Raises ValueError for a message without a column type, ImportError without protobuf.
    """

    message: Any
    descriptors: bytes | None = None
    framing: Literal["confluent", "none"] = "confluent"

    def __post_init__(self) -> None:
        chosen("framing", self.framing, ("confluent", "none"))
        if self.descriptors is None and not hasattr(self.message, "DESCRIPTOR"):
            raise wrong_type("message", self.message, "a message class; or its full name, with descriptors=...,")
        if self.descriptors is not None:
            text("message", self.message)
            if not isinstance(self.descriptors, bytes):
                raise wrong_type("descriptors", self.descriptors, "bytes, or None,")

    def decoder(self, subject: str) -> Decoder:
        if self.descriptors is None:
            name, descriptors = self.message.DESCRIPTOR.full_name, descriptor_set_of(self.message)
        else:
            name, descriptors = self.message, self.descriptors
        return ConfluentProtobufDecoder(descriptors, name, framed=self.framing == "confluent")


def formats_of(decode: Decode) -> dict[str, Format]:
    """Return {column: its format} of an argument `decode`; a single format is that of the values. Raises TypeError and
    ValueError that name the argument."""
    given = decode if isinstance(decode, Mapping) else {"value": decode}
    if not given:
        raise ValueError("decode={}: name a format of 'key' or 'value'")
    found: dict[str, Format] = {}
    for column, each in given.items():
        chosen("decode", column, COLUMNS)
        name = f"decode[{column!r}]" if isinstance(decode, Mapping) else "decode"
        if isinstance(each, str):
            chosen(name, each, WORDS, ", or an object with a schema: klog.decode.Json(...), Avro(...), Protobuf(...)")
            found[column] = Utf8() if each == "utf8" else Json()
        elif isinstance(each, type):
            raise wrong_type(name, each, "'utf8', 'json' or an object such as klog.decode.Json()")
        else:
            found[column] = having(name, each, ("decoder",), "'utf8', 'json' or an object such as klog.decode.Json()")
    return found


def decoders_of(formats: Mapping[str, Format], topic: str) -> dict[str, Decoder]:
    """Return new decoders for a topic. Raises ImportError; ValueError with the column."""
    found = {}
    for column, each in formats.items():
        try:
            found[column] = each.decoder(f"{topic}-{column}")
        except ValueError as error:
            raise ValueError(f"decode[{column!r}]: {error}") from None
    return found
