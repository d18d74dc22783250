"""Which requests a test asks about: by API, topic, partition, client, broker and a function of the test."""

from __future__ import annotations

import fnmatch
import threading
from collections import deque
from typing import TYPE_CHECKING, Any

from klog import arguments
from klog.broker.fetch_sessions import is_incremental
from klog.protocol import ApiKey
from klog.testing.named import EVERY, forgotten_partitions, named_partitions
from klog.values import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from klog.broker import Broker
    from klog.broker.context import RequestContext
    from klog.testing.named import Named

_KEPT = 1000
_SESSIONS_VERSION = 7
_FIRST_INCREMENTAL = 1  # of a share session


class MatchedRequest(NamedTuple):
    """A request that was matched. broker: the id of the broker that got it. partitions: (topic, partition) of all that
    it names; partition None for a topic itself, topic None for all topics."""

    api: ApiKey
    version: int
    client_id: str
    broker: int
    partitions: tuple[Named, ...]


class Watch:
    """Requests of a kind. Made by TestBroker.watch, which describes the arguments. Any thread.

    hits: the number of requests that it has matched. requests: the last of them. is_active: does it match more of them?
    """

    def __init__(
        self,
        api: ApiKey | str | None = None,
        *,
        topic: str | None = None,
        partition: int | None = None,
        client_id: str | None = None,
        broker: int | None = None,
        when: Callable[[RequestContext], bool] | None = None,
        count: int | None = None,
        skip: int = 0,
    ) -> None:
        self.api = None if api is None else api_of(api)
        self.topic = None if topic is None else arguments.text("topic", topic)
        self.partition = None if partition is None else arguments.whole("partition", partition, 0)
        self.client_id = None if client_id is None else arguments.text("client_id", client_id)
        self.broker = None if broker is None else arguments.whole("broker", broker, 0)
        arguments.function("when", when)
        self.when = when
        if partition is not None and topic is None:
            raise ValueError(f"partition={partition}: give the topic, too")
        self._left = None if count is None else arguments.whole("count", count, 1)
        self._skip = arguments.whole("skip", skip, 0)
        self._changed = threading.Condition()  # guards the two above and the two below
        self._requests: deque[MatchedRequest] = deque(maxlen=_KEPT)
        self.hits = 0

    def __repr__(self) -> str:
        asked = (f"{name}={value!r}" for name, value in self.wanted().items())
        return f"<{type(self).__name__} {' '.join(asked)}: {self.hits} hits{'' if self.is_active else ', over'}>"

    def wanted(self) -> dict[str, Any]:
        """What it was made with, without what was left out."""
        names = ("topic", "partition", "client_id", "broker")
        found = {"api": None if self.api is None else self.api.name.lower()}
        found |= {name: getattr(self, name) for name in names}
        return {name: value for name, value in found.items() if value is not None}

    @property
    def is_active(self) -> bool:
        """Does it match more requests?"""
        return self._left is None or self._left > 0

    @property
    def requests(self) -> list[MatchedRequest]:
        """The last 1,000 requests that it has matched, in their order."""
        with self._changed:
            return list(self._requests)

    def stop(self) -> None:
        """Match no more requests."""
        with self._changed:
            self._left = 0

    def wait(self, hits: int = 1, timeout: float = 10.0) -> None:
        """Wait until it has matched this many requests. Raises TimeoutError."""
        with self._changed:
            if not self._changed.wait_for(lambda: self.hits >= hits, timeout):
                raise TimeoutError(f"{self!r}: {hits} hits expected within {timeout} s")

    def matches(self, context: RequestContext, broker: Broker) -> bool:
        """Does it concern this request? Counts it if so."""
        if not self.is_active or (self.api is not None and context.api is not self.api):
            return False
        if self.client_id is not None and not fnmatch.fnmatchcase(context.client_id, self.client_id):
            return False
        node_id = broker.nodes.id_at(context.connection.listener.port)
        if self.broker not in (None, node_id):
            return False
        partitions = partitions_of(context, broker)
        if not self.concerns(context, partitions):
            return False
        if self.when is not None and not self.when(context):
            return False
        with self._changed:
            if not self.is_active:
                return False
            if self._skip > 0:
                self._skip -= 1
                return False
            if self._left is not None:
                self._left -= 1
            self.hits += 1
            self._requests.append(MatchedRequest(context.api, context.version, context.client_id, node_id, partitions))
            self._changed.notify_all()
        return True

    def concerns(self, context: RequestContext, partitions: tuple[Named, ...]) -> bool:
        """Does it concern a request that names these partitions?"""
        return self.topic is None or any(self.is_of(*each) for each in partitions)

    def is_of(self, topic: str | None, partition: int | None) -> bool:
        """Does it concern a topic that a request names, or a partition of that?"""
        return self.topic is None or (topic in (self.topic, EVERY) and self.partition in (None, partition))


def api_of(api: ApiKey | str) -> ApiKey:
    """The ApiKey of a name: "produce", "Produce", "JOIN_GROUP", "joinGroup"."""
    if isinstance(api, ApiKey):
        return api
    wanted = arguments.text("api", api).replace("_", "").lower()
    for each in ApiKey:
        if each.name.replace("_", "").lower() == wanted:
            return each
    raise ValueError(f"api={api!r}: no such API; one of {', '.join(each.name.lower() for each in ApiKey)}")


def partitions_of(context: RequestContext, broker: Broker) -> tuple[Named, ...]:
    """(topic, partition) of all that a request names, and of the session of an incremental Fetch or ShareFetch at the
    broker that got it."""
    topics, message = broker.topics, context.message
    node_id = broker.nodes.id_at(context.connection.listener.port)
    found = list(named_partitions(context.api, context.version, message, topics))
    session: list[tuple[str, int]] = []
    if context.api is ApiKey.FETCH and context.version >= _SESSIONS_VERSION and is_incremental(message.session_epoch):
        session = broker.session_partitions(node_id, message.session_id)
    elif context.api is ApiKey.SHARE_FETCH and message.share_session_epoch >= _FIRST_INCREMENTAL:
        session = broker.share_session_partitions(node_id, message.group_id or "", message.member_id or "")
    if session:
        forgotten = forgotten_partitions(message, topics)
        for pair in session:
            if pair not in forgotten:
                found += [(pair[0], None), pair]
    return tuple(dict.fromkeys(found))
