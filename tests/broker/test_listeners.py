"""Listeners: reloading of certificates, the warning about an open listener, and SASL requests on a listener without SASL."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
from pathlib import Path

import pytest

from klog.broker import Broker
from klog.errors import InvalidConfig
from klog.protocol import ApiKey, ErrorCode
from tests.support.patience import PATIENCE, until
from tests.support.tls import Keys, made
from tests.support.wire_client import WireClient

ROOT = Path(__file__).resolve().parents[2]
OPEN = "event=open_listener"


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
