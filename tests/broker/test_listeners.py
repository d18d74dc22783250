"""Listeners: reloading and changes of certificates, the warning about an open listener, and SASL requests on a listener
without SASL."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from klog.broker import Broker
from klog.errors import InvalidConfig
from klog.network import Listener
from klog.network.tls import tls_context
from klog.protocol import ApiKey, ErrorCode, decode_response, encode_request, messages
from tests.support.patience import PATIENCE, until
from tests.support.tls import Keys, made
from tests.support.wire_client import WireClient

ROOT = Path(__file__).resolve().parents[2]
OPEN = "event=open_listener"
BOTH = ("SSL://127.0.0.1:0", "PLAINTEXT://127.0.0.1:0")
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


def write_keystore(keys: Keys, to: Path) -> None:
    """Write certificate and key into one file, as ssl.keystore.location requires, and replace `to` by it."""
    newer = to.with_suffix(".new")
    newer.touch(0o600)
    newer.write_bytes(keys.certificate.read_bytes() + keys.key.read_bytes())
    shutil.move(newer, to)


def config_of(path: Path) -> dict[str, str]:
    return {"listener.security.protocol.map": "SSL:SSL,PLAINTEXT:PLAINTEXT", "ssl.keystore.location": str(path)}


def is_trusted(port: int, keys: Keys) -> bool:
    """Return whether a client that trusts only this certificate can connect."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as sock:
            keys.trusting.wrap_socket(sock, server_hostname="localhost").close()
    except ssl.SSLCertVerificationError:
        return False
    return True


def test_a_broker_reads_its_certificates_again(tmp_path: Path) -> None:
    old, new = (made(tmp_path / name, "/CN=localhost") for name in ("old", "new"))
    path = tmp_path / "keys.pem"
    write_keystore(old, path)
    listeners = ["SSL://127.0.0.1:0", "PLAINTEXT://127.0.0.1:0"]
    with Broker(tmp_path / "data", listeners=listeners, config=config_of(path)) as broker:
        assert is_trusted(broker.port, old) and not is_trusted(broker.port, new)
        path.write_text("nothing")
        with pytest.raises(InvalidConfig, match="listener SSL"):
            broker.reload_tls()
        assert is_trusted(broker.port, old)
        write_keystore(new, path)
        broker.reload_tls()
        assert is_trusted(broker.port, new) and not is_trusted(broker.port, old)
        port = broker.port
        broker.stop()
        broker.start()
        assert broker.port == port and is_trusted(port, new)


def test_a_listener_has_a_certificate_of_its_own(tmp_path: Path) -> None:
    shared, own = (made(tmp_path / name, "/CN=localhost") for name in ("shared", "own"))
    for keys, name in ((shared, "shared.pem"), (own, "own.pem")):
        write_keystore(keys, tmp_path / name)
    config = config_of(tmp_path / "shared.pem") | {
        "listener.security.protocol.map": "INSIDE:SSL,OUTSIDE:SSL",
        "listener.name.outside.ssl.keystore.location": str(tmp_path / "own.pem"),
    }
    listeners = ["INSIDE://127.0.0.1:0", "OUTSIDE://127.0.0.1:0"]
    with Broker(tmp_path / "data", listeners=listeners, config=config) as broker:
        inside, outside = (each.port for each in broker.listeners)
        assert is_trusted(inside, shared) and not is_trusted(inside, own)
        assert is_trusted(outside, own) and not is_trusted(outside, shared)
        write_keystore(shared, tmp_path / "own.pem")
        broker.reload_tls()
        assert is_trusted(outside, shared)
    del config["listener.name.outside.ssl.keystore.location"]
    config["listener.name.outside.ssl.client.auth"] = "required"
    with pytest.raises(InvalidConfig, match="listener OUTSIDE: .*trusted"):
        Broker(tmp_path / "data", listeners=listeners, config=config)
    config["listener.name.elsewhere.ssl.client.auth"] = "none"
    with pytest.raises(InvalidConfig, match="ELSEWHERE"):
        Broker(tmp_path / "data", listeners=listeners, config=config)


