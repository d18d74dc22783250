"""Frames: a request or response with its header.

    frame := size:int32  header  message          size: of header and message

The header's version follows from the API and its version. Kafka: RequestHeader, ResponseHeader, ApiKeys.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from klog.arguments import instance, whole
from klog.errors import CorruptFrame, UnsupportedVersion
from klog.protocol._decode import decode, decode_from
from klog.protocol._encode import encode_frame
from klog.protocol._message import Message
from klog.protocol.api_keys import ApiKey
from klog.protocol.classes import message as class_of
from klog.values import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Buffer

_START = struct.Struct(">hhi")  # api key, version and correlation id, in every version of the header
_CODES: dict[int, ApiKey] = {api.value: api for api in ApiKey}
# (api key, version): what its frames are made of. Filled when a frame of that kind is first seen.
_requests: dict[tuple[int, int], _Kind] = {}
_responses: dict[tuple[int, int], _Kind] = {}


class _Kind(NamedTuple):
    """The header's version, and the class of the message."""

    api: ApiKey
    header: int
    message: Any


class Request(NamedTuple):
    """A request that has arrived. message: of the class messages.<API>.Request."""

    api: ApiKey
    version: int
    correlation_id: int
    client_id: str | None
    message: Any


def decode_request(frame: Buffer, wants: Callable[[ApiKey], bool] | None = None) -> Request:
    """The request in a frame without its size. wants: of its API; if it returns false, only the header is decoded, and
    the message is an empty one.

    Raises UnsupportedVersion with the header's fields for an API or version that klog does not know: of ApiVersions,
    respond with error 35 in version 0 of the response; of another API, close the connection. Raises CorruptFrame for
    other bytes that are not a request.
    """
    try:
        view = memoryview(frame)
        key, version, correlation_id = _START.unpack_from(view)
    except TypeError:
        raise TypeError(f"frame: a buffer expected, not {type(frame).__name__}") from None
    except struct.error:
        raise CorruptFrame("the bytes end inside the header; close the connection", position=view.nbytes) from None
    kind = _requests.get((key, version)) or _request_kind(key, version, correlation_id)
    header, position = decode_from(class_of("RequestHeader"), kind.header, frame, 0)
    if wants is not None and not wants(kind.api):
        return Request(kind.api, version, correlation_id, header.client_id, kind.message())
    # Bytes after the message are ignored, as in Kafka: librdkafka 2.16 ends Metadata 13 with a field of version 10.
    message, _ = decode_from(kind.message, version, frame, position)
    return Request(kind.api, version, correlation_id, header.client_id, message)


def _request_kind(key: int, version: int, correlation_id: int) -> _Kind:
    api = _CODES.get(key)
    if api is None or not api.low <= version <= api.high:
        known = "no such API" if api is None else f"{api.message} has versions {api.low} to {api.high}"
        raise UnsupportedVersion(
            f"request of API {key}, version {version}: {known}; close the connection, unless it is ApiVersions",
            api_key=key,
            api_version=version,
            correlation_id=correlation_id,
        )
    kind = _requests[key, version] = _Kind(api, api.request_header(version), class_of(api.message).Request)
    return kind


def encode_response(
    api: ApiKey, version: int, correlation_id: int, message: Message, errors: list[int] | None = None
) -> list[Any]:
    """The frame of a response, size included, as a list of parts to send in order. errors: a list that gets each error
    code in the response, but for 0.

    Records are parts of their own and not copied: the buffers that the message has, or objects with a `size`, such as
    the result of klog.Log.fetch. Raises what encode() raises.
    """
    kind = _responses.get((api, version)) if type(api) is ApiKey else None
    if kind is None or type(message) is not kind.message or type(version) is not int:
        kind = _response_kind(api, version, message)
    header = class_of("ResponseHeader")(correlation_id=correlation_id)
    return encode_frame(header, kind.header, message, version, errors)


def _response_kind(api: ApiKey, version: int, message: Message) -> _Kind:
    api = instance("api", api, ApiKey, "an ApiKey")
    version = whole("version", version)
    _check(api, message, "Response")
    kind = _Kind(api, api.response_header(version), class_of(api.message).Response)
    if api.low <= version <= api.high:
        _responses[api, version] = kind
    return kind


def encode_request(
    api: ApiKey, version: int, correlation_id: int, client_id: str | None, message: Message
) -> list[Any]:
    """The frame of a request, size included, as encode_response() returns it."""
    api = instance("api", api, ApiKey, "an ApiKey")
    header = class_of("RequestHeader")(
        request_api_key=api.value, request_api_version=version, correlation_id=correlation_id, client_id=client_id
    )
    _check(api, message, "Request")
    return encode_frame(header, api.request_header(whole("version", version)), message, version)


def decode_response(api: ApiKey, version: int, frame: Buffer) -> tuple[int, Any]:
    """(correlation id, message) of the response in a frame without its size. Raises what decode() raises."""
    api = instance("api", api, ApiKey, "an ApiKey")
    header, position = decode_from(class_of("ResponseHeader"), api.response_header(whole("version", version)), frame, 0)
    return header.correlation_id, decode(class_of(api.message).Response, version, frame, position)


def _check(api: ApiKey, message: Message, kind: str) -> None:
    owner = getattr(class_of(api.message), kind)
    instance("message", message, owner, f"{api.message}.{kind}")
