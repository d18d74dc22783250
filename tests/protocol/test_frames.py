"""Whole frames: headers by API and version, records as parts, requests that klog does not know."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

import klog
from klog.errors import CorruptFrame, UnsupportedVersion
from klog.protocol import (
    ApiKey,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
    messages,
)

Fetch = messages.Fetch


def test_every_request_and_response_has_its_header() -> None:
    for api in ApiKey:
        both = getattr(messages, api.message)
        for version in range(api.low, api.high + 1):
            (frame,) = encode_request(api, version, 7, "me", both.Request())
            assert struct.unpack_from(">ihhi", frame) == (len(frame) - 4, api.value, version, 7)
            assert frame[12:16] == b"\0\2me" and (not api.is_flexible(version) or frame[16] == 0)
            request = decode_request(frame[4:])
            assert request == (api, version, 7, "me", both.Request())
            (frame,) = encode_response(api, version, -9, both.Response())
            assert struct.unpack_from(">ii", frame) == (len(frame) - 4, -9)
            assert decode_response(api, version, memoryview(frame)[4:]) == (-9, both.Response())


def test_the_header_of_an_api_versions_response_is_never_flexible() -> None:
    (frame,) = encode_response(ApiKey.API_VERSIONS, 3, 1, messages.ApiVersions.Response(error_code=35))
    assert frame[8:10] == struct.pack(">h", 35)
    (frame,) = encode_response(ApiKey.METADATA, 9, 1, messages.Metadata.Response())
    assert frame[8:13] == bytes(5)


def test_a_client_without_an_id() -> None:
    (frame,) = encode_request(ApiKey.METADATA, 12, 1, None, messages.Metadata.Request())
    assert frame[12:15] == b"\xff\xff\0" and decode_request(frame[4:]).client_id is None


def _response(*records: Any) -> Fetch.Response:
    partitions = [Fetch.Response.Partition(partition_index=n, records=each) for n, each in enumerate(records)]
    return Fetch.Response(responses=[Fetch.Response.Topic(topic="t", partitions=partitions)])


@pytest.mark.parametrize("version", [4, 12])
def test_records_are_parts_of_a_frame(version: int) -> None:
    records = [b"first", None, b"", memoryview(b"second" * 1000)]
    parts = encode_response(ApiKey.FETCH, version, 1, _response(*records))
    assert [type(part) for part in parts] == [bytes, bytes, bytes, memoryview, bytes][: len(parts)]
    assert parts[1] is records[0] and parts[3] is records[3]
    whole = b"".join(parts)
    assert struct.unpack_from(">i", whole)[0] == len(whole) - 4
    read = decode_response(ApiKey.FETCH, version, whole[4:])[1].responses[0].partitions
    assert [None if each.records is None else bytes(each.records) for each in read] == [
        None if each is None else bytes(each) for each in records
    ]


def test_a_fetch_of_a_log_is_a_part(tmp_path: Path) -> None:
    with klog.Log.open(tmp_path / "t-0") as log:
        log.append([(b"k", b"v")])
        data = log.fetch(0)
        first, part, *last = encode_response(ApiKey.FETCH, 4, 1, _response(data))
        assert part is data and not last
        assert struct.unpack_from(">i", first)[0] == len(first) - 4 + data.size
    for wrong in ("text", 1, object()):
        with pytest.raises(TypeError, match=r"partitions\[0\].records=.* a buffer, or an object with a size"):
            encode_response(ApiKey.FETCH, 4, 1, _response(wrong))


class _Huge:
    size = 1 << 30


def test_a_frame_has_less_than_two_gib() -> None:
    assert len(encode_response(ApiKey.FETCH, 12, 1, _response(_Huge()))) == 3
    with pytest.raises(ValueError, match="too many for one frame"):
        encode_response(ApiKey.FETCH, 12, 1, _response(_Huge(), _Huge()))


@pytest.mark.parametrize(("key", "version"), [(18, 5), (0, 2), (0, 14), (71, 0), (-1, 0), (3, -1)])
def test_an_unknown_version_is_reported_with_its_header(key: int, version: int) -> None:
    with pytest.raises(UnsupportedVersion, match=f"API {key}, version {version}") as caught:
        decode_request(struct.pack(">hhi", key, version, 99) + b"anything")
    assert (caught.value.api_key, caught.value.api_version, caught.value.correlation_id) == (key, version, 99)
    assert caught.value.code == 35


def test_bytes_that_are_not_a_frame() -> None:
    (frame,) = encode_request(ApiKey.METADATA, 12, 1, "me", messages.Metadata.Request())
    for end in range(4, len(frame)):
        with pytest.raises(CorruptFrame):
            decode_request(frame[4:end])
    # librdkafka 2.16 ends requests of Metadata 13 with a field that this version does not have; Kafka ignores it.
    assert decode_request(frame[4:] + b"x").message == messages.Metadata.Request()


def test_arguments() -> None:
    message = messages.Metadata.Request()
    for api in (3, "METADATA", None):
        with pytest.raises(TypeError, match="api="):
            encode_request(api, 1, 1, "me", message)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="api="):
            decode_response(api, 1, b"")  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="api="):
            encode_response(api, 1, 1, messages.Metadata.Response())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"message=.* Metadata.Response expected"):
        encode_response(ApiKey.METADATA, 1, 1, message)
    with pytest.raises(TypeError, match="frame"):
        decode_request("text")  # type: ignore[arg-type]
    for version in ("1", None, 1.5):
        with pytest.raises(TypeError, match="version"):
            decode_response(ApiKey.METADATA, version, b"")  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="version"):
            encode_request(ApiKey.METADATA, version, 1, "me", message)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="correlation_id"):
        encode_request(ApiKey.METADATA, 1, "1", "me", message)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="client_id"):
        encode_request(ApiKey.METADATA, 1, 1, b"me", message)  # type: ignore[arg-type]
