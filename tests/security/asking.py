"""Send requests to handlers as bytes of the protocol. SCRAM clients of other libraries."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import Any, Protocol

from klog.protocol import ApiKey, Message, decode, encode, messages


class ClientContext:
    """A Context of a client that is authorized for all operations except `denied`: pairs of operation and resource type."""

    listener = "SASL_PLAINTEXT"
    connection = None
    client_id = "tests"
    client_host = "/127.0.0.1"
    principal = "User:admin"

    def __init__(self, api: ApiKey, version: int | None = None, denied: Collection[tuple[str, str]] = ()) -> None:
        self.api = api
        self.version = api.high if version is None else version
        self._denied = denied

    def respond(self, response: Message, *, throttle_ms: int = 0) -> None:
        raise AssertionError("these handlers return their responses")

    def authorized(self, operation: str, resource_type: str, name: str) -> bool:
        assert name == "kafka-cluster"
        return (operation, resource_type) not in self._denied


def ask(
    handlers: dict[ApiKey, Callable[..., Any]],
    request: Message,
    *,
    version: int | None = None,
    denied: Collection[tuple[str, str]] = (),
) -> Any:
    """Return the handler's response to a request. Both are encoded to bytes and decoded again."""
    api = next(each for each in handlers if type(request) is getattr(messages, each.message).Request)
    context = ClientContext(api, version, denied)
    arrived = decode(type(request), context.version, encode(request, context.version))
    response = handlers[api](context, arrived)
    return decode(type(response), context.version, encode(response, context.version))


class ScramClient(Protocol):
    """The client's side of SCRAM, implemented by another library."""

    def first(self) -> bytes: ...

    def final(self, server_first: bytes) -> bytes: ...

    def verify(self, server_final: bytes) -> None:
        """Raises ValueError if the server does not know the password."""


class KafkaPython:
    """The client of kafka-python, which does not escape user names: this class does."""

    def __init__(self, user: str, password: str, mechanism: str) -> None:
        from kafka.net.sasl.scram import ScramClient as Theirs

        self._client = Theirs(user.replace("=", "=3D").replace(",", "=2C"), password, mechanism)

    def first(self) -> bytes:
        return bytes(self._client.first_message())

    def final(self, server_first: bytes) -> bytes:
        self._client.process_server_first_message(server_first)
        return bytes(self._client.final_message())

    def verify(self, server_final: bytes) -> None:
        self._client.process_server_final_message(server_final)


class AioKafka:
    """The client of aiokafka."""

    def __init__(self, user: str, password: str, mechanism: str) -> None:
        from aiokafka.conn import ScramAuthenticator

        loop = asyncio.new_event_loop()
        loop.close()
        self._client = ScramAuthenticator(
            loop=loop, sasl_plain_username=user, sasl_plain_password=password, sasl_mechanism=mechanism
        )

    def first(self) -> bytes:
        return str(self._client.first_message()).encode()

    def final(self, server_first: bytes) -> bytes:
        self._client.process_server_first_message(server_first.decode())
        return str(self._client.final_message()).encode()

    def verify(self, server_final: bytes) -> None:
        self._client.process_server_final_message(server_final.decode())


CLIENTS: dict[str, Callable[[str, str, str], ScramClient]] = {"kafka-python": KafkaPython, "aiokafka": AioKafka}
