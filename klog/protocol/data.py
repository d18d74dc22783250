"""Messages with their version in front: those that clients store inside others, as in JoinGroup and SyncGroup.

    data := version:int16  message

A version above those that klog knows is read as the last one, and the fields that it adds are ignored: a newer member
of a group may send it. Kafka: ConsumerProtocol.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from klog.arguments import whole, wrong_type
from klog.errors import CorruptFrame, UnsupportedVersion
from klog.protocol._decode import decode, decode_from
from klog.protocol._encode import encode
from klog.protocol.classes import message as class_of
from klog.protocol.layout import load

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from klog.protocol._message import Message

_MESSAGES = ("ConsumerProtocolSubscription", "ConsumerProtocolAssignment")
_VERSION = struct.Struct(">h")


def decode_data(message: type[Message], buffer: Buffer) -> tuple[int, Any]:
    """(version, message) of a buffer that begins with the version.

    message: messages.ConsumerProtocolSubscription or messages.ConsumerProtocolAssignment. Raises CorruptFrame for bytes
    that are not such a message, UnsupportedVersion for a negative version.
    """
    high = _highest(message)
    try:
        view = memoryview(buffer)
        (version,) = _VERSION.unpack_from(view)
    except TypeError:
        raise wrong_type("buffer", buffer, "a contiguous buffer") from None
    except struct.error:
        raise CorruptFrame("the bytes end inside the version; ask its sender for it again", position=0) from None
    if version > high:
        return version, decode_from(message, high, buffer, _VERSION.size)[0]
    return version, decode(message, version, buffer, _VERSION.size)


def encode_data(message: Message, version: int) -> bytes:
    """The version and the message. Raises what encode() raises."""
    high = _highest(type(message))
    if not 0 <= whole("version", version) <= high:
        raise UnsupportedVersion(f"{type(message).__name__} version {version}: klog knows versions 0 to {high}")
    return _VERSION.pack(version) + encode(message, version)


def _highest(message: type[Message]) -> int:
    name = getattr(message, "__name__", "")
    if name not in _MESSAGES or class_of(name) is not message:
        raise wrong_type("message", message, "ConsumerProtocolSubscription or ConsumerProtocolAssignment")
    return load(name)["data"].versions.high
