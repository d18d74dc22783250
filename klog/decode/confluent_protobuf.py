"""Protobuf messages, alone or framed as the clients of a schema registry write them.

  value   := 0:u8 schema_id:i32 indexes message           big-endian
  indexes := count:zigzag index:zigzag{count}             the path to the message in its .proto; count 0 stands for [0]

F1  The message is given; the schema id is not looked up. Protobuf reads what older and newer schemas wrote.
F2  Indexes of another message are a bad value: Protobuf would read nearly any bytes as nearly any message.
F3  Hostile bytes cost no more time and memory than their length: see P1 of protobuf_columns.py. The parser bounds
    the depth.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from klog import extras
from klog.decode.columns import build
from klog.decode.decoder import Decoder
from klog.decode.protobuf_columns import message_column

if TYPE_CHECKING:
    import pyarrow as pa
    from google.protobuf.descriptor import Descriptor, FileDescriptor

_HEADER = 5
_INDEXES_MAX = 100  # the depth to which protoc nests messages is smaller


def descriptor_set_of(message: Any) -> bytes:
    """Return the FileDescriptorSet of a message class: its file after those that it imports."""
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    found: dict[str, FileDescriptor] = {}

    def add(file: FileDescriptor) -> None:
        for each in file.dependencies:
            if each.name not in found:
                add(each)
        found[file.name] = file

    add(message.DESCRIPTOR.file)
    files = FileDescriptorSet()
    for each in found.values():
        each.CopyToProto(files.file.add())
    data: bytes = files.SerializeToString()
    return data


class ConfluentProtobufDecoder(Decoder):
    """binary → struct of the message with this full name. descriptors: bytes of a FileDescriptorSet.

    Raises ImportError without protobuf, and ValueError for a message that the descriptors do not have, or that has no
    column type.
    """

    def __init__(self, descriptors: bytes, name: str, *, framed: bool = True) -> None:
        try:
            from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
            from google.protobuf.message import DecodeError
        except ImportError as error:
            raise extras.missing("decoding Protobuf", "protobuf", "protobuf", error) from error
        self._given = descriptors, name, framed
        try:
            pool = descriptor_pool.DescriptorPool()
            for file in descriptor_pb2.FileDescriptorSet.FromString(descriptors).file:
                pool.Add(file)
            descriptor = pool.FindMessageTypeByName(name)
        except (DecodeError, KeyError, TypeError) as error:
            raise ValueError(f"message {name!r} cannot be made from the descriptors: {error}") from None
        self._message: Any = message_factory.GetMessageClass(descriptor)
        self._column = message_column(descriptor)
        self._indexes = _indexes_of(descriptor) if framed else None

    def __reduce__(self) -> tuple[Any, ...]:
        return _decoder, self._given

    @property
    def type(self) -> pa.DataType:
        return self._column.type

    def decode(self, values: pa.Array) -> tuple[pa.Array, dict[int, str]]:
        """Return the structs, null where a value is bad, and {index of a bad value: why}."""
        bad: dict[int, str] = {}
        items: list[Any] = []
        for index, value in enumerate(values.to_pylist()):
            item = None
            if value is not None:
                try:
                    item = self._parsed(value)
                except ValueError as error:
                    bad[index] = str(error)
            items.append(item)
        array, unfit = build(self._column, items)
        return array, {**bad, **unfit}

    def _parsed(self, value: bytes) -> Any:
        """Return the message. Raises ValueError for a bad value."""
        from google.protobuf.message import DecodeError

        body = memoryview(value)
        if self._indexes is not None:
            if len(value) <= _HEADER or value[0] != 0:
                raise ValueError(
                    "it does not begin with the byte 0, a schema id of four bytes and indexes, as Confluent's format "
                    "does"
                )
            indexes, at = _indexes_at(value, _HEADER)
            if indexes != self._indexes:
                raise ValueError(f"its indexes {indexes} name another message; {self._given[1]} has {self._indexes}")
            body = body[at:]
        message = self._message()
        try:
            message.ParseFromString(bytes(body))
        except (DecodeError, UnicodeDecodeError) as error:
            raise ValueError(f"it is not a {self._given[1]}, or is cut: {error}") from None
        if not message.IsInitialized():
            raise ValueError(f"required fields are missing: {', '.join(message.FindInitializationErrors())}")
        return message


def _decoder(descriptors: bytes, name: str, framed: bool) -> ConfluentProtobufDecoder:
    return ConfluentProtobufDecoder(descriptors, name, framed=framed)


def _indexes_of(message: Descriptor) -> list[int]:
    """Return the indexes of a message in its file, from the outermost message to itself."""
    found: list[int] = []
    at: Descriptor | None = message
    while at is not None:
        siblings = at.containing_type.nested_types_by_name if at.containing_type else at.file.message_types_by_name
        found.insert(0, list(siblings).index(at.name))
        at = at.containing_type
    return found


def _indexes_at(value: bytes, at: int) -> tuple[list[int], int]:
    """Return the indexes at a position, and the position after them. Raises ValueError."""
    count, at = _zigzag(value, at)
    if not 0 <= count <= _INDEXES_MAX:
        raise ValueError(f"{count} indexes of a message are not from 0 to {_INDEXES_MAX}")
    found = []
    for _ in range(count):
        index, at = _zigzag(value, at)
        found.append(index)
    return found or [0], at


def _zigzag(value: bytes, at: int) -> tuple[int, int]:
    number = 0
    for shift in range(0, 35, 7):
        if at >= len(value):
            raise ValueError("the indexes of its message are cut")
        byte = value[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number >> 1 ^ -(number & 1), at
    raise ValueError("an index of its message has more than 5 bytes")
