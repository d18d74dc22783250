"""Random messages of Kafka's wire protocol, made from the schemas; and their form for Kafka's JSON converters."""

from __future__ import annotations

import base64
import random
import uuid
from collections.abc import Iterator
from typing import Any

from klog.protocol import ApiKey, messages
from klog.protocol.layout import Layout, data_messages, load
from klog.protocol.schema import Field, Struct
from tools.check_schemas import camel

_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_TEXTS = ["", "a", "topic-1", "grüße", "日本", "\U0001f600", "x" * 200]


def layouts() -> Iterator[tuple[Any, Layout]]:
    """(class, layout) of every message."""
    for api in ApiKey:
        for section, layout in load(api.message).items():
            yield getattr(getattr(messages, api.message), section.title()), layout
    for name in data_messages():
        yield getattr(messages, name), load(name)["data"]


def versions() -> Iterator[tuple[Any, Layout, int]]:
    """(class, layout, version) of every version of every message."""
    for owner, layout in layouts():
        for version in range(layout.versions.low, layout.versions.high + 1):
            yield owner, layout, version


def make(owner: Any, layout: Layout, version: int, chance: random.Random, *, small: bool = False) -> Any:
    """A message with random values in the fields that the version has.

    small: integers from 0 to 99 only, for a codec that reads some of them as times or error codes.
    """
    return _Maker(owner, version, chance, small).struct(owner, layout.section.top)


class _Maker:
    def __init__(self, top: Any, version: int, chance: random.Random, small: bool) -> None:
        self.top, self.version, self.chance, self.small = top, version, chance, small

    def struct(self, owner: Any, struct: Struct) -> Any:
        made = owner()
        for field in struct.fields:
            if self.version in field.versions and (field.tag is None or self.chance.random() < 0.7):
                setattr(made, field.name, self._value(field))
        return made

    def _value(self, field: Field) -> Any:
        if self.version in field.nullable and self.chance.random() < 0.25:
            return None
        if field.is_array:
            return [self._one(field) for _ in range(self.chance.choice((0, 1, 1, 2, 3)))]
        return self._one(field)

    def _one(self, field: Field) -> Any:
        chance = self.chance
        if field.struct is not None:
            return self.struct(getattr(self.top, field.struct.name), field.struct)
        if field.kind in _BITS:
            bits = chance.choice((1, 4, _BITS[field.kind]))
            return chance.randrange(100) if self.small else chance.randrange(-(1 << bits - 1), 1 << bits - 1)
        return {
            "bool": lambda: chance.random() < 0.5,
            "uint16": lambda: chance.randrange(1 << 16),
            "float64": lambda: chance.choice((0.0, -1.5, 1e300, chance.random())),
            "uuid": lambda: uuid.UUID(int=chance.choice((0, 1 << 64, chance.getrandbits(128)))),
            "string": lambda: chance.choice(_TEXTS),
            "bytes": lambda: chance.randbytes(chance.choice((0, 1, 20, 300))),
            "records": lambda: chance.randbytes(chance.choice((0, 1, 20, 300))),
        }[field.kind]()


def kafka_class(layout: Layout) -> str:
    """ProduceRequestData for Produce.Request; OffsetCommitKey for itself."""
    name = layout.name.replace(".", "")
    return f"{name}Data" if name.endswith(("Request", "Response", "Header")) else name


def kafka_json(message: Any, layout: Layout, version: int) -> dict[str, Any]:
    """The message as JSON that Kafka's <Message>JsonConverter reads."""
    return _json_struct(message, layout.section.top, version)


def _json_struct(message: Any, struct: Struct, version: int) -> dict[str, Any]:
    found = {}
    for field in struct.fields:
        if version in field.versions:
            name = camel(field.name)
            name = name[:1].lower() + name[1:]
            found[name] = _json(getattr(message, field.name), field, version)
    return found


def _json(value: Any, field: Field, version: int) -> Any:
    if isinstance(value, list):
        return [_json(each, field, version) for each in value]
    if value is None:
        return None
    if field.struct is not None:
        return _json_struct(value, field.struct, version)
    if field.kind == "uuid":
        return base64.urlsafe_b64encode(value.bytes).decode().rstrip("=")
    if field.kind in ("bytes", "records"):
        return base64.b64encode(bytes(value)).decode()
    return value