@pytest.mark.parametrize("name", ["ssl.key.password", "listener.name.ssl.ssl.key.password"])
def test_a_key_may_be_encrypted(tmp_path: Path, name: str) -> None:
    keys, path = made(tmp_path / "keys", "/CN=localhost"), tmp_path / "keys.pem"
    encrypt = ["openssl", "pkey", "-in", str(keys.key), "-aes256", "-passout", "pass:geheim"]
    encrypted = subprocess.run(encrypt, check=True, capture_output=True).stdout
    write_keystore(keys, path)
    path.write_bytes(keys.certificate.read_bytes() + encrypted)
    config = config_of(path) | {name: "geheim"}
    with Broker(tmp_path / "data", listeners=BOTH, config=config) as broker:
        broker.reload_tls()
        assert is_trusted(broker.port, keys)
        with plain(broker) as client:
            assert altered(client, "listener.name.ssl.ssl.key.password", "other") == ErrorCode.INVALID_CONFIG
            assert described(client, name) in ([], [(None, 4, True)])
        assert "geheim" not in repr(broker._properties.security)
    for wrong in ({}, {name: "other"}):
        with pytest.raises(InvalidConfig, match=r"listener SSL: .*keys.pem.*ssl\.key\.password"):
            Broker(tmp_path / "data", listeners=BOTH, config=config_of(path) | wrong)
    path.write_bytes(keys.certificate.read_bytes() + keys.key.read_bytes())
    config = config_of(path) | {"ssl.truststore.location": str(keys.key), "ssl.client.auth": "required"}
    with pytest.raises(InvalidConfig, match="listener SSL: trusted=.*no PEM file with certificates"):
        Broker(tmp_path / "data", listeners=BOTH, config=config)


@pytest.mark.parametrize("name", ["ssl.principal.mapping.rules", "listener.name.ssl.ssl.principal.mapping.rules"])
def test_the_name_of_a_client_comes_from_its_certificate_by_rules(tmp_path: Path, name: str) -> None:
    keys, path = made(tmp_path / "keys", "/CN=localhost"), tmp_path / "keys.pem"
    write_keystore(keys, path)
    readers, others = (made(tmp_path / each, f"/O=klog/CN={each}") for each in ("reader", "other"))
    trusted = tmp_path / "trusted.pem"
    trusted.write_bytes(readers.certificate.read_bytes() + others.certificate.read_bytes())
    config = config_of(path) | {
        "ssl.client.auth": "required",
        "ssl.truststore.location": str(trusted),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:READER@KLOG",
        name: "RULE:CN=(reader),O=(.*)/$1@$2/U, RULE:nobody/x/",
    }
    with Broker(tmp_path / "data", listeners=["SSL://127.0.0.1:0"], config=config) as broker:
        broker.logs.create_topic("secret")
        for client in (readers, others):
            keys.trusting.load_cert_chain(client.certificate, client.key)
            with WireClient(broker.bootstrap_servers) as wire:
                wire.socket = keys.trusting.wrap_socket(wire.socket, server_hostname="localhost")
                if client is readers:
                    found = wire.call(ApiKey.METADATA, 9, topics=None)
                    assert [each.name for each in found.topics] == ["secret"]
                else:
                    with pytest.raises(OSError):
                        wire.call(ApiKey.METADATA, 9, topics=None)
        until(lambda: broker.metrics()["FailedHandshakes"] == 1)


def altered(client: WireClient, name: str, value: str | Path | None, broker: str = "1", **fields: Any) -> int:
    """Set a property of a broker, or delete it with the value None. Return the error code."""
    Request = messages.IncrementalAlterConfigs.Request
    text = None if value is None else str(value)
    configs = [Request.Config(name=name, config_operation=int(value is None), value=text)]
    resources = [Request.Resource(resource_type=4, resource_name=broker, configs=configs)]
    (found,) = client.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=resources, **fields).responses
    assert bool(found.error_message) == bool(found.error_code), found
    code: int = found.error_code
    return code


def described(client: WireClient, name: str) -> list[tuple[str | None, int, bool]]:
    """Return value, source and whether it is read-only."""
    asked = messages.DescribeConfigs.Request.Resource(resource_type=4, resource_name="1", configuration_keys=[name])
    (found,) = client.call(ApiKey.DESCRIBE_CONFIGS, 4, resources=[asked]).results
    return [(each.value, each.config_source, each.read_only) for each in found.configs]


LOCATION = "listener.name.ssl.ssl.keystore.location"


