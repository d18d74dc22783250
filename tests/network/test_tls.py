"""TLS: wire protocol section 11, fault model rows 40 and 41."""

from __future__ import annotations

import os
import shutil
import socket
import ssl
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from klog.clock import ManualClock
from klog.disk import RealFiles
from klog.network import FileSlice, Listener, Request, Server
from klog.network.tls import distinguished_name, tls_context
from tests.fuzz.der import certificate, element, oid
from tests.support.network import Client, Inline, echo, ended, frame, serving
from tests.support.patience import PATIENCE, until
from tests.support.tls import Keys, made


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    return made(tmp_path_factory.mktemp("tls") / "server", "/O=klog/CN=localhost")


@pytest.fixture(params=["inline", "threads"])
def server(request: pytest.FixtureRequest, keys: Keys) -> Iterator[Server]:
    with serving(Inline() if request.param == "inline" else echo, listener(keys)) as server:
        yield server


def listener(keys: Keys) -> Listener:
    return Listener(name="SSL", context=tls_context(keys.certificate, keys.key))


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=lambda each: each.name)
def test_requests_of_all_sizes(server: Server, keys: Keys, version: ssl.TLSVersion) -> None:
    """Several requests inside one TLS record, and one in many. NW10."""
    keys.trusting.maximum_version = version
    with Client(server.port, context=keys.trusting) as client:
        keys.trusting.maximum_version = ssl.TLSVersion.MAXIMUM_SUPPORTED
        client.send(b"a", b"", b"c" * 100)
        assert [client.receive() for _ in range(3)] == [b"a", b"", b"c" * 100]
        large = os.urandom(1_000_000)
        assert client.ask(large) == large
        client.sock.settimeout(PATIENCE)
        client.sock.unwrap()  # type: ignore[attr-defined]
    until(lambda: ended(server))


def test_slices_are_encrypted(keys: Keys, tmp_path: Path) -> None:
    data = os.urandom(300_000)
    (tmp_path / "file").write_bytes(data)
    file = RealFiles().open(str(tmp_path / "file"))

    def slices(request: Request) -> None:
        request.respond([struct.pack(">i", len(data)), FileSlice(file, 0, 200_000), FileSlice(file, 200_000, 100_000)])

    with serving(slices, listener(keys)) as server, Client(server.port, context=keys.trusting) as client:
        client.send(b"1", b"2")
        assert client.receive() == client.receive() == data
        assert server.metrics()["BytesBySendfile"] == 0


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=lambda each: each.name)
def test_sessions_are_resumed(server: Server, keys: Keys, version: ssl.TLSVersion) -> None:
    keys.trusting.maximum_version = version
    with Client(server.port, context=keys.trusting) as client:
        assert client.ask(b"1") == b"1"
        assert isinstance(client.sock, ssl.SSLSocket)
        assert not client.sock.session_reused
        session = client.sock.session
    with Client(server.port, context=keys.trusting, session=session) as client:
        keys.trusting.maximum_version = ssl.TLSVersion.MAXIMUM_SUPPORTED
        assert client.ask(b"2") == b"2"
        assert isinstance(client.sock, ssl.SSLSocket)
        assert client.sock.session_reused


def test_the_subject_of_a_client_certificate_is_its_principal(keys: Keys, tmp_path: Path) -> None:
    clients = made(tmp_path / "client", "/C=DE/O=klog, Inc./CN=reader")
    context = tls_context(keys.certificate, keys.key, client_auth="required", trusted=clients.certificate)
    seen: list[str] = []

    def note(request: Request) -> None:
        seen.append(request.connection.principal)
        echo(request)

    with serving(note, Listener(name="SSL", context=context)) as server:
        with pytest.raises((ssl.SSLError, ConnectionError, EOFError)):
            Client(server.port, context=keys.trusting).ask(b"without a certificate")
        known = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        known.load_verify_locations(keys.certificate)
        known.load_cert_chain(clients.certificate, clients.key)
        with Client(server.port, context=known) as client:
            assert client.ask(b"1") == b"1"
        until(lambda: server.metrics()["FailedHandshakes"] == 1)
    assert seen == ["User:CN=reader,O=klog\\, Inc.,C=DE"]


@pytest.mark.parametrize(
    ("subject", "name"),
    [
        ("/C=DE/O=klog, Inc./UID= 7+CN=broker", "CN=broker+UID=\\ 7,O=klog\\, Inc.,C=DE"),
        (
            "/CN=a=b#c/emailAddress=me@example.org/serialNumber=77",
            "2.5.4.5=#13023737,1.2.840.113549.1.9.1=#160e6d65406578616d706c652e6f7267,CN=a\\=b\\#c",
        ),
        ("/CN= lead and trail  /O=#x", "O=\\#x,CN=\\ lead and trail\\ \\ "),
        ("/DC=org/DC=ex/UID=u/CN=ünï/street=S 1", "STREET=S 1,CN=ünï,UID=u,DC=ex,DC=org"),
    ],
)
def test_a_subject_is_written_as_java_writes_it(tmp_path: Path, subject: str, name: str) -> None:
    """The names are those of X500Principal.getName()."""
    keys = made(tmp_path / "keys", subject)
    assert distinguished_name(ssl.PEM_cert_to_DER_cert(keys.certificate.read_text())) == name


_ORGANIZATION = element(0x31, element(0x30, oid("2.5.4.10"), element(0x0C, b"klog")))


