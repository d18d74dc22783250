"""The SASL state of a connection: which requests it allows, how it ends, and what a client can learn from it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.clock import ManualClock
from klog.protocol import ApiKey, ErrorCode, messages
from klog.security import Outcome, Sasl, SaslSession, SecurityConfig, Users, allowed_before_authentication
from klog.security.scram import MECHANISMS
from tests.security.asking import AioKafka, KafkaPython

JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_bob="builder" user_alice="wonder";'
PROPERTIES = {
    "listener.security.protocol.map": "OPEN:SASL_PLAINTEXT,SAFE:SASL_SSL,FREE:PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "listener.name.safe.plain.sasl.jaas.config": JAAS,
    "klog.sasl.failures.max": "0",
}


class Harness:
    """Users stored in a directory, and sessions of their clients."""

    def __init__(self, path: Path, **properties: str) -> None:
        self.clock = ManualClock()
        self.users = Users(str(path))
        self.users.set_password("alice", "SCRAM-SHA-256", "wonder")
        self.users.set_password("bob", "SCRAM-SHA-256", "builder")
        config = SecurityConfig.of(
            {**PROPERTIES, **{name.replace("_", "."): value for name, value in properties.items()}}
        )
        self.sasl = Sasl(config, self.users, self.clock)

    def session(self, listener: str = "SAFE", address: str = "10.0.0.1") -> SaslSession:
        return self.sasl.session(listener, address)


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    return Harness(tmp_path)


def handshake(session: SaslSession, mechanism: str, version: int = 1) -> Outcome:
    return session.handshake(version, messages.SaslHandshake.Request(mechanism=mechanism))


def step(session: SaslSession, data: bytes) -> Any:
    return session.authenticate(messages.SaslAuthenticate.Request(auth_bytes=data))


def by_scram(session: SaslSession, user: str, password: str, mechanism: str = "SCRAM-SHA-256") -> Any:
    """Authenticate a client by SCRAM. Return the last outcome."""
    client = KafkaPython(user, password, mechanism)
    outcome: Any = handshake(session, mechanism)
    if outcome.response.error_code:
        return outcome
    outcome = step(session, client.first())
    if outcome.response.error_code:
        return outcome
    outcome = step(session, client.final(outcome.response.auth_bytes))
    if not outcome.refuse:
        client.verify(outcome.response.auth_bytes)
    return outcome


def test_a_client_is_authenticated_by_scram(harness: Harness) -> None:
    session = harness.session()
    outcome = by_scram(session, "alice", "wonder")
    assert (outcome.principal, outcome.session_lifetime_ms, outcome.refuse) == ("User:alice", 0, False)
    assert outcome.response.error_code == 0 and outcome.response.session_lifetime_ms == 0
    assert session.phase == "authenticated" and session.principal == "User:alice"
    harness.clock.advance(10**9)
    assert not session.expired and session.allows(ApiKey.PRODUCE)


def test_a_client_is_authenticated_by_plain(harness: Harness) -> None:
    session = harness.session()
    assert handshake(session, "PLAIN").response.error_code == 0  # type: ignore[attr-defined]
    outcome = step(session, b"\0bob\0builder")
    assert outcome.principal == "User:bob" and outcome.response.auth_bytes == b""


def test_the_handshake_lists_the_mechanisms_of_the_listener(harness: Harness) -> None:
    outcome = handshake(harness.session(), "GSSAPI")
    assert outcome.refuse and outcome.response == messages.SaslHandshake.Response(
        error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
    )
    outcome = handshake(harness.session("OPEN"), "PLAIN")
    assert outcome.refuse and outcome.response == messages.SaslHandshake.Response(
        error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=["SCRAM-SHA-256", "SCRAM-SHA-512"]
    )


def test_handshake_version_0_is_refused(harness: Harness) -> None:
    session = harness.session()
    outcome = handshake(session, "SCRAM-SHA-256", version=0)
    assert outcome.refuse and session.phase == "refused"
    assert outcome.response.error_code == ErrorCode.UNSUPPORTED_VERSION  # type: ignore[attr-defined]


def test_what_is_allowed_before_authentication(harness: Harness) -> None:
    session = harness.session()
    allowed = {phase: {api for api in ApiKey if allowed_before_authentication(api, phase)} for phase in PHASES}
    assert allowed["handshake"] == {ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE}
    assert allowed["exchange"] == {ApiKey.SASL_AUTHENTICATE}
    assert allowed["refused"] == set()
    assert allowed["authenticated"] == set(ApiKey)
    assert session.allows(ApiKey.API_VERSIONS) and not session.allows(ApiKey.METADATA)
    handshake(session, "SCRAM-SHA-256")
    assert session.allows(ApiKey.SASL_AUTHENTICATE) and not session.allows(ApiKey.API_VERSIONS)


PHASES: tuple[Any, ...] = ("handshake", "exchange", "authenticated", "refused")


def test_messages_out_of_order_are_illegal(harness: Harness) -> None:
    session = harness.session()
    outcome = step(session, b"\0bob\0builder")
    assert outcome.refuse and outcome.response.error_code == ErrorCode.ILLEGAL_SASL_STATE
    session = harness.session()
    handshake(session, "PLAIN")
    outcome = handshake(session, "PLAIN")
    assert outcome.refuse and outcome.response.error_code == ErrorCode.ILLEGAL_SASL_STATE  # type: ignore[attr-defined]
    assert step(session, b"\0bob\0builder").response.error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert session.principal is None


def test_an_authenticated_client_stays_authenticated_after_a_message_without_handshake(harness: Harness) -> None:
    session = harness.session()
    by_scram(session, "alice", "wonder")
    outcome = step(session, b"\0bob\0builder")
    assert not outcome.refuse and outcome.response.error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert session.principal == "User:alice" and session.phase == "authenticated"


def shape(message: bytes) -> str:
    """Return a message without the values that differ between exchanges."""
    return re.sub(r"[A-Za-z0-9+/]{16,}=*", lambda found: f"<{len(found[0])}>", message.decode())


def test_an_unknown_user_looks_like_a_wrong_password(harness: Harness) -> None:
    seen = []
    for user in ("alice", "nobody", "nobody else"):
        session = harness.session()
        client = AioKafka(user, "wrong", "SCRAM-SHA-256")
        handshake(session, "SCRAM-SHA-256")
        first = step(session, client.first())
        last = step(session, client.final(first.response.auth_bytes))
        assert last.refuse
        seen.append((shape(first.response.auth_bytes), last.response.error_code, last.response.error_message))
    assert seen[0] == seen[1] == seen[2]
    assert seen[0][1] == ErrorCode.SASL_AUTHENTICATION_FAILED


def test_the_salt_of_an_unknown_user_is_always_the_same(harness: Harness, tmp_path: Path) -> None:
    def salts(users: Users) -> list[bytes]:
        return [users.credential(each, user).salt for each in MECHANISMS.values() for user in ("nobody", "x", "alice")]

    before = salts(harness.users)
    assert len(set(before)) == len(before)
    assert salts(harness.users) == before == salts(Users(str(tmp_path)))


def test_an_unknown_user_has_the_usual_iterations_and_size_of_salt(tmp_path: Path) -> None:
    users = Users(str(tmp_path))
    mechanism = MECHANISMS["SCRAM-SHA-256"]
    assert users.credential(mechanism, "nobody").iterations == 4096
    for user in ("a", "b"):
        users.set_password(user, "SCRAM-SHA-256", "secret", iterations=8192)
    users.set_password("c", "SCRAM-SHA-256", "secret")
    made_up = users.credential(mechanism, "nobody")
    assert made_up.iterations == 8192 and len(made_up.salt) == len(users.credential(mechanism, "a").salt)


def test_a_session_ends_unless_the_client_authenticates_again(tmp_path: Path) -> None:
    harness = Harness(tmp_path, connections_max_reauth_ms="60000")
    session = harness.session()
    outcome = by_scram(session, "alice", "wonder")
    assert outcome.session_lifetime_ms == outcome.response.session_lifetime_ms == 60_000
    harness.clock.advance(50_000)
    assert by_scram(session, "alice", "wonder").principal == "User:alice"
    harness.clock.advance(50_000)
    assert not session.expired and session.allows(ApiKey.FETCH)
    harness.clock.advance(10_001)
    assert session.expired
    assert {api for api in ApiKey if session.allows(api)} == {ApiKey.SASL_HANDSHAKE}
    assert by_scram(session, "alice", "wonder").principal == "User:alice"
    assert not session.expired and session.allows(ApiKey.FETCH)


def test_nothing_is_served_during_a_second_authentication(harness: Harness) -> None:
    session = harness.session()
    by_scram(session, "alice", "wonder")
    handshake(session, "SCRAM-SHA-256")
    assert {api for api in ApiKey if session.allows(api)} == {ApiKey.SASL_AUTHENTICATE}


def test_a_second_authentication_keeps_the_principal(harness: Harness) -> None:
    session = harness.session()
    by_scram(session, "alice", "wonder")
    outcome = by_scram(session, "bob", "builder")
    assert outcome.refuse and outcome.principal is None
    assert outcome.response.error_message == "Cannot change principals during re-authentication from User.alice"
    assert session.phase == "refused" and session.principal == "User:alice"


def test_a_second_authentication_keeps_the_mechanism(harness: Harness) -> None:
    session = harness.session()
    by_scram(session, "alice", "wonder")
    assert handshake(session, "PLAIN").response.error_code == 0  # type: ignore[attr-defined]
    outcome = step(session, b"\0alice\0wonder")
    assert outcome.refuse and outcome.response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert "re-authentication of mechanism 'SCRAM-SHA-256'" in outcome.response.error_message


def test_a_client_authenticates_again_at_most_once_a_second(harness: Harness) -> None:
    session = harness.session()
    by_scram(session, "alice", "wonder")
    assert by_scram(session, "alice", "wonder").principal == "User:alice"
    outcome = by_scram(session, "alice", "wonder")
    assert not outcome.refuse and outcome.response.error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert session.phase == "authenticated"
    harness.clock.advance(1000)
    assert by_scram(session, "alice", "wonder").principal == "User:alice"


def test_after_many_failures_a_user_is_refused_at_that_address_for_a_while(tmp_path: Path) -> None:
    harness = Harness(tmp_path, klog_sasl_failures_max="3")
    for _ in range(3):
        assert by_scram(harness.session(), "alice", "guess").refuse
    refused = by_scram(harness.session(), "alice", "wonder")
    wrong = by_scram(harness.session(), "alice", "guess")
    assert (
        refused.refuse and refused.response == wrong.response
    )  # the response does not show that the password is right
    assert by_scram(harness.session(address="10.0.0.2"), "alice", "wonder").principal == "User:alice"
    assert by_scram(harness.session(), "bob", "builder").principal == "User:bob"
    harness.clock.advance(60_000)
    assert by_scram(harness.session(), "alice", "wonder").principal == "User:alice"


def test_after_many_failures_of_different_users_their_address_is_refused(tmp_path: Path) -> None:
    harness = Harness(tmp_path, klog_sasl_failures_max="3")
    for number in range(30):
        assert by_scram(harness.session(), f"user{number}", "guess").refuse
    assert by_scram(harness.session(), "alice", "wonder").refuse
    assert by_scram(harness.session(address="10.0.0.2"), "alice", "wonder").principal == "User:alice"


def test_a_message_above_the_limit_is_refused(tmp_path: Path) -> None:
    harness = Harness(tmp_path, sasl_server_max_receive_size="100")
    session = harness.session()
    handshake(session, "PLAIN")
    outcome = step(session, b"\0bob\0builder" + b"x" * 100)
    assert outcome.refuse and "receive size" in outcome.response.error_message


def test_a_listener_without_sasl_has_no_sessions(harness: Harness) -> None:
    with pytest.raises(ValueError, match="does not use SASL"):
        harness.session("FREE")
    with pytest.raises(ValueError, match="does not have it"):
        harness.session("OTHER")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Harness:
    return Harness(tmp_path_factory.mktemp("users"))


CALLS = st.one_of(
    st.tuples(st.just("handshake"), st.sampled_from(["PLAIN", "SCRAM-SHA-256", "x", ""]), st.integers(0, 1)),
    st.tuples(st.just("step"), st.binary(max_size=50) | st.sampled_from([b"n,,n=alice,r=abc", b"\0bob\0wrong"])),
)


@given(st.lists(CALLS, max_size=8))
def test_no_order_of_hostile_messages_authenticates(shared: Harness, calls: list[tuple[Any, ...]]) -> None:
    session = shared.session()
    for name, *details in calls:
        outcome: Any = handshake(session, *details) if name == "handshake" else step(session, *details)
        assert outcome.principal is None and session.principal is None
        assert outcome.refuse == bool(outcome.response.error_code)
        if outcome.refuse:
            assert session.phase == "refused" and not any(map(session.allows, ApiKey))


def test_the_log_has_no_secrets(harness: Harness, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    by_scram(harness.session(), "alice", "wonder")
    by_scram(harness.session(), "alice", "a bad guess")
    by_scram(harness.session(), "alice", "a bad guess")
    harness.clock.advance(1000)
    session = harness.session()
    handshake(session, "PLAIN")
    step(session, b"\0bob\0not the builder")
    text = "\n".join(record.getMessage() for record in caplog.records)
    assert text.count("event=authentication_failed") == 2 and "user='alice'" in text and "left_out=1" in text
    assert not any(secret in text for secret in ("wonder", "guess", "builder"))
