"""The calls of klog.testing.control, each with its path: what a TestBroker does for a test in another language."""

from __future__ import annotations

import itertools
import threading
from typing import TYPE_CHECKING, Any

from klog import arguments
from klog.clock import ManualClock
from klog.testing.json_records import from_fields, partition_in, to_fields

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    from klog.testing.controlled import Controlled
    from klog.testing.faults import Fault
    from klog.testing.watching import Watch

    Query = dict[str, str]
    Body = dict[str, Any]
    Found = dict[str, Any]
    Call = Callable[[Query, Body], Found]
    AnyWatch = TypeVar("AnyWatch", bound=Watch)

_TIMEOUT = 10.0
_LOADING = {"path", "key", "timestamp", "partitions", "compression", "form"}


class NotFound(Exception):
    """There is no such path, or nothing of this name."""


class Calls:
    """The calls over one broker. Any thread: those that start or stop it come one after the other."""

    def __init__(self, broker: Controlled) -> None:
        self._broker = broker
        self._life = threading.RLock()
        self._numbers = itertools.count(1)
        self._faults: dict[int, Fault] = {}
        self._watches: dict[int, Watch] = {}
        self._fixed: dict[tuple[str, ...], Call] = {
            ("GET",): self._facts,
            ("GET", "metrics"): lambda query, body: dict(self._broker.metrics()),
            ("GET", "topics"): lambda query, body: dict(self._broker.logs.topics()),
            ("POST", "topics"): self._create_topic,
            ("GET", "faults"): lambda query, body: {"faults": [_shown(*each) for each in list(self._faults.items())]},
            ("POST", "faults"): self._inject,
            ("DELETE", "faults"): self._clear_faults,
            ("GET", "watches"): lambda query, body: {
                "watches": [_shown(*each) for each in list(self._watches.items())]
            },
            ("POST", "watches"): self._watch,
            ("GET", "groups"): lambda query, body: {"groups": self._broker.groups()},
            ("GET", "dump"): lambda query, body: {"text": self._broker.dump()},
            ("POST", "tear"): self._tear,
            ("POST", "leaders"): self._move_leader,
            ("POST", "coordinators"): self._move_coordinator,
            ("POST", "clock", "advance"): self._advance,
            ("POST", "snapshot"): lambda query, body: self._changed(lambda: self._broker.snapshot(_path(body))),
            ("POST", "restore"): lambda query, body: self._changed(lambda: self._broker.restore(_path(body))),
            ("POST", "start"): lambda query, body: self._changed(self._broker.start),
            ("POST", "stop"): lambda query, body: self._changed(self._broker.stop),
            ("POST", "kill"): lambda query, body: self._changed(self._broker.kill),
            ("POST", "restart"): lambda query, body: self._changed(self._broker.restart),
        }
        self._named: dict[tuple[str, ...], Callable[[str, Query, Body], Found]] = {
            ("GET", "topics", "records"): self._records,
            ("POST", "topics", "records"): self._append,
            ("POST", "topics", "load"): self._load,
            ("GET", "groups"): self._group,
            ("GET", "faults"): lambda name, query, body: _waited(name, _found("fault", self._faults, name), query),
            ("DELETE", "faults"): lambda name, query, body: _stopped(name, _found("fault", self._faults, name)),
            ("POST", "faults", "release"): self._release,
            ("GET", "watches"): lambda name, query, body: _waited(name, _found("watch", self._watches, name), query),
            ("DELETE", "watches"): lambda name, query, body: _stopped(name, _found("watch", self._watches, name)),
            ("POST", "brokers", "start"): lambda name, query, body: self._changed(
                lambda: self._broker.start_broker(_number("broker", name))
            ),
            ("POST", "brokers", "stop"): lambda name, query, body: self._changed(
                lambda: self._broker.stop_broker(_number("broker", name))
            ),
        }

    def find(self, method: str, names: tuple[str, ...]) -> Call:
        """The call of a method and the names in its path. Raises NotFound."""
        found = self._fixed.get((method, *names))
        if found is not None:
            return found
        if len(names) in (2, 3):
            call = self._named.get((method, names[0], *names[2:]))
            if call is not None:
                return lambda query, body: call(names[1], query, body)
        raise NotFound(f"there is no {method} /{'/'.join(names)}")

    # ---- the broker --------------------------------------------------------------------------------------------------

    def _facts(self, query: Query, body: Body) -> Found:
        broker = self._broker
        return {
            "is_running": broker.is_running,
            "bootstrap_servers": broker.bootstrap_servers if broker.is_running else None,
            "directory": broker.directory,
            "brokers": list(broker.broker_ids),
        }

    def _changed(self, change: Callable[[], object]) -> Found:
        with self._life:
            change()
            return self._facts({}, {})

    def _advance(self, query: Query, body: Body) -> Found:
        clock = self._broker.clock
        if not isinstance(clock, ManualClock):
            raise RuntimeError("the broker has the clock of the system; start it with a manual one")
        clock.advance(_of(body, "ms"))
        return {"wall_ms": clock.wall_ms()}

    def _move_leader(self, query: Query, body: Body) -> Found:
        self._broker.move_leader(_of(body, "topic"), _of(body, "partition"), _of(body, "broker"))
        return {}

    def _move_coordinator(self, query: Query, body: Body) -> Found:
        self._broker.move_coordinator(_of(body, "group"), _of(body, "broker"))
        return {}

    # ---- topics and groups -------------------------------------------------------------------------------------------

    def _create_topic(self, query: Query, body: Body) -> Found:
        name = _of(body, "name")
        self._broker.create_topic(name, **{key: body[key] for key in body if key != "name"})
        return {"name": name, "partitions": self._broker.logs.topics()[name]}

    def _records(self, topic: str, query: Query, body: Body) -> Found:
        found = self._broker.topic(self._topic(topic))
        if "wait" in query:
            found.wait(_number("wait", query["wait"]), _seconds(query))
        partition = _number("partition", query["partition"]) if "partition" in query else None
        isolation = query.get("isolation", "read_committed")
        return {"records": [to_fields(each) for each in found.records(partition, isolation=isolation)]}

    def _append(self, topic: str, query: Query, body: Body) -> Found:
        records = _of(body, "records")
        if not isinstance(records, list):
            raise arguments.wrong_type("records", records, "a list")
        by_partition: dict[int | None, list[Any]] = {}
        for each in records:
            by_partition.setdefault(partition_in(each), []).append(from_fields(each))
        for partition, some in by_partition.items():
            self._broker.topic(topic).append(some, partition=partition)
        return {"appended": len(records)}

    def _load(self, topic: str, query: Query, body: Body) -> Found:
        unknown = sorted(body.keys() - _LOADING)
        if unknown:
            raise ValueError(f"load with {', '.join(unknown)}: it takes {', '.join(sorted(_LOADING))}")
        found = self._broker.load(topic, _path(body), **{key: body[key] for key in body if key != "path"})
        return {"records": len(found.records())}

    def _topic(self, topic: str) -> str:
        if topic not in self._broker.logs.topics():
            raise NotFound(f"there is no topic {topic!r}")
        return topic

    def _group(self, group: str, query: Query, body: Body) -> Found:
        found = self._broker.group(group)
        timeout = _seconds(query)
        members = _number("members", query["members"]) if "members" in query else None
        if members is not None or "state" in query:
            found.wait(query.get("state", "Stable"), members=members, timeout=timeout)
        topic = query.get("topic")
        if topic is not None and "lag" in query:
            found.wait_lag(topic, _number("lag", query["lag"]), timeout=timeout)
        shown = {
            "group": group,
            "state": found.state,
            "members": [each._asdict() for each in found.members],
            "offsets": [
                {"topic": name, "partition": number, "offset": offset}
                for (name, number), offset in sorted(found.offsets.items())
            ],
        }
        return shown if topic is None else shown | {"lag": found.lag(topic)}

    # ---- faults ------------------------------------------------------------------------------------------------------

    def _inject(self, query: Query, body: Body) -> Found:
        number = next(self._numbers)
        fault = self._faults[number] = self._broker.inject(**body)
        return _shown(number, fault)

    def _watch(self, query: Query, body: Body) -> Found:
        number = next(self._numbers)
        watch = self._watches[number] = self._broker.watch(**body)
        return _shown(number, watch)

    def _clear_faults(self, query: Query, body: Body) -> Found:
        self._broker.clear_faults()
        self._faults = {}
        return {}

    def _release(self, number: str, query: Query, body: Body) -> Found:
        fault = _found("fault", self._faults, number)
        fault.release()
        return _shown(int(number), fault)

    def _tear(self, query: Query, body: Body) -> Found:
        self._broker.tear(_of(body, "topic"), **{key: body[key] for key in body if key != "topic"})
        return {}


