"""protocol: Kafka's wire protocol. Takes bytes of a connection and gives messages as objects, and the other way round.

    messages                          the classes: messages.Metadata.Request(topics=None)
    decode, encode                    one message of one version
    decode_request, encode_response   frames with their headers, for a broker
    encode_request, decode_response   the same for a client
    decode_data, encode_data          messages with their version in front: the blobs of consumer groups
    decode_fields, encode_fields      messages inside records, as dicts; versions_of, their versions
    Message                           what they have in common
    ApiKey, ErrorCode                 Kafka's tables of requests, with their versions, and of errors

The messages of all versions of one API are one class: a field that a version lacks has its default after decoding. The
schemas are in schemas/, one file for each API, and one for each internal topic; schema.py has their language. Kafka:
org.apache.kafka.common.protocol.
"""

from __future__ import annotations

from importlib import import_module

from klog import lazy

TYPE_CHECKING = False  # as in typing, which need not be loaded for this
if TYPE_CHECKING:
    from klog.protocol import messages
    from klog.protocol._decode import decode
    from klog.protocol._encode import encode
    from klog.protocol._fields import decode_fields, encode_fields, versions_of
    from klog.protocol._message import Message
    from klog.protocol.api_keys import ApiKey
    from klog.protocol.data import decode_data, encode_data
    from klog.protocol.error_codes import ErrorCode
    from klog.protocol.frames import Request, decode_request, decode_response, encode_request, encode_response

__all__ = [
    "ApiKey",
    "ErrorCode",
    "Message",
    "Request",
    "decode",
    "decode_data",
    "decode_fields",
    "decode_request",
    "decode_response",
    "encode",
    "encode_data",
    "encode_fields",
    "encode_request",
    "encode_response",
    "messages",
    "versions_of",
]


# The module of each name, which is loaded when the name is first used: code that reads records needs no table of
# errors.
_PLACES = {
    "ApiKey": "api_keys",
    "ErrorCode": "error_codes",
    "Message": "_message",
    "Request": "frames",
    "decode": "_decode",
    "decode_data": "data",
    "decode_fields": "_fields",
    "decode_request": "frames",
    "decode_response": "frames",
    "encode": "_encode",
    "encode_data": "data",
    "encode_fields": "_fields",
    "encode_request": "frames",
    "encode_response": "frames",
    "versions_of": "_fields",
}


_find = lazy.attributes(globals(), _PLACES)


def __getattr__(name: str) -> object:
    if name == "messages":
        return import_module("klog.protocol.messages")
    return _find(name)


def __dir__() -> list[str]:
    return sorted(__all__)
