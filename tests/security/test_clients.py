"""Real clients authenticate themselves over real connections: aiokafka and kafka-python."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka.abc import AbstractTokenProvider
from aiokafka.conn import create_conn
from aiokafka.errors import (
    SaslAuthenticationFailed,
    UnsupportedSaslMechanismError,
)
from kafka import KafkaAdminClient

from klog.clock import SystemClock
from klog.network import Listener, Request, Server
from klog.protocol import ApiKey, decode_request, encode_response, messages
from klog.security import Sasl, SaslSession, SecurityConfig, Users
from tests.support.network import Inline, serving
from tests.support.patience import AIOKAFKA, KAFKA_PYTHON

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
APIS = (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE, ApiKey.METADATA, ApiKey.DESCRIBE_CLUSTER)


class Broker:
    """Responds to ApiVersions, and after authentication to Metadata and DescribeCluster."""

    def __init__(self, sasl: Sasl) -> None:
        self._sasl = sasl
        self.server: Server | None = None
        self.principals: list[str] = []

    def handle(self, request: Request) -> None:
        connection = request.connection
        if connection.state is None:
            connection.state = self._sasl.session("SASL_PLAINTEXT", str(connection.peer[0]))
        session: SaslSession = connection.state
        received = decode_request(request.frame)
        api, version, message = received.api, received.version, received.message

        def parts(response: Any) -> Any:
            return encode_response(api, version, received.correlation_id, response)

        if not session.allows(api):
            request.close()
        elif api in (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE):
            is_handshake = api is ApiKey.SASL_HANDSHAKE
            outcome = session.handshake(version, message) if is_handshake else session.authenticate(message)
            if outcome.principal is not None:
                connection.authenticate(outcome.principal)
                self.principals.append(connection.principal)
            (request.refuse_authentication if outcome.refuse else request.respond)(parts(outcome.response))
        elif api is ApiKey.API_VERSIONS:
            response = messages.ApiVersions.Response
            rows = [
                response.Api(api_key=each, min_version=each.advertised[0], max_version=each.advertised[1])
                for each in APIS
            ]
            request.respond(parts(response(api_keys=rows)))
        else:
            request.respond(parts(self._cluster_response(api)))

    def _cluster_response(self, api: ApiKey) -> Any:
        assert self.server is not None
        address: dict[str, Any] = {"host": "127.0.0.1", "port": self.server.port}
        if api is ApiKey.METADATA:
            broker = messages.Metadata.Response.Broker(node_id=1, **address)
            return messages.Metadata.Response(brokers=[broker], cluster_id="c", controller_id=1, topics=[])
        node = messages.DescribeCluster.Response.Broker(broker_id=1, **address)
        return messages.DescribeCluster.Response(cluster_id="c", controller_id=1, brokers=[node])


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    users = Users(str(tmp_path))
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        users.set_password("alice", mechanism, "w\u00f6nder,=land")
    config = SecurityConfig.of(
        {
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            "klog.sasl.plaintext.allow": "true",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{MODULE} required user_alice="w\u00f6nder,=land";',
        }
    )
    made = Broker(Sasl(config, users, SystemClock()))
    listener = Listener(name="SASL_PLAINTEXT", authenticates=True)
    with serving(Inline(made.handle), listener, failed_authentication_delay_ms=10) as server:
        made.server = server
        yield made


async def connected(broker: Broker, **options: Any) -> None:
    assert broker.server is not None
    connection = await create_conn(
        "127.0.0.1",
        broker.server.port,
        security_protocol="SASL_PLAINTEXT",
        **AIOKAFKA,
        **options,
    )
    connection.close()


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_aiokafka(broker: Broker, mechanism: str) -> None:
    def attempt(user: str, password: str) -> None:
        asyncio.run(connected(broker, sasl_mechanism=mechanism, sasl_plain_username=user, sasl_plain_password=password))

    attempt("alice", "w\u00f6nder,=land")
    assert broker.principals == ["User:alice"]
    for user, password in (("alice", "wonderland"), ("bob", "w\u00f6nder,=land")):
        with pytest.raises(SaslAuthenticationFailed, match="uthentication failed"):
            attempt(user, password)
    assert broker.principals == ["User:alice"]


def test_aiokafka_with_a_mechanism_that_is_not_offered(broker: Broker) -> None:
    class Tokens(AbstractTokenProvider):  # type: ignore[misc]
        async def token(self) -> str:
            return "token"

    with pytest.raises(UnsupportedSaslMechanismError):
        asyncio.run(connected(broker, sasl_mechanism="OAUTHBEARER", sasl_oauth_token_provider=Tokens()))
    assert broker.principals == []


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_kafka_python(broker: Broker, mechanism: str) -> None:
    assert broker.server is not None
    client = KafkaAdminClient(
        bootstrap_servers=f"127.0.0.1:{broker.server.port}",
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism=mechanism,
        sasl_plain_username="alice",
        sasl_plain_password="w\u00f6nder,=land",
        **KAFKA_PYTHON,
    )
    with contextlib.closing(client):
        assert client.describe_cluster()["cluster_id"] == "c"
    assert set(broker.principals) == {"User:alice"}