@pytest.mark.parametrize(
    "subject",
    [
        b"\x30\x80" + _ORGANIZATION + b"\0\0",
        b"\x30\x81" + bytes((len(_ORGANIZATION),)) + _ORGANIZATION,
        b"\x30\x82\0" + bytes((len(_ORGANIZATION),)) + _ORGANIZATION,
        element(0x30, b"\x31\x80" + _ORGANIZATION[2:] + b"\0\0"),
    ],
    ids=["without a length", "a length of one byte more", "a length that begins with 0", "a set without a length"],
)
def test_a_subject_whose_lengths_are_not_ders_is_refused(subject: bytes) -> None:
    """OpenSSL reads it. It was written as another name, such as an empty one, or raised IndexError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=certificate(subject))
    (found,) = context.get_ca_certs()
    assert found["subject"] == ((("organizationName", "klog"),),)
    (stored,) = context.get_ca_certs(binary_form=True)
    with pytest.raises(ValueError, match="not DER"):
        distinguished_name(stored)


def without_certificate() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2  # the default is that of the machine's OpenSSL
    return context


def test_new_connections_use_a_reloaded_certificate_and_old_ones_go_on(keys: Keys, tmp_path: Path) -> None:
    newer = made(tmp_path / "newer", "/CN=localhost")
    with serving(echo, listener(keys), Listener(name="PLAINTEXT")) as server:
        with Client(server.port, context=keys.trusting) as old:
            assert old.ask(b"1") == b"1"
            server.reload_tls("SSL", tls_context(newer.certificate, newer.key))
            assert old.ask(b"2") == b"2"
            with Client(server.port, context=newer.trusting) as new:
                assert new.ask(b"3") == b"3"
            with pytest.raises(ssl.SSLCertVerificationError):
                Client(server.port, context=keys.trusting)
        with pytest.raises(ValueError, match="no handshake is possible"):
            server.reload_tls("SSL", without_certificate())
        with pytest.raises(LookupError, match="PLAINTEXT"):
            server.reload_tls("PLAINTEXT", tls_context(newer.certificate, newer.key))
        with Client(server.port, context=newer.trusting) as new:
            assert new.ask(b"4") == b"4"


def hello(version: ssl.TLSVersion) -> bytes:
    """The first bytes that a client sends."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.maximum_version = version
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing, server_hostname="localhost").do_handshake()
    return outgoing.read()


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=lambda each: each.name)
def test_tls_on_a_plaintext_port_is_closed(version: ssl.TLSVersion, caplog: pytest.LogCaptureFixture) -> None:
    with serving() as server:
        for _ in range(20):
            with Client(server.port) as client:
                client.sock.sendall(hello(version))
                assert client.is_closed()
        assert server.metrics()["FramesRefused"] == 20
    assert caplog.text.count("TLS on a plaintext port") < 20, "at most one line a second"


@pytest.mark.parametrize(
    "sent",
    [frame(b"plaintext") * 10, b"GET / HTTP/1.0\r\n\r\n", b"\x16\x03\x01\x00\x05hello", b"\0" * 1000],
    ids=lambda each: each[:5],
)
def test_garbage_on_a_tls_port_is_closed_after_a_delay(sent: bytes, keys: Keys) -> None:
    with serving(echo, listener(keys), failed_authentication_delay_ms=1) as server:
        with Client(server.port) as client:
            client.sock.sendall(sent)
            assert client.is_closed()
        until(lambda: server.metrics()["FailedHandshakes"] == 1)
        with Client(server.port, context=keys.trusting) as good:
            assert good.ask(b"good") == b"good"


@pytest.mark.parametrize("cut", [0, 1, 100])
def test_half_a_handshake_is_closed_at_its_deadline(cut: int, keys: Keys) -> None:
    clock = ManualClock()
    with (
        serving(echo, listener(keys), clock=clock) as server,
        Client(server.port) as half,
        Client(server.port, context=keys.trusting) as good,
    ):
        half.sock.sendall(hello(ssl.TLSVersion.TLSv1_3)[:cut])
        clock.advance(5_000)
        assert good.ask(b"1") == b"1"
        assert half.is_silent()
        clock.advance(7_000)
        assert half.is_closed()
        assert good.ask(b"2") == b"2"


def test_an_end_without_close_notify_and_garbage_after_the_handshake_end_the_connection(keys: Keys) -> None:
    with serving(echo, listener(keys)) as server:
        for last in (b"", b"garbage that is no record"):
            with Client(server.port, context=keys.trusting) as client:
                assert client.ask(b"1") == b"1"
                raw = socket.socket(fileno=os.dup(client.sock.fileno()))
                raw.settimeout(PATIENCE)
                raw.sendall(last)
                raw.shutdown(socket.SHUT_WR)
                with raw:
                    while raw.recv(1000):
                        pass
        until(lambda: ended(server))


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda keys: tls_context(keys.certificate, keys.key, client_auth="maybe"), "client_auth='maybe'"),
        (lambda keys: tls_context(keys.certificate, keys.key, client_auth="required"), "trusted=None"),
        (lambda keys: Listener(context=without_certificate()), "no handshake is possible"),
    ],
    ids=["client_auth", "trusted", "no certificate"],
)
def test_a_context_that_is_not_safe_is_refused(make: Callable[[Keys], object], text: str, keys: Keys) -> None:
    with pytest.raises(ValueError, match=text):
        make(keys)


def test_a_key_that_others_may_read_and_old_versions_are_refused(keys: Keys, tmp_path: Path) -> None:
    shutil.copy(keys.key, tmp_path / "key.pem")
    (tmp_path / "key.pem").chmod(0o640)
    with pytest.raises(ValueError, match="chmod 600"):
        tls_context(keys.certificate, tmp_path / "key.pem")
    old = tls_context(keys.certificate, keys.key)
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        old.minimum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises(ValueError, match="TLSv1_2 or TLSv1_3"):
        Listener(context=old)
    with pytest.raises(TypeError, match=r"ssl\.SSLContext expected"):
        Listener(context="certificate.pem")  # type: ignore[arg-type]
