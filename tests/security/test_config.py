"""The properties of security, and the JAAS text with the users of PLAIN."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.config.properties import read_properties
from klog.errors import InvalidConfig
from klog.security import SecurityConfig, jaas
from klog.security.acl_types import Operation, ResourceType

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


def test_the_defaults() -> None:
    config = SecurityConfig.of({"log.dirs": "/tmp/x", "num.io.threads": "8"})
    assert dataclasses.replace(config, listeners={}) == SecurityConfig()
    assert not config.authorizes and config.super_users == frozenset()
    assert set(config.listeners) == {"PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"}
    sasl = config.listener("sasl_ssl")
    assert sasl.authenticates and sasl.mechanisms == ("SCRAM-SHA-256", "SCRAM-SHA-512")
    assert sasl.max_reauth_ms("SCRAM-SHA-256") == 0 and sasl.receive_bytes_max == 524_288
    assert not config.listener("SSL").authenticates


def test_a_server_properties_of_kafka(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text(
        "listener.security.protocol.map=INSIDE:SASL_PLAINTEXT,OUTSIDE:SASL_SSL\n"
        "sasl.enabled.mechanisms=SCRAM-SHA-256, SCRAM-SHA-512\n"
        "connections.max.reauth.ms=1000\n"
        "listener.name.outside.sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-512\n"
        "listener.name.outside.connections.max.reauth.ms=2000\n"
        "listener.name.outside.plain.connections.max.reauth.ms=3000\n"
        "listener.name.outside.sasl.server.max.receive.size=4000\n"
        f"listener.name.outside.plain.sasl.jaas.config={MODULE} required \\\n"
        '  username="admin" password="not used" \\\n'
        '  user_admin="admin-secret" user_alice="al\\\\"ice;=";\n'
        "listener.name.outside.ssl.keystore.location=/x\n"
        f"authorizer.class.name={AUTHORIZER}\n"
        "super.users=User:admin;User:CN=a,O=b\n"
        "allow.everyone.if.no.acl.found=True\n"
        "quota.window.num=5\n"
        "controller.quota.window.size.seconds=2\n"
    )
    config = SecurityConfig.of(read_properties(str(path)))
    inside, outside = config.listener("INSIDE"), config.listener("OUTSIDE")
    assert inside.mechanisms == ("SCRAM-SHA-256", "SCRAM-SHA-512") and inside.max_reauth_ms("SCRAM-SHA-256") == 1000
    assert outside.mechanisms == ("PLAIN", "SCRAM-SHA-512") and outside.receive_bytes_max == 4000
    assert outside.max_reauth_ms("SCRAM-SHA-512") == 2000 and outside.max_reauth_ms("PLAIN") == 3000
    assert outside.plain_users.names == ["admin", "alice"]
    assert outside.plain_users.has("alice", 'al"ice;=') and not outside.plain_users.has("admin", "not used")
    assert config.authorizes and config.allow_everyone_if_no_acl_found
    assert config.super_users == {"User:admin", "User:CN=a,O=b"}
    assert config.quota_window_num == 5 and config.controller_quota_window_size_seconds == 2
    assert "secret" not in repr(config) and "not used" not in repr(config)


def test_a_listener_s_file_that_is_none_is_not_given() -> None:
    given = {"listener.name.ssl.ssl.keystore.location": "/x", "listener.name.ssl.ssl.truststore.location": None}
    assert SecurityConfig.of(given).listener("SSL").tls == {"ssl.keystore.location": "/x"}


def test_plain_needs_tls_unless_it_is_allowed(caplog: pytest.LogCaptureFixture) -> None:
    properties = {"sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256"}
    config = SecurityConfig.of(properties)
    assert config.listener("SASL_PLAINTEXT").mechanisms == ("SCRAM-SHA-256",)
    assert config.listener("SASL_SSL").mechanisms == ("PLAIN", "SCRAM-SHA-256")
    assert "event=plain_not_offered listener=SASL_PLAINTEXT" in caplog.text
    allowed = SecurityConfig.of({**properties, "klog.sasl.plaintext.allow": "true"})
    assert allowed.listener("SASL_PLAINTEXT").mechanisms == ("PLAIN", "SCRAM-SHA-256")
    with pytest.raises(InvalidConfig, match="would have no mechanism"):
        SecurityConfig.of({"sasl.enabled.mechanisms": "PLAIN", "listener.security.protocol.map": "A:SASL_PLAINTEXT"})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("sasl.enabled.mechanisms", "GSSAPI"),
        ("sasl.enabled.mechanisms", ""),
        ("listener.name.sasl_ssl.sasl.enabled.mechanisms", "plain"),
        ("listener.name.other.sasl.enabled.mechanisms", "PLAIN"),
        ("listener.security.protocol.map", "A"),
        ("listener.security.protocol.map", "A:TLS"),
        ("listener.security.protocol.map", ":SSL"),
        ("connections.max.reauth.ms", "-1"),
        ("connections.max.reauth.ms", "an hour"),
        ("listener.name.sasl_ssl.scram-sha-256.connections.max.reauth.ms", "-1"),
        ("sasl.server.max.receive.size", "0"),
        ("authorizer.class.name", "kafka.security.authorizer.AclAuthorizer"),
        ("super.users", "alice"),
        ("super.users", "User:"),
        ("allow.everyone.if.no.acl.found", "yes"),
        ("klog.sasl.plaintext.allow", "1"),
        ("quota.window.num", "1"),
        ("quota.window.size.seconds", "0"),
        ("controller.quota.window.num", "0"),
        ("klog.sasl.failures.max", "-1"),
    ],
)
def test_an_invalid_value_is_an_error_with_its_name(name: str, value: str) -> None:
    assert SecurityConfig.knows(name)
    with pytest.raises(InvalidConfig, match=name.replace(".", r"\.")):
        SecurityConfig.of({name: value})


@pytest.mark.parametrize(
    ("name", "mechanism"),
    [
        ("sasl.kerberos.service.name", "GSSAPI"),
        ("listener.name.sasl_ssl.sasl.kerberos.kinit.cmd", "GSSAPI"),
        ("listener.name.sasl_ssl.gssapi.sasl.kerberos.principal.to.local.rules", "GSSAPI"),
        ("sasl.oauthbearer.jwks.endpoint.url", "OAUTHBEARER"),
    ],
)
def test_a_property_of_a_mechanism_that_klog_lacks_is_an_error_with_those_that_it_has(
    name: str, mechanism: str
) -> None:
    with pytest.raises(InvalidConfig, match=f"{name}: .* {mechanism}.*, only PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"):
        SecurityConfig.of({name: "x"})


def test_which_properties_are_known() -> None:
    for name in (
        "listener.name.a.plain.sasl.jaas.config",
        "listener.name.a.scram-sha-512.connections.max.reauth.ms",
        "listener.name.a.ssl.keystore.location",
    ):
        assert SecurityConfig.knows(name), name
    for name in (
        "log.dirs",
        "sasl.jaas.config",
        "listener.name.a.sasl.jaas.config",
        "listener.name.sasl.enabled.mechanisms",
        "listener.name.a.ssl.keystore.password",
        "listener.name.a.oauthbearer.sasl.jaas.config",
    ):
        assert not SecurityConfig.knows(name), name


@pytest.mark.parametrize(
    "text",
    [
        "",
        "M",
        "M required",
        'M required user_a="SECRET"',
        'M sometimes user_a="SECRET";',
        'M required user_a "SECRET";',
        "M required user_a=;",
        'M required user_a="SECRET;',
        'M required user_a=="SECRET";',
        'M required user_="SECRET";',
        'M required user_a="";',
        'other.Module required user_a="SECRET";',
        ";",
    ],
)
def test_an_invalid_jaas_text_is_an_error_without_the_text(text: str) -> None:
    name = "listener.name.sasl_ssl.plain.sasl.jaas.config"
    with pytest.raises(InvalidConfig, match="listener.name") as caught:
        SecurityConfig.of({name: text.replace("M ", f"{MODULE} "), "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256"})
    assert "SECRET" not in str(caught.value)


def test_a_jaas_text_may_have_several_modules_and_escapes() -> None:
    modules = jaas.parse("x", "a.B required x=1 y='2 ;\\'3';\n c.D OPTIONAL z=\"\\101\\n\\\\\";")
    assert [(each.name, each.options) for each in modules] == [
        ("a.B", {"x": "1", "y": "2 ;'3"}),
        ("c.D", {"z": "A\n\\"}),
    ]
    assert "2 ;" not in repr(modules)


@given(st.dictionaries(st.from_regex(r"[a-z_]{1,8}", fullmatch=True), st.text(max_size=20), max_size=5))
def test_quoted_options_are_read_as_they_are_written(options: dict[str, str]) -> None:
    def quoted(value: str) -> str:
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'

    text = f"a.B required {' '.join(f'{name}={quoted(value)}' for name, value in options.items())};"
    (module,) = jaas.parse("x", text)
    assert module.options == options


@given(st.text("ab=;'\"\\ 07\n", max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        jaas.parse("x", text)
    except InvalidConfig:
        pass


def test_the_numbers_are_kafkas() -> None:
    assert [each.value for each in ResourceType] == list(range(8)) and Operation(15).name == "TWO_PHASE_COMMIT"