def plain(broker: Broker) -> WireClient:
    """Return a client of the listener without TLS."""
    return WireClient(broker.bootstrap_servers.split(",")[1])


def test_clients_change_the_certificate_of_a_listener(tmp_path: Path) -> None:
    old, new = (made(tmp_path / name, "/CN=localhost") for name in ("old", "new"))
    paths = tmp_path / "old.pem", tmp_path / "new.pem"
    for keys, path in zip((old, new), paths, strict=True):
        write_keystore(keys, path)
    config, data = config_of(paths[0]), tmp_path / "data"
    with Broker(data, listeners=BOTH, config=config) as broker:
        with plain(broker) as client:
            assert altered(client, LOCATION, tmp_path / "missing.pem") == ErrorCode.INVALID_REQUEST
            assert altered(client, LOCATION, paths[1], validate_only=True) == 0
            stored = data / "klog-broker.json"
            stored.mkdir()  # it cannot be written
            assert altered(client, LOCATION, paths[1]) == ErrorCode.KAFKA_STORAGE_ERROR
            stored.rmdir()
            assert is_trusted(broker.port, old) and described(client, LOCATION) == []
            assert altered(client, LOCATION, paths[1]) == 0
            assert is_trusted(broker.port, new) and not is_trusted(broker.port, old)
            assert described(client, LOCATION) == [(str(paths[1]), 2, False)]
        broker.reload_tls()
        assert is_trusted(broker.port, new)
    with Broker(data, listeners=BOTH, config=config) as broker:
        assert is_trusted(broker.port, new)
        with plain(broker) as client:
            assert altered(client, LOCATION, None) == 0
        assert is_trusted(broker.port, old)


def test_a_certificate_that_clients_have_set_and_that_is_gone_is_not_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    old, new = (made(tmp_path / name, "/CN=localhost") for name in ("old", "new"))
    paths = tmp_path / "old.pem", tmp_path / "new.pem"
    for keys, path in zip((old, new), paths, strict=True):
        write_keystore(keys, path)
    config, data = config_of(paths[0]), tmp_path / "data"
    with Broker(data, listeners=BOTH, config=config) as broker, plain(broker) as client:
        assert altered(client, LOCATION, paths[1]) == 0
    paths[1].unlink()
    with Broker(data, listeners=BOTH, config=config) as broker:
        assert f"event=config_left_out key={LOCATION}" in caplog.text
        assert is_trusted(broker.port, old)


def test_what_is_stored_for_a_listener_that_is_gone_does_not_prevent_other_changes(tmp_path: Path) -> None:
    keys, path = made(tmp_path / "keys", "/CN=localhost"), tmp_path / "keys.pem"
    write_keystore(keys, path)
    config, data = config_of(path), tmp_path / "data"
    config["listener.security.protocol.map"] += ",EXTRA:SSL"
    extra = "listener.name.extra.ssl.keystore.location"
    with Broker(data, listeners=[*BOTH, "EXTRA://127.0.0.1:0"], config=config) as broker, plain(broker) as client:
        assert altered(client, extra, path) == 0
    with Broker(data, listeners=BOTH, config=config) as broker, plain(broker) as client:
        assert altered(client, LOCATION, path, validate_only=True) == altered(client, LOCATION, path) == 0
        assert described(client, LOCATION) == described(client, extra) == [(str(path), 2, False)]
        assert is_trusted(broker.port, keys)
        assert altered(client, extra, path) == ErrorCode.INVALID_REQUEST  # a new value for no listener
        assert altered(client, extra, None) == 0
        assert described(client, extra) == []


UNUSABLE = {
    "an encrypted key": ["rsa:2048", "-passout", "pass:secret"],
    "a curve that no client has": ["ec", "-pkeyopt", "ec_paramgen_curve:secp256k1", "-nodes"],
}


