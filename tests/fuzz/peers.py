"""Fuzz targets over what clients send: frames, the messages inside them, logins, TLS; and the records of coordinators.

Bytes become values or raise klog's own errors for them; values that are encoded again are decoded to the same values.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import hashlib
import hmac
import re
import ssl
import struct
import tempfile
from pathlib import Path
from typing import Any

from klog.coordinator.groups import offset_records
from klog.coordinator.groups.subscription import subscribed_topics
from klog.errors import CorruptData, CorruptFrame, UnsupportedVersion
from klog.internal_topics import Decoded, consumer_offsets, decode, encode_key, encode_value
from klog.internal_topics.decoding import TOPICS
from klog.network.tls import TlsSession, distinguished_name, tls_context
from klog.protocol import (
    ApiKey,
    decode_data,
    decode_request,
    decode_response,
    encode_data,
    encode_request,
    encode_response,
    messages,
)
from klog.record import Record
from klog.security.exchange import Refused
from klog.security.scram import MECHANISMS, ScramExchange, credential_of, salted_password
from tests.support.tls import made

_APIS = list(ApiKey)
_TOPICS = sorted(TOPICS)
_SUBJECT = "CN=fuzz"


# ---- frames ----------------------------------------------------------------------------------------------------------


def frame_target(data: bytes) -> None:
    """kind:u8 bytes: a request or response frame without its size, or a blob of a consumer group."""
    if not data:
        return
    with contextlib.suppress(CorruptFrame, UnsupportedVersion):
        match data[0] & 3:
            case 0 | 1:
                _request(data[1:])
            case 2:
                _response(data[1:])
            case _:
                _blob(data[1:], bool(data[0] & 4))


def _request(frame: bytes) -> None:
    request = decode_request(frame)
    again = _joined(encode_request(*request))
    assert len(again) <= 2 * len(frame) + 64  # absent tagged fields take no bytes
    same = decode_request(again + b"ignored, as in Kafka")
    assert same[:4] == request[:4]
    assert _joined(encode_request(*same)) == again


def _response(data: bytes) -> None:
    if len(data) < 2:
        return
    api = _APIS[data[0] % len(_APIS)]
    version = api.low + data[1] % (api.high - api.low + 1)
    number, message = decode_response(api, version, data[2:])
    again = _joined(encode_response(api, version, number, message))
    same_number, same = decode_response(api, version, again)
    assert same_number == number
    assert _joined(encode_response(api, version, number, same)) == again


def _joined(parts: list[Any]) -> bytes:
    whole = b"".join(map(bytes, parts))
    assert struct.unpack_from(">i", whole)[0] == len(whole) - 4
    return whole[4:]


def _blob(data: bytes, assignment: bool) -> None:
    """A coordinator finds the topics of each subscription that a consumer can read."""
    kind = messages.ConsumerProtocolAssignment if assignment else messages.ConsumerProtocolSubscription
    version, message = decode_data(kind, data)
    known = min(version, 3)
    again = encode_data(message, known)
    assert encode_data(decode_data(kind, again)[1], known) == again
    if not assignment:
        assert subscribed_topics(data) == subscribed_topics(again) == message.topics


# ---- records of internal topics --------------------------------------------------------------------------------------


def internal_target(data: bytes) -> None:
    """topic:u8 key_size:u8 key value: a record of an internal topic, and a committed offset as the coordinator reads
    it."""
    if len(data) < 2:
        return
    topic, end = _TOPICS[data[0] % len(_TOPICS)], 2 + data[1]
    key, value = data[2:end], data[end:] or None
    _decoded(topic, key, value)
    with contextlib.suppress(CorruptData):
        group, name, partition = offset_records.read_key(key)
        fields = consumer_offsets.TYPES[1].read_key(key)
        assert (fields["group"], fields["topic"], fields["partition"]) == (group, name, partition)
        assert key.startswith(offset_records.offset_key(group, name, partition)[2:], 2)
    if value is not None:
        with contextlib.suppress(CorruptData):
            found = offset_records.read_value(value, 7)
            assert found == offset_records._read_any(value, 7)
            assert offset_records.read_value(offset_records.offset_value(found), 7) == _storable(found)


def _storable(found: offset_records.Committed) -> offset_records.Committed:
    """A record with an expiry has version 1, which lacks what later versions have; one without has version 4."""
    if found.expire_timestamp >= 0:
        return found._replace(leader_epoch=-1, topic_id=offset_records.NO_ID)
    return found._replace(expire_timestamp=-1)


def _decoded(topic: str, key: bytes, value: bytes | None) -> None:
    # The subscription of a member that is newer than klog is shown as far as it is known, and cannot be written.
    with contextlib.suppress(CorruptData, UnsupportedVersion):
        found = decode(Record(key, value), topic)
        again = _encoded(found)
        same = decode(Record(*again), topic)
        assert (same.type, same.version, same.key) == (found.type, found.version, found.key)
        assert _encoded(same) == again


def _encoded(found: Decoded) -> tuple[bytes | None, bytes | None]:
    """Key and value. A tagged field that has its default is not written."""
    key = None if found.key is None else encode_key(found.type, **found.key)
    return key, None if found.value is None else encode_value(found.type, found.version, **found.value)


# ---- logins ----------------------------------------------------------------------------------------------------------


@functools.cache
def _credential(name: str) -> tuple[bytes, Any]:
    salted = salted_password(MECHANISMS[name], "secret", b"salt", 4096)
    return salted, credential_of(MECHANISMS[name], salted, b"salt", 4096)


def scram_target(data: bytes) -> None:
    """rules:u8 at:u8 first_size:u8 first final: a client's two messages. With bit 0 of the rules the final message is
    the right one, but for a byte at `at` that is changed by the size of what follows, if bit 1 is set. Only the right
    proof completes an exchange."""
    if len(data) < 3:
        return
    mechanism = MECHANISMS["SCRAM-SHA-512" if data[0] & 4 else "SCRAM-SHA-256"]
    first, rest = data[3 : 3 + data[2]], data[3 + data[2] :]
    salted, credential = _credential(mechanism.name)
    asked: list[str] = []
    exchange = ScramExchange(mechanism, lambda user: asked.append(user) or credential, nonce="server")
    try:
        response = exchange.respond(first)
    except Refused:
        assert not exchange.complete
        return
    assert asked == [exchange.user]
    right = _final(first, response, salted, mechanism.hash)
    final = right if data[0] & 1 else rest
    if data[0] & 2 and data[0] & 1:
        at = data[1] % len(final)
        final = final[:at] + bytes((final[at] ^ len(rest) % 256,)) + final[at + 1 :]
    try:
        proof = exchange.respond(final)
    except Refused:
        assert final != right and not exchange.complete
    else:
        assert exchange.complete and final == right, final
        assert proof.startswith(b"v=")
        with contextlib.suppress(Refused):
            exchange.respond(final)
            raise AssertionError("a complete exchange takes another message")


def _final(first: bytes, response: bytes, salted: bytes, hashing: str) -> bytes:
    """A client's final message: RFC 5802."""
    header, bare = b",".join(first.split(b",", 2)[:2]) + b",", first.split(b",", 2)[2]
    nonce = response.split(b",")[0]
    without_proof = b"c=" + base64.b64encode(header) + b"," + nonce
    client_key = hmac.digest(salted, b"Client Key", hashing)
    signed = b",".join((bare, response, without_proof))
    signature = hmac.digest(hashlib.new(hashing, client_key).digest(), signed, hashing)
    proof = bytes(one ^ other for one, other in zip(client_key, signature, strict=True))
    return without_proof + b",p=" + base64.b64encode(proof)


