"""TestBroker(tls=True, sasl={...}): real clients connect with client_config(), and cannot connect without it."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import ssl
from typing import Any

import pytest

from klog.protocol import ApiKey, messages
from klog.security.jaas import parse
from klog.testing import TestBroker
from tests.support.patience import AIOKAFKA, KAFKA_PYTHON, KAFKA_PYTHON_PRODUCER, PATIENCE
from tests.support.wire_client import WireClient

needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="needs: openssl")
USERS = {"alice": 'se"cr\\et', "bob": "b"}
BOTH = pytest.param({"tls": True, "sasl": USERS, "mechanism": "SCRAM-SHA-512"}, marks=needs_openssl, id="both")
OPTIONS = [
    pytest.param({}, id="plaintext"),
    pytest.param({"tls": True}, marks=needs_openssl, id="tls"),
    pytest.param({"sasl": USERS}, id="scram"),
    pytest.param({"sasl": USERS, "mechanism": "PLAIN"}, id="plain"),
    BOTH,
]


@pytest.mark.parametrize("options", OPTIONS)
def test_kafka_python_connects(options: dict[str, Any]) -> None:
    kafka: Any = pytest.importorskip("kafka", reason="needs: kafka-python")
    with TestBroker(topics=["orders"], **options) as b:
        producer = kafka.KafkaProducer(**b.client_config("kafka-python"), **KAFKA_PYTHON_PRODUCER)
        try:
            producer.send("orders", b"v").get(PATIENCE)
        finally:
            producer.close()
        assert b.topic("orders").values() == [b"v"]


@pytest.mark.parametrize("options", [BOTH])
def test_aiokafka_connects_as_each_user(options: dict[str, Any]) -> None:
    aiokafka: Any = pytest.importorskip("aiokafka", reason="needs: aiokafka")

    async def send(config: dict[str, Any], value: bytes) -> None:
        async with aiokafka.AIOKafkaProducer(**config, **AIOKAFKA) as producer:
            await producer.send_and_wait("orders", value)

    with TestBroker(topics=["orders"], **options) as b:
        for user in USERS:
            asyncio.run(send(b.client_config("aiokafka", user), user.encode()))
        assert b.topic("orders").values() == [b"alice", b"bob"]
        with pytest.raises(ValueError, match="alice, bob"):
            b.client_config(user="carol")


@needs_openssl
def test_the_certificate_is_of_localhost_alone() -> None:
    with TestBroker(tls=True, listeners=["127.0.0.1:0"]) as b:
        ca = b.client_config()["ssl.ca.location"]
        trusting = ssl.create_default_context(cafile=ca)
        trusting.verify_flags |= ssl.VERIFY_X509_STRICT
        for name in ("localhost", "127.0.0.1"):
            with socket.create_connection(("127.0.0.1", b.port), PATIENCE) as plain:
                trusting.wrap_socket(plain, server_hostname=name).close()
        for context, name in ((trusting, "example.org"), (ssl.create_default_context(), "localhost")):
            with (
                socket.create_connection(("127.0.0.1", b.port), PATIENCE) as plain,
                pytest.raises(ssl.SSLCertVerificationError),
            ):
                context.wrap_socket(plain, server_hostname=name)
        assert not b.directory.startswith(os.path.dirname(ca))
    assert not os.path.exists(ca)


def test_users_exist_after_a_restore(tmp_path: Any) -> None:
    kafka: Any = pytest.importorskip("kafka", reason="needs: kafka-python")
    with TestBroker(sasl=USERS) as b:
        b.snapshot(tmp_path / "s")
        b.restore(tmp_path / "s")
        admin = kafka.KafkaAdminClient(**b.client_config("kafka-python", "bob"), **KAFKA_PYTHON)
        assert admin.list_topics() == []
        admin.close()
        with WireClient(b.bootstrap_servers) as client:
            client.send(ApiKey.METADATA, 9, messages.Metadata.Request())
            assert client.is_closed()


def test_the_config_names_of_each_library() -> None:
    with TestBroker(sasl=USERS, mechanism="PLAIN") as b:
        assert b.client_config() == {
            "bootstrap.servers": b.bootstrap_servers,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "alice",
            "sasl.password": USERS["alice"],
        }
        java = b.client_config("java", "bob")
        assert parse("jaas", java["sasl.jaas.config"])[0].options == {"username": "bob", "password": "b"}
        with pytest.raises(ValueError, match="confluent-kafka"):
            b.client_config("sarama")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"sasl": {}}, "at least one user"),
        ({"sasl": {"a": "b"}, "mechanism": "GSSAPI"}, "mechanism"),
        ({"sasl": {"a": "b"}, "listeners": ["X://127.0.0.1:0"]}, "without a name"),
        ({"sasl": {"a": ""}}, "password"),
        ({"mechanism": "PLAIN"}, "mechanism='PLAIN' needs sasl"),
    ],
)
def test_invalid_options(options: dict[str, Any], text: str) -> None:
    with pytest.raises((ValueError, TypeError), match=text), TestBroker(**options):
        pass