@pytest.mark.parametrize("what", UNUSABLE)
def test_a_certificate_that_cannot_be_served_is_refused_and_not_stored(tmp_path: Path, what: str) -> None:
    """The first would make OpenSSL ask for a password at the terminal."""
    keys, path, refused = made(tmp_path / "keys", "/CN=localhost"), tmp_path / "keys.pem", tmp_path / "refused.pem"
    write_keystore(keys, path)
    refused.touch(0o600)
    subprocess.run(
        ["openssl", "req", "-x509", "-days", "2", "-subj", "/CN=localhost", "-newkey", *UNUSABLE[what],
         "-keyout", tmp_path / "key", "-out", tmp_path / "certificate"],
        check=True, capture_output=True,
    )  # fmt: skip
    refused.write_bytes((tmp_path / "certificate").read_bytes() + (tmp_path / "key").read_bytes())
    with Broker(tmp_path / "data", listeners=BOTH, config=config_of(path)) as broker, plain(broker) as client:
        assert altered(client, LOCATION, refused) == ErrorCode.INVALID_REQUEST
        assert described(client, LOCATION) == [] and is_trusted(broker.port, keys)


@pytest.mark.parametrize(
    ("broker", "name"),
    [
        ("1", "ssl.keystore.location"),
        ("", LOCATION),
        ("1", "listener.name.ssl.ssl.client.auth"),
        ("1", "listener.name.plaintext.ssl.keystore.location"),
    ],
)
def test_changes_that_no_listener_can_make_are_refused(tmp_path: Path, broker: str, name: str) -> None:
    path = tmp_path / "keys.pem"
    write_keystore(made(tmp_path / "keys", "/CN=localhost"), path)
    with Broker(tmp_path / "data", listeners=BOTH, config=config_of(path)) as served, plain(served) as client:
        assert altered(client, name, path, broker) == ErrorCode.INVALID_REQUEST


def test_the_command_reads_its_certificates_again_on_sighup(tmp_path: Path) -> None:
    old, new = (made(tmp_path / name, "/CN=localhost") for name in ("old", "new"))
    path = tmp_path / "keys.pem"
    write_keystore(old, path)
    settings = [part for name, value in config_of(path).items() for part in ("--config", f"{name}={value}")]
    command = [sys.executable, "-m", "klog", "broker", "--json", "--listener", "SSL://127.0.0.1:0", *settings]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT) as process:
        try:
            assert process.stdout is not None and process.stderr is not None
            started = json.loads(process.stdout.readline())
            assert started["listeners"] == [f"SSL://127.0.0.1:{started['port']}"]
            path.write_text("nothing")
            os.kill(process.pid, signal.SIGHUP)
            assert "certificates are not reloaded: listener SSL" in process.stderr.readline()
            write_keystore(new, path)
            os.kill(process.pid, signal.SIGHUP)
            until(lambda: is_trusted(started["port"], new), 0.01)
            process.terminate()
            assert process.wait(PATIENCE) == 0
        finally:
            process.kill()


def test_a_listener_that_the_protocol_map_does_not_have_is_refused(tmp_path: Path) -> None:
    """A broker that served it in plain text would let everybody in whom the map keeps out."""
    config = {"listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:SASL_PLAINTEXT"}
    with pytest.raises(InvalidConfig, match=r"no protocol for the listener PLAINTEXT at 127\.0\.0\.1:0: add"):
        Broker(tmp_path, listeners=["127.0.0.1:0"], config=config)
    with Broker(tmp_path, listeners=["INSIDE://127.0.0.1:0", "OUTSIDE://127.0.0.1:0"], config=config) as broker:
        assert [each.authenticates for each in broker.listeners] == [False, True]
    keys = made(tmp_path / "keys", "/CN=localhost")
    own = Listener(name="OWN", context=tls_context(str(keys.certificate), str(keys.key)))
    assert Broker(tmp_path, listeners=[own], config=config).listeners[0].context is own.context


def test_a_listener_has_limits_of_its_own_and_that_of_the_brokers_is_protected(tmp_path: Path) -> None:
    config = {
        "max.connections": 1,
        "inter.broker.listener.name": "INNER",
        "listener.name.inner.max.connections": "2",
        "listener.name.outer.max.connection.creation.rate": 50,
    }
    with Broker(tmp_path, listeners=["OUTER://127.0.0.1:0", "INNER://127.0.0.1:0"], config=config) as broker:
        outer, inner = broker.listeners
        assert (outer.max_connection_creation_rate, outer.protected) == (50, False)
        assert (inner.max_connections, inner.protected) == (2, True)
        with WireClient(f"127.0.0.1:{outer.port}") as client:
            client.call(ApiKey.API_VERSIONS, 0)
            with WireClient(f"127.0.0.1:{inner.port}") as other:
                other.call(ApiKey.API_VERSIONS, 0)
                assert client.is_closed()
    for name, value, text in (
        ("listener.name.none.max.connections", 1, "no listener has the name NONE"),
        ("listener.name.outer.max.connections", "x", "listener.name.outer.max.connections='x': int expected"),
        ("listener.name.outer.max.connections", 0, "must be at least 1"),
        ("listener.name..max.connections", 1, "unknown broker property"),
    ):
        with pytest.raises(InvalidConfig, match=text):
            Broker(tmp_path, listeners=["OUTER://127.0.0.1:0"], config={name: value})


