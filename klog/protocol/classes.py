"""The classes of messages, made from the schemas when they are first asked for."""

from __future__ import annotations

from functools import cache, partial
from typing import Any

from klog.protocol._message import Message
from klog.protocol._program import ObjectProgram, Programs
from klog.protocol.api_keys import ApiKey
from klog.protocol.layout import Layout, data_messages, load
from klog.protocol.schema import Field, Struct

_MODULE = "klog.protocol.messages"


def names() -> list[str]:
    """The names of all messages."""
    return sorted((*(api.message for api in ApiKey), *data_messages()))


_made: dict[str, Any] = {}


@cache
def message(name: str) -> Any:
    """The class of a name: a message, or for an API a class that has those of its request and response as attributes.

    Any thread: those that ask at the same time for the first time may each make one, and all get the same. (With a lock
    a signal handler would wait for its own thread.) Raises KeyError for another name.
    """
    return _made.setdefault(name, _make(name))


def _make(name: str) -> Any:
    layouts = load(name)
    if "data" in layouts:
        return _message(layouts["data"], name)
    made = {section.title(): _message(layout, f"{name}.{section.title()}") for section, layout in layouts.items()}
    return type(name, (), {"__module__": _MODULE, "__slots__": (), **made})


def _message(layout: Layout, name: str) -> type[Message]:
    """The class of one message, with the classes of its structs as attributes."""
    classes: dict[str, type[Message]] = {}
    for struct in reversed(list(layout.section)):  # a struct comes after those that have it
        is_top = struct is layout.section.top
        made = _class(struct, name if is_top else f"{name}.{struct.name}", classes, dict(classes) if is_top else {})
        classes[struct.name] = made
    top = classes[layout.section.top.name]
    top.set_programs(Programs(layout, partial(ObjectProgram, classes=classes)))
    return top


def _class(struct: Struct, name: str, classes: dict[str, type[Message]], inner: dict[str, Any]) -> type[Message]:
    names = tuple(field.name for field in struct.fields)
    body = {"__module__": _MODULE, "__qualname__": name, "__slots__": names, **inner}
    made: type[Message] = type(name.rpartition(".")[2], (Message,), body)
    made.set_shape(names, [_default(field, classes) for field in struct.fields])
    return made


def _default(field: Field, classes: dict[str, type[Message]]) -> Any:
    """What set_shape takes: a struct that is not null by default is a new object of its class."""
    if field.struct is not None and not field.is_array and field.default is ...:
        return classes[field.struct.name]
    return field.default
