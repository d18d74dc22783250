"""klog config explain KEY"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from klog import values
from klog.arguments import INT_MAX, LONG_MAX
from klog.cli.output import json_option, print_json, styled
from klog.shown import size

if TYPE_CHECKING:
    from klog.config import Explanation

_CHANGES = {
    "yes": "applies at once, also while the directory is open",
    "no": "applies at the next start",
    "half..double": "applies at once; at most half or double of the current value at a time",
}
_LEVELS = {
    "topic": "a topic: create_topic, alter_topic, Log.open",
    "broker": "a directory: klog.open(config=...), klog.Broker(config=...), server.properties",
    "server": "a broker: klog.Broker(config=...), klog broker --config, server.properties",
    "group": "a group of a broker: kafka-configs.sh --entity-type groups",
}


@click.group("config")
def command() -> None:
    """What configuration keys mean.

    \b
    klog config explain segment.ms
    """


@command.command("explain")
@click.argument("key", metavar="KEY", shell_complete=lambda ctx, parameter, begun: _completed(begun))
@json_option
def explain(key: str, as_json: bool) -> None:
    """Print type, unit, default and meaning of a key, and when a change of it applies.

    KEY is Kafka's property name, of a topic, a broker or a group, or its spelling in Python. Exit code 2 for an unknown
    one.

    \b
    klog config explain segment.ms
    klog config explain log_cleaner_threads
    klog config explain retention.ms --json | jq .default
    """
    from klog.broker.explain import explain

    found = explain(key)
    if as_json:
        print_json(values.asdict(found))
        return
    click.echo(f"{styled(found.name, bold=True)}: {found.meaning}")
    for name, value in _lines(found):
        click.echo(f"  {name:<9}{value}")


def _lines(found: Explanation) -> list[tuple[str, str]]:
    lines = [
        ("of", _LEVELS[found.level]),
        ("type", f"{found.type}, {found.unit}" if found.unit else found.type),
        ("default", _value(found.default, found.unit)),
    ]
    if found.choices:
        lines.append(("one of" if found.type != "list" else "any of", ", ".join(found.choices)))
    elif found.low is not None:
        low = "" if found.low < -INT_MAX else f"at least {found.low}"
        high = "" if found.high in (None, INT_MAX, LONG_MAX) else f"at most {found.high}"
        if low or high:
            lines.append(("bounds", ", ".join(filter(None, (low, high)))))
    lines.append(("change", _CHANGES[found.dynamic]))
    if found.topic_key:
        lines.append(("sets", f"the default of the topic key {found.topic_key}"))
    if found.broker_keys:
        lines.append(("set by", f"{', '.join(found.broker_keys)}"))
    if found.field:
        lines.append(("Python", found.field))
    return lines


def _value(value: object, unit: str | None) -> str:
    """Return a value as text; a large number of bytes or of milliseconds also in a larger unit."""
    if value is None or value == ():
        return "none"
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        if value == LONG_MAX:
            return f"{value} (no limit)"
        if unit == "bytes" and value >= 1024:
            return f"{value} ({size(value)})"
        if unit == "milliseconds" and value >= 1000:
            return f"{value} ({_duration(value)})"
    return "no limit" if isinstance(value, float) and value > LONG_MAX else str(value)


def _duration(ms: int) -> str:
    for name, length in (("days", 86_400_000), ("hours", 3_600_000), ("minutes", 60_000)):
        if ms >= length and ms % length == 0:
            count = ms // length
            return f"{count} {name if count != 1 else name[:-1]}"
    return f"{ms / 1000:g} s"


def _completed(begun: str) -> list[str]:
    from klog.broker.explain import broker_keys, group_keys
    from klog.config import BROKER_KEYS, TOPIC_KEYS

    known = {*BROKER_KEYS, *TOPIC_KEYS, *(key.name for key in (*broker_keys(), *group_keys()))}
    return sorted(key for key in known if key.startswith(begun))