def test_the_log_warns_of_a_listener_that_is_open_to_all(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with Broker(tmp_path, listeners=["127.0.0.1:0"]):
        pass
    assert OPEN not in caplog.text
    with Broker(tmp_path, listeners=["LOCAL://127.0.0.1:0", "OUTSIDE://0.0.0.0:0"]) as broker:
        assert [each.name for each in broker.listeners] == ["LOCAL", "OUTSIDE"]
    assert [record.getMessage().startswith(f"{OPEN} listener=OUTSIDE host=0.0.0.0") for record in caplog.records] == [
        True
    ]


def test_without_sasl_the_apis_of_sasl_are_advertised_and_refused(tmp_path: Path) -> None:
    """As in Kafka, the connection stays open."""
    with Broker(tmp_path, listeners=["127.0.0.1:0"]) as broker, WireClient(broker.bootstrap_servers) as client:
        advertised = {each.api_key for each in client.call(ApiKey.API_VERSIONS, 0).api_keys}
        assert {ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE} <= advertised
        for version in (0, 1):
            refused = client.call(ApiKey.SASL_HANDSHAKE, version, mechanism="PLAIN")
            assert refused.error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert client.call(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=b"x").error_code == ErrorCode.ILLEGAL_SASL_STATE


@pytest.mark.parametrize("lifetime_ms", [0, 1])
def test_what_a_connection_may_not_ask_yet_or_any_more_has_no_response_that_looks_like_a_success(
    tmp_path: Path, lifetime_ms: int
) -> None:
    """When a session has ended the connection is closed, as in Kafka: clients send again what they see lost, but take
    an error for the end of a record."""
    config = {
        "sasl.enabled.mechanisms": "PLAIN",
        "klog.sasl.plaintext.allow": True,
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{PLAIN} required user_ann="one";',
        "connections.max.reauth.ms": lifetime_ms,
    }
    with Broker(tmp_path, listeners=["SASL_PLAINTEXT://127.0.0.1:0"], config=config) as broker:
        requests: list[tuple[ApiKey, int, Any]] = [
            (ApiKey.METADATA, 9, messages.Metadata.Request(topics=None)),
            (ApiKey.PRODUCE, 9, messages.Produce.Request(transactional_id=None, acks=1)),
            (ApiKey.HEARTBEAT, 4, messages.Heartbeat.Request(group_id="g", member_id="m")),
        ]
        for api, version, request in requests:
            with WireClient(broker.bootstrap_servers) as client:
                if lifetime_ms:
                    client.call(ApiKey.SASL_HANDSHAKE, 1, mechanism="PLAIN")
                    assert not client.call(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=b"\0ann\0one").error_code
                    time.sleep(lifetime_ms / 500)
                client.send(api, version, request)
                if api is ApiKey.HEARTBEAT and not lifetime_ms:
                    assert client.receive(api, version).error_code == ErrorCode.ILLEGAL_SASL_STATE
                assert client.is_closed(), api


def test_what_a_request_before_authentication_asks_for_is_not_read(tmp_path: Path) -> None:
    """To read 512 KiB, and to respond to each part of it, takes a second of a processor."""
    with Broker(tmp_path, listeners=["SASL_PLAINTEXT://127.0.0.1:0"]) as broker:
        (frame,) = encode_request(ApiKey.HEARTBEAT, 4, 1, "me", messages.Heartbeat.Request(group_id="g" * 99))
        for damaged in (frame[4:-40], frame[4:-40] + b"\xff" * 40):
            with WireClient(broker.bootstrap_servers) as client:
                client.socket.sendall(struct.pack(">i", len(damaged)) + damaged)
                _, response = decode_response(ApiKey.HEARTBEAT, 4, client.frame())
                assert response.error_code == ErrorCode.ILLEGAL_SASL_STATE
                assert client.is_closed()
