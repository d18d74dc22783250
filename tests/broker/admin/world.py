"""The admin APIs over a log directory, without a network. Requests and responses are encoded and decoded as on a
connection."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import klog
from klog.broker.admin import AdminApis
from klog.broker.catalog import TopicCatalogView
from klog.broker.metadata import Node
from klog.clock import ManualClock
from klog.disk import Files
from klog.protocol import ApiKey, ErrorCode, Message, decode, encode, messages

NOW = 1_700_000_000_000
NODE = 1
CODES = {int(code): code for code in ErrorCode}
Rule = Callable[[str, str, str], bool]


class FakeContext:
    """A klog.security.Context. rule(operation, resource type, name) returns whether the operation is allowed."""

    def __init__(self, api: ApiKey, version: int, rule: Rule) -> None:
        self.api, self.version = api, version
        self.client_id, self.client_host = "me", "/127.0.0.1"
        self.principal, self.listener = "User:ANONYMOUS", "PLAINTEXT"
        self.connection: object | None = None
        self._rule = rule

    def authorized(self, operation: str, resource_type: str, name: str) -> bool:
        return self._rule(operation, resource_type, name)

    def respond(self, response: Message, *, throttle_ms: int = 0) -> None:
        raise AssertionError("admin handlers return their responses")


def everything(_operation: str, _resource_type: str, _name: str) -> bool:
    return True


class World:
    """A LogManager, its topic catalogue and the admin APIs. Use it in a `with` statement, which closes them."""

    def __init__(
        self,
        *paths: Path,
        config: Mapping[str, Any] | None = None,
        given: Mapping[str, Any] | None = None,
        files: Files | None = None,
        **options: Any,
    ) -> None:
        """config: configuration of the directories. given: further properties of the broker, which the LogManager does not
        get."""
        self.clock = ManualClock(NOW)
        self.logs = klog.open(list(paths), create=True, config=config, clock=self.clock, files=files)
        self.topics = TopicCatalogView(self.logs, given)
        self.admin = AdminApis(
            self.logs,
            self.topics,
            node_id=NODE,
            cluster_id="cluster",
            nodes=lambda _listener: [Node(NODE, "localhost", 9092)],
            config={**(config or {}), **(given or {})},
            files=files,
            **options,
        )
        self.admin.start()
        self.rule: Rule = everything
        self._handlers = self.admin.handlers()

    def __enter__(self) -> World:
        return self

    def __exit__(self, *error: object) -> None:
        self.admin.close()
        self.logs.close()

    def send(self, api: ApiKey, version: int | None = None, /, **fields: Any) -> Any:
        """Return the response to a request. Both are encoded and decoded in this version; None: the highest one."""
        version = api.high if version is None else version
        kinds = getattr(messages, api.message)
        request = decode(kinds.Request, version, encode(kinds.Request(**fields), version))
        response = self._handlers[api](FakeContext(api, version, self.rule), request)
        assert response is not None
        return decode(kinds.Response, version, encode(response, version))

    def deny(self, *denied: tuple[str, str, str]) -> None:
        """From now on refuse these, (operation, resource type, name), and allow everything else."""
        self.rule = lambda *asked: asked not in denied

    def allow(self, *allowed: tuple[str, str, str]) -> None:
        """From now on allow these, (operation, resource type, name), and refuse everything else."""
        self.rule = lambda *asked: asked in allowed