# ---- TLS -------------------------------------------------------------------------------------------------------------


@functools.cache
def _contexts() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """The server's and the client's. The client has a certificate."""
    with tempfile.TemporaryDirectory(prefix="klog-fuzz-") as folder:
        keys = made(Path(folder) / "keys", f"/{_SUBJECT}")
        server = tls_context(keys.certificate, keys.key, client_auth="requested", trusted=keys.certificate)
        keys.trusting.load_cert_chain(keys.certificate, keys.key)
    return server, keys.trusting


def tls_target(data: bytes) -> None:
    """rules:u8 ...: bytes at a listener with TLS. They are a certificate's (rules 2), garbage (1), or a client's
    handshake and data with changes: (position:u16 change:u8)*. The only error is an OSError, and what is decrypted is
    what the client has sent."""
    if not data:
        return
    if data[0] % 3 == 2:
        _certificate(data[1:])
        return
    server, client = _contexts()
    session = TlsSession(server)
    if data[0] % 3 == 1:
        with contextlib.suppress(ssl.SSLError):
            for at in range(1, len(data), 1 + data[0]):
                assert session.receive(data[at : at + 1 + data[0]]) == b""
        assert not session.established and session.principal is None
        return
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    peer = client.wrap_bio(back, there, server_hostname="localhost")
    changes = dict(struct.iter_unpack(">HB", data[1 : 1 + (len(data) - 1) // 3 * 3]))
    sent = received = b""
    position, wrote = 0, False
    with contextlib.suppress(ssl.SSLError):
        for _ in range(6):
            with contextlib.suppress(ssl.SSLWantReadError):
                peer.do_handshake()
                if not wrote:
                    sent, wrote = b"a request", True
                    peer.write(sent)
            plain = there.read()
            flight = bytes(byte ^ changes.get(position + at, 0) for at, byte in enumerate(plain))
            position += len(flight)
            received += session.receive(flight)
            assert sent.startswith(received)
            back.write(session.output())
    if received:
        assert session.established and session.principal == f"User:{_SUBJECT}"
    if not any(changes.values()):
        assert received == sent != b""


def _certificate(der: bytes) -> None:
    """A certificate that OpenSSL reads is refused, or its subject is written with all of its attributes."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(cadata=der)
        read = context.get_ca_certs()
    except (ssl.SSLError, ValueError):
        return
    for stored, one in zip(context.get_ca_certs(binary_form=True), read, strict=True):
        try:
            name = distinguished_name(stored)
        except ValueError as error:
            if "not DER" not in str(error):
                raise
            continue
        written = [each for each in re.split("[,+]", re.sub(r"(?s)\\.", "x", name)) if each]
        assert len(written) == sum(map(len, one["subject"])), (name, one)
