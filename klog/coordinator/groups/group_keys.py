"""Keys of the records of classic groups: type:i16 = 2  group:string"""

from __future__ import annotations

import struct

from klog.errors import CorruptData

TYPE_AND_SIZE = struct.Struct(">hh")
_STRING_BYTES_MAX = 32767  # of a string with a size of 16 bits


def string_bytes(text: str, what: str) -> bytes:
    """A text as a record has it. Raises ValueError for more than 32,767 bytes."""
    data = text.encode()
    if len(data) > _STRING_BYTES_MAX:
        raise ValueError(f"{what} of {len(data)} bytes: at most {_STRING_BYTES_MAX} fit into a record")
    return data


def group_key(group_id: str) -> bytes:
    """The key of the record. Raises ValueError for an id of more than 32,767 bytes."""
    data = string_bytes(group_id, "a group id")
    return TYPE_AND_SIZE.pack(2, len(data)) + data


def group_tombstone(group_id: str) -> tuple[bytes, None]:
    """The record that deletes the group."""
    return group_key(group_id), None


def read_group_id(key: bytes, offset: int) -> str:
    """The group's id in the key of a record at offset. Raises CorruptData."""
    try:
        _, size = TYPE_AND_SIZE.unpack_from(key)
        if size < 0 or len(key) < 4 + size:
            raise ValueError(f"{size} bytes expected after byte 4 of {len(key)}")
        return key[4 : 4 + size].decode()
    except (struct.error, ValueError) as error:
        raise CorruptData(f"the key {key!r} of a group cannot be decoded: {error}", offset=offset) from None
