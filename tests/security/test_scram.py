"""SCRAM with the vectors of its RFCs, the clients of other libraries, and hostile messages."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klog.security import scram
from klog.security.exchange import Refused
from klog.security.saslprep import is_prepared
from klog.security.scram import MECHANISMS, Mechanism, ScramCredential, ScramExchange
from tests.security.asking import CLIENTS
from tests.support.examples import examples

SHA_256 = MECHANISMS["SCRAM-SHA-256"]


def stored(
    mechanism: Mechanism, password: str, salt: bytes = b"0123456789abcdef", iterations: int = 4096
) -> ScramCredential:
    return scram.credential_of(
        mechanism, scram.salted_password(mechanism, password, salt, iterations), salt, iterations
    )


PENCIL = stored(SHA_256, "pencil")
VECTORS = {  # RFC 5802, section 5; RFC 7677, section 3
    "SCRAM-SHA-1": (
        Mechanism("SCRAM-SHA-1", 0, "sha1", 20),
        "QSXCR+Q6sek8bf92",
        "3rfcNHYJY1ZVvWVs7j",
        [
            "n,,n=user,r=fyko+d2lbbFgONRv9qkxdawL",
            "r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,i=4096",
            "c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=",
            "v=rmF9pqV8S7suAoZWja4dJRkFsKQ=",
        ],
    ),
    "SCRAM-SHA-256": (
        SHA_256,
        "W22ZaJ0SNY7soEsUEjb6gQ==",
        "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0",
        [
            "n,,n=user,r=rOprNGfwEbeRWgbNEkqO",
            "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
            "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
            "p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
            "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
        ],
    ),
}


@pytest.mark.parametrize("name", VECTORS)
def test_the_messages_are_those_of_the_rfc(name: str) -> None:
    mechanism, salt, nonce, (first, server_first, final, server_final) = VECTORS[name]
    credential = stored(mechanism, "pencil", base64.b64decode(salt))
    exchange = ScramExchange(mechanism, lambda _user: credential, nonce)
    assert exchange.respond(first.encode()).decode() == server_first
    assert not exchange.complete
    assert exchange.respond(final.encode()).decode() == server_final
    assert exchange.complete and exchange.user == "user"


LETTERS = [chr(number) for number in range(32, 127)] + list("\u00e9\u00fc\u0416\u4e2d\u6587")
NAMES = st.text(LETTERS, min_size=1, max_size=20).filter(is_prepared)


@pytest.mark.parametrize("mechanism", MECHANISMS.values(), ids=MECHANISMS)
@pytest.mark.parametrize("client", CLIENTS)
@given(user=NAMES, password=NAMES, other=NAMES)
@settings(max_examples=examples(deep=100))
def test_other_libraries_are_authenticated_only_with_the_right_password(
    mechanism: Mechanism, client: str, user: str, password: str, other: str
) -> None:
    asked = []

    def credential_for(name: str) -> ScramCredential:
        asked.append(name)
        return stored(mechanism, password)

    peer, exchange = CLIENTS[client](user, password, mechanism.name), ScramExchange(mechanism, credential_for)
    peer.verify(exchange.respond(peer.final(exchange.respond(peer.first()))))
    assert exchange.complete and exchange.user == user and asked == [user]

    peer, exchange = CLIENTS[client](user, other, mechanism.name), ScramExchange(mechanism, credential_for)
    final = peer.final(exchange.respond(peer.first()))
    if other == password:
        exchange.respond(final)
    else:
        with pytest.raises(Refused, match="invalid credentials"):
            exchange.respond(final)
    assert exchange.complete == (other == password)


def begun(first: str = "n,,n=user,r=abc") -> tuple[ScramExchange, str]:
    """Return an exchange after the client's first message, and the server's first message."""
    exchange = ScramExchange(SHA_256, lambda _user: PENCIL)
    return exchange, exchange.respond(first.encode()).decode()


def final_of(first: str, server_first: str, *, header: str = "n,,", nonce: str | None = None, extra: str = "") -> str:
    """Return the final message of a client that knows the password. The options replace its correct fields."""
    server_nonce = server_first.split(",")[0][2:]
    without = f"c={base64.b64encode(header.encode()).decode()},r={server_nonce if nonce is None else nonce}{extra}"
    salted = scram.salted_password(SHA_256, "pencil", PENCIL.salt, PENCIL.iterations)
    key = hmac.digest(salted, b"Client Key", "sha256")
    bare = first.split(",", 2)[2]
    signature = hmac.digest(hashlib.sha256(key).digest(), f"{bare},{server_first},{without}".encode(), "sha256")
    proof = bytes(one ^ other for one, other in zip(key, signature, strict=True))
    return f"{without},p={base64.b64encode(proof).decode()}"


@pytest.mark.parametrize("header", ["n,,", "y,,", "n,a=user,"])
@pytest.mark.parametrize("extra", ["", ",x=1", ",abc=d=e"])
def test_headers_and_extensions_that_are_allowed(header: str, extra: str) -> None:
    first = f"{header}n=user,r=abc{extra}"
    exchange, server_first = begun(first)
    exchange.respond(final_of(first, server_first, header=header, extra=extra).encode())
    assert exchange.complete


def test_the_final_nonce_must_be_the_servers_whole_nonce() -> None:
    first = "n,,n=user,r=abc"
    for wrong in ("", "abc", "evil", "prefix{nonce}", "{nonce}x", "{nonce:.10}"):
        exchange, server_first = begun(first)
        nonce = wrong.format(nonce=server_first.split(",")[0][2:])
        with pytest.raises(Refused):
            exchange.respond(final_of(first, server_first, nonce=nonce).encode())
        assert not exchange.complete, wrong


@pytest.mark.parametrize("header", ["y,,", "n,a=user,", "p=tls-unique,,", ""])
def test_the_channel_binding_must_be_the_header_of_the_first_message(header: str) -> None:
    first = "n,,n=user,r=abc"
    exchange, server_first = begun(first)
    with pytest.raises(Refused, match="invalid credentials"):
        exchange.respond(final_of(first, server_first, header=header).encode())


@pytest.mark.parametrize(
    "first",
    [
        "",
        "n",
        "n,",
        "n,,",
        "n,,n=user",
        "n,,n=user,",
        "n,,n=user,r=",
        "n,,r=abc,n=user",
        "n,,n=,r=abc",
        "n,,m=x,n=user,r=abc",
        "n,,n=user,r=a b",
        "n,,n=user,r=ab\x7f",
        "n,,n=user,r=\u00e9",
        "n,,n=us=er,r=abc",
        "n,,n=us=2cer,r=abc",
        "n,,n=user=,r=abc",
        "n,,n=us\0er,r=abc",
        "n,,n=us\x07er,r=abc",
        "n,,n=\u00aa,r=abc",
        "n,,n=user,r=abc,x",
        "n,,n=user,r=abc,=1",
        "n,,n=user,r=abc,1=1",
        "n,,n=user,r=abc,x=",
        "n,,n=user,r=abc,tokenauth=true",
        "n,user,n=user,r=abc",
        "n,a=,n=user,r=abc",
        "n,a=admin,n=user,r=abc",
        "p=tls-unique,,n=user,r=abc",
        "z,,n=user,r=abc",
        "n,,n=user,r=" + "a" * 513,
        "n,,n=" + "u" * 1025 + ",r=abc",
        "n,,n=user,r=abc,x=" + "1" * 4096,
    ],
)
def test_an_invalid_first_message_is_refused(first: str) -> None:
    exchange = ScramExchange(SHA_256, lambda _user: pytest.fail("no credential is needed"))
    with pytest.raises(Refused):
        exchange.respond(first.encode())
    assert not exchange.complete


@pytest.mark.parametrize(
    "change",
    [
        lambda text: "",
        lambda text: text.partition(",p=")[0],
        lambda text: text[:-4],
        lambda text: text + "=",
        lambda text: text + "\n",
        lambda text: text.replace(",p=", ",p= "),
        lambda text: text.replace("c=biws", "c=biw"),
        lambda text: text.replace(",p=", ",x=1,p="),
        lambda text: text.replace(",p=", ",x,p="),
        lambda text: text.partition(",p=")[0] + ",p=",
        lambda text: text.partition(",p=")[0] + ",p=" + base64.b64encode(b"x" * 31).decode(),
        lambda text: text.partition(",p=")[0] + ",p=" + base64.b64encode(b"\0" * 32).decode(),
        lambda text: text.partition(",p=")[0] + ",p=\u00e9",
    ],
)
def test_a_changed_final_message_is_refused(change: object) -> None:
    first = "n,,n=user,r=abc"
    exchange, server_first = begun(first)
    assert callable(change)
    with pytest.raises(Refused):
        exchange.respond(change(final_of(first, server_first)).encode())
    assert not exchange.complete


@given(st.lists(st.binary(max_size=200) | st.text("nycra=,p2CD3\0é", max_size=60).map(str.encode), max_size=3))
def test_random_bytes_never_authenticate(sent: list[bytes]) -> None:
    exchange = ScramExchange(SHA_256, lambda _user: PENCIL)
    for message in sent:
        try:
            exchange.respond(message)
        except Refused:
            break
    assert not exchange.complete


def test_the_proof_has_one_base64_form() -> None:
    """The last character before the `=` has two bits that no byte uses."""
    first = "n,,n=user,r=abc"
    exchange, server_first = begun(first)
    final = final_of(first, server_first)
    other = final[:-2] + chr(ord(final[-2]) + 1) + "="
    assert base64.b64decode(other[-44:]) == base64.b64decode(final[-44:])
    with pytest.raises(Refused, match="base64"):
        exchange.respond(other.encode())


@given(st.data())
def test_a_flipped_byte_of_the_final_message_is_refused(data: st.DataObject) -> None:
    first = "n,,n=user,r=abc"
    exchange, server_first = begun(first)
    final = bytearray(final_of(first, server_first).encode())
    final[data.draw(st.integers(0, len(final) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(Refused):
        exchange.respond(bytes(final))
    assert not exchange.complete


def test_an_exchange_ends_with_its_final_message() -> None:
    first = "n,,n=user,r=abc"
    exchange, server_first = begun(first)
    exchange.respond(final_of(first, server_first).encode())
    with pytest.raises(Refused, match="complete"):
        exchange.respond(b"n,,n=other,r=abc")
    assert exchange.user == "user"


def test_nonces_are_not_repeated() -> None:
    assert begun()[1] != begun()[1]
    assert len(begun()[1].split(",")[0]) == len("r=abc") + 32


def test_a_credential_does_not_show_its_keys() -> None:
    shown = repr(PENCIL)
    assert shown == "ScramCredential(iterations=4096)"
