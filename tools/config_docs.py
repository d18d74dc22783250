"""Writes docs/configuration.md from the tables of klog.config and the properties of klog.broker:
`python tools/config_docs.py`; `--check` compares."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from klog.arguments import INT_MAX, LONG_MAX, LONG_MIN  # noqa: E402
from klog.broker.explain import broker_keys, group_keys  # noqa: E402
from klog.config import BROKER_KEYS, TOPIC_KEYS, Key  # noqa: E402
from klog.config.table import REMOVED  # noqa: E402
from klog.config.values import format_value  # noqa: E402

FILE = ROOT / "docs" / "configuration.md"
HEAD = """\
# Configuration

Written by `python tools/config_docs.py` from the tables in `klog/config` and the properties in `klog/broker`.
`klog config explain KEY` prints the same about one key.

Every key has Kafka's name; those that begin with `klog.` are klog's own. In Python, a topic key or broker key may also
have underscores instead of dots: `klog.LogConfig(segment_bytes=1 << 26)`.
An unknown key is an error that names the nearest known one. A `server.properties` has many keys that are not about the
log, so all of its unknown keys together are one warning. `LogConfig.from_properties(path)` and
`ManagerConfig.from_properties(path)` read such files, `to_properties()` writes them.

**Precedence:** the topic's own value (`create_topic`, `alter_topic`), then the directory's changed value
(`LogManager.alter_config`), then the value at opening (`klog.open(config=...)`), then the default. Among broker keys
for the same setting ms precede minutes, minutes precede hours.

**None** removes a key's value: the next one in that order applies.

## Topic keys

Each topic key may change while its logs are open; `alter_topic` applies it at once. Broker keys set the default of all
topics; those in italics are read only when the directory is opened.

| Key | Type, bounds | Default | Broker keys | Meaning |
|---|---|---|---|---|
"""
RULES = """
`segment.bytes` below 1 MiB, which a broker of Kafka 4.0 and later refuses, is one warning. `internal.segment.bytes` has
no such bound and takes precedence if it is set.

klog refuses these combinations of values:

- `min.compaction.lag.ms` above `max.compaction.lag.ms`;
- `local.retention.*` above `retention.*`, or −1 if `retention.*` is not −1;
- with `remote.storage.enable=true`: `compact` in `cleanup.policy`, or `remote.log.storage.system.enable=false`;
- with `remote.storage.enable=true` and `remote.log.copy.disable=true`: a `local.retention.*` that is neither −2 nor
  equal to `retention.*`;
- a change of `remote.storage.enable` to false without `remote.log.delete.on.disable=true`.
"""
BROKER = """
## Broker keys

`klog.open(path, config={...})` sets these keys for a directory, or for a list of them. It uses the keys from `log.dirs`
to `producer.id.expiration.check.interval.ms`. `klog.Broker` also uses those of new topics, transactions, fetches,
quotas, connections and TLS. klog checks the other ones, and does nothing else with them: it has no replication and no
tiered storage.

| Key | Type, bounds | Default | While open | Meaning |
|---|---|---|---|---|
"""
SERVED = """
## Properties of a broker

`klog.Broker(path, config={...})` and `klog broker --config` take these and the broker keys above, with dots. A change
applies at the next start.

One listener can have its own value of `ssl.keystore.location`, `ssl.key.password`, `ssl.truststore.location`, and of
the properties whose meaning says so: `listener.name.<listener>.<property>`. For one mechanism of SASL it is
`listener.name.<listener>.<mechanism>.<property>`. Key stores and trust stores are PEM files. [broker.md](broker.md) has
examples.

klog has neither Kerberos nor OAUTHBEARER. A broker with a property `sasl.kerberos.*` or `sasl.oauthbearer.*` does not
start, also if it is in a file: the error names the mechanisms that it has.

| Property | Type, bounds | Default | Meaning |
|---|---|---|---|
"""
GROUPS = """
## Configurations of groups

Clients set them for one group while the broker runs: `kafka-configs.sh --alter --entity-type groups --entity-name
GROUP --add-config ...`. Where the broker has a property of the same name with `group.` in front, that is the default.

| Configuration | Type | Default | Meaning |
|---|---|---|---|
"""
GONE = """
## Removed keys

Kafka 4.0 removed them. A file that still has them loads, with a warning.

| Key | Instead |
|---|---|
"""


def number(value: float) -> str:
    return {INT_MAX: "2^31-1", LONG_MAX: "2^63-1", sys.float_info.max: "no bound"}.get(value, format_value(value))


def kind(key: Key) -> str:
    if key.choices:
        one = ", ".join(key.choices)
        return f"list of {one}" if key.type == "list" else one
    if key.check is not None:
        return f"{key.type}, {key.doc}"
    low = None if key.low in (None, LONG_MIN, -(2**31)) else key.low
    high = None if key.high in (None, INT_MAX, LONG_MAX) else key.high
    if low is None and high is None:
        return key.type
    if high is None and low is not None:
        return f"{key.type} ≥ {number(low)}"
    assert low is not None
    assert high is not None
    return f"{key.type} {number(low)} … {number(high)}"


def default(key: Key) -> str:
    if key.default in (None, "", ()):
        return "–"
    return number(key.default) if isinstance(key.default, int | float) else format_value(key.default)


def rows(keys: Iterable[Key], *, topic: bool) -> str:
    lines = []
    for key in keys:
        synonyms = ", ".join(
            f"`{name}`" if factor == 1 and not name.endswith("scheduler.interval.ms") else f"*`{name}`*"
            for name, factor in key.synonyms
        )
        fourth = (synonyms or "–") if topic else key.dynamic
        lines.append(f"| `{key.name}` | {kind(key)} | {default(key)} | {fourth} | {key.doc} |\n")
    return "".join(lines)


def served(keys: Iterable[Key]) -> str:
    return "".join(
        f"| `{key.name}` | {kind(key)} | {default(key)} | {key.doc.replace('<', '&lt;')} |\n" for key in keys
    )


def text() -> str:
    gone = "".join(f"| `{name}` | {instead} |\n" for name, instead in REMOVED.items())
    return (
        HEAD
        + rows(TOPIC_KEYS.values(), topic=True)
        + RULES
        + BROKER
        + rows(BROKER_KEYS.values(), topic=False)
        + SERVED
        + served(broker_keys())
        + GROUPS
        + served(group_keys())
        + GONE
        + gone
    )


if __name__ == "__main__":
    if "--check" in sys.argv:
        sys.exit(0 if FILE.read_text() == text() else f"{FILE} is stale: run python tools/config_docs.py")
    FILE.write_text(text())
