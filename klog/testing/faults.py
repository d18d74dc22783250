"""Faults on demand: failures between a client and the broker that a test asks for.

    before the effect   error, respond, disconnect="before", kill="before", drop: the broker does not see the request
    after the effect    disconnect="after", half, kill="after", tear: the request is handled, its response lost or cut
    around it           delay_ms, hold: the request is handled later

Each fault counts the requests that it has matched, so a test can wait for them and check their number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

from klog import arguments
from klog.protocol import ApiKey, ErrorCode
from klog.testing.watching import Watch

if TYPE_CHECKING:
    from collections.abc import Callable

    from klog.broker.context import RequestContext
    from klog.protocol import Message
    from klog.testing.named import Named

Moment = Literal["before", "after"]
_OF_SHARE_SESSION: Final = frozenset(
    (
        ErrorCode.SHARE_SESSION_NOT_FOUND,
        ErrorCode.INVALID_SHARE_SESSION_EPOCH,
        ErrorCode.SHARE_SESSION_LIMIT_REACHED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.UNSUPPORTED_VERSION,
    )
)
# The errors of these that are not those of a topic or partition.
_OF_WHOLE: Final = {
    ApiKey.FETCH: frozenset(
        (
            ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
            ErrorCode.INVALID_FETCH_SESSION_EPOCH,
            ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            ErrorCode.UNSUPPORTED_VERSION,
        )
    ),
    ApiKey.SHARE_FETCH: _OF_SHARE_SESSION,
    ApiKey.SHARE_ACKNOWLEDGE: _OF_SHARE_SESSION,
    ApiKey.METADATA: frozenset((ErrorCode.REBOOTSTRAP_REQUIRED,)),
}


class Fault(Watch):
    """One fault. Made by TestBroker.inject, which describes the arguments. Any thread.

    hits: the number of requests that it has matched. requests: the last of them. is_active: does it match more of them?
    """

    def __init__(
        self,
        api: ApiKey | str | None = None,
        *,
        count: int | None = 1,
        error: ErrorCode | str | int | None = None,
        respond: Callable[[RequestContext], Message | None] | None = None,
        delay_ms: int = 0,
        hold: bool = False,
        disconnect: Moment | None = None,
        half: bool = False,
        drop: bool = False,
        kill: Moment | None = None,
        tear: int = 0,
        restart_ms: int | None = None,
        **which: Any,
    ) -> None:
        super().__init__(api, count=count, **which)
        self.error = None if error is None else code_named(error)
        arguments.function("respond", respond)
        self.respond = respond
        self.delay_ms = arguments.whole("delay_ms", delay_ms, 0)
        self.hold = arguments.flag("hold", hold)
        self.disconnect = _moment("disconnect", disconnect)
        self.half = arguments.flag("half", half)
        self.drop = arguments.flag("drop", drop)
        self.tear = arguments.whole("tear", tear, 0)
        self.kill = _moment("kill", kill if kill is not None or not tear else "after")
        self.restart_ms = None if restart_ms is None else arguments.whole("restart_ms", restart_ms, 0)
        self._held: list[Callable[[], None]] = []  # guarded by Watch._changed
        effects = (self.error, respond, disconnect, self.kill)
        named = sum(each is not None for each in effects) + self.half + self.drop
        if named > 1:
            raise ValueError(
                "one of error, respond, disconnect, half, drop and kill or tear, with delay_ms or hold or without"
            )
        if named == 0 and not (self.delay_ms or self.hold):
            raise ValueError(
                "a fault needs one of error, respond, delay_ms, hold, disconnect, half, drop, kill and tear"
            )
        if tear and (self.kill != "after" or self.api is not ApiKey.PRODUCE):
            raise ValueError(f"tear={tear}: the log of a record that was just written: api='produce', kill='after'")
        if restart_ms is not None and self.kill is None:
            raise ValueError(f"restart_ms={restart_ms}: give kill or tear, too")

    def wanted(self) -> dict[str, Any]:
        """What it was made with, without what was left out."""
        found = super().wanted() | {"error": None if self.error is None else self.error.name}
        for name in ("delay_ms", "hold", "disconnect", "half", "drop", "kill", "tear"):
            found[name] = getattr(self, name) or None
        found["restart_ms"] = self.restart_ms
        return {name: value for name, value in found.items() if value is not None}

    def concerns(self, context: RequestContext, partitions: tuple[Named, ...]) -> bool:
        """Does it concern a request that names these partitions? An error of partitions not one that names none."""
        if self.error is not None and self.is_of_parts(context.api) and not partitions:
            return False
        return super().concerns(context, partitions)

    def is_of_parts(self, api: ApiKey) -> bool:
        """Is its error that of topics or partitions of a request that is handled?"""
        return api in _OF_WHOLE and self.error not in _OF_WHOLE[api]

    def refuses(self, topic: str, partition: int | None) -> ErrorCode | None:
        """Its error if it concerns this partition, else None."""
        return self.error if self.is_of(topic, partition) else None

    def keep(self, go_on: Callable[[], None]) -> None:
        """Keep a request until release()."""
        with self._changed:
            self._held.append(go_on)

    def release(self) -> None:
        """Let the requests go on that `hold` has kept so far, in their order."""
        with self._changed:
            held, self._held = self._held, []
        for go_on in held:
            go_on()

    def forget(self) -> None:
        """Drop the requests that `hold` has kept: their broker is gone."""
        with self._changed:
            self._held = []

    def stop(self) -> None:
        """Match no more requests, and let those go on that it holds."""
        super().stop()
        self.release()


def _moment(name: str, value: Moment | None) -> Moment | None:
    if value is not None:
        arguments.chosen(name, value, ("before", "after"))
    return value


def code_named(error: ErrorCode | str | int) -> ErrorCode:
    """The ErrorCode of a name or number."""
    if isinstance(error, str):
        try:
            return ErrorCode[error.upper()]
        except KeyError:
            raise ValueError(f"error={error!r}: no such error of Kafka, as NOT_LEADER_OR_FOLLOWER is") from None
    number = arguments.whole("error", error)
    for code in ErrorCode:
        if code == number:
            return code
    raise ValueError(f"error={number}: no such error code of Kafka")