def _found(what: str, known: dict[int, AnyWatch], number: str) -> AnyWatch:
    found = known.get(_number(what, number))
    if found is None:
        raise NotFound(f"there is no {what} {number}")
    return found


def _waited(number: str, watch: Watch, query: Query) -> Found:
    if "wait" in query:
        watch.wait(_number("wait", query["wait"]), _seconds(query))
    requests = [
        {
            **each._asdict(),
            "api": each.api.name.lower(),
            "partitions": [{"topic": topic, "partition": partition} for topic, partition in each.partitions],
        }
        for each in watch.requests
    ]
    return _shown(int(number), watch) | {"requests": requests}


def _stopped(number: str, watch: Watch) -> Found:
    watch.stop()
    return _shown(int(number), watch)


def _shown(number: int, watch: Watch) -> Found:
    return {"id": number, "hits": watch.hits, "is_active": watch.is_active, **watch.wanted()}


def _of(body: Body, name: str) -> Any:
    if name not in body:
        raise ValueError(f"the body has no {name!r}")
    return body[name]


def _path(body: Body) -> str:
    return arguments.path("path", _of(body, "path"))


def _number(name: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 19):
        raise ValueError(f"{name}={text!r}: a number expected")
    return int(text)


def _seconds(query: Query) -> float:
    text = query.get("timeout")
    if text is None:
        return _TIMEOUT
    try:
        return arguments.some_seconds("timeout", float(text))
    except ValueError:
        raise ValueError(f"timeout={text!r}: seconds expected") from None
