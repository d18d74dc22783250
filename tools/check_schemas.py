"""Compares klog's message schemas field by field with those in Kafka's jars, which klog does not contain.

    python tools/check_schemas.py [VERSION]        a version of Kafka, 4.3.1 by default; prints each difference

It compares names, types, versions, tags, nullability, defaults and whether a field is ignorable, over the versions that
klog has.
"""

from __future__ import annotations

import json
import re
import sys
import zipfile
from collections.abc import Iterator
from typing import Any

from klog.protocol.api_keys import ApiKey
from klog.protocol.layout import Layout, data_messages, load
from klog.protocol.schema import STRUCT, Field, Struct, Versions
from tools import kafka_jars

_JARS = ("clients", "group-coordinator", "transaction-coordinator", "share-coordinator", "metadata", "storage")
_KAFKA = 4, 3  # the version of Kafka whose schemas klog has
_TYPES = {"bool", "int8", "int16", "uint16", "int32", "int64", "float64", "uuid", "string", "bytes", "records"}


def published(version: str) -> dict[str, dict[str, Any]]:
    """Return the schemas of a version of Kafka, by name."""
    lib = kafka_jars.get(version).lib
    found = {}
    for each in _JARS:
        with zipfile.ZipFile(lib / f"kafka-{each}-{version}.jar") as jar:
            for name in jar.namelist():
                if name.startswith(("common/message/", "common/metadata/", "message/")) and name.endswith(".json"):
                    text = re.sub(r"(^|\s)//.*$", "", jar.read(name).decode(), flags=re.MULTILINE)
                    schema = json.loads(text)
                    found[schema["name"]] = schema
    return found


def messages() -> Iterator[tuple[str, Layout]]:
    """Yield (Kafka's name of a message, klog's layout of it)."""
    for api in ApiKey:
        for section in ("request", "response"):
            yield f"{api.message}{section.title()}", load(api.message)[section]
    for name in data_messages():
        yield name, load(name)["data"]


def camel(name: str) -> str:
    """Return Kafka's name of a field."""
    return "".join("KRaft" if word == "kraft" else word[:1].upper() + word[1:] for word in name.split("_"))


def _range(text: str | None, within: Versions) -> list[int]:
    if text is None or text == "none":
        return []
    low, plus, high = re.match(r"(\d+)(?:(\+)|-(\d+))?", text).groups()  # type: ignore[union-attr]
    top = within.high if plus else int(high or low)
    return [version for version in range(within.low, within.high + 1) if int(low) <= version <= top]


def _versions(field: dict[str, Any]) -> str:
    """Return the versions of a field. A tagged field may have none: then its taggedVersions."""
    return str(field.get("versions") or field["taggedVersions"])


def _ours(versions: Versions, within: list[int]) -> list[int]:
    return [version for version in within if version in versions]


def _default_of(field: dict[str, Any], kind: str) -> Any:
    text = field.get("default")
    if text == "null":
        return None
    if field["type"].startswith("[]") or kind == STRUCT:
        return ...
    if kind == "bool":
        return str(text).lower() == "true"
    if kind in ("string", "bytes", "records", "uuid"):
        return ""
    if kind == "float64":
        return float(text or 0)
    return int(str(text), 0) if text not in (None, "") else 0


class Comparison:
    """Collects the differences of one message."""

    def __init__(self, where: str, theirs: dict[str, Any], within: Versions, is_older: bool) -> None:
        self.where, self.within, self.is_older = where, within, is_older
        self.common = {struct["name"]: struct["fields"] for struct in theirs.get("commonStructs", [])}
        self.flexible = _range(theirs["flexibleVersions"], within)
        self.differences: list[str] = []

    def say(self, path: str, what: str, ours: object, theirs: object) -> None:
        if ours != theirs:
            self.differences.append(f"{self.where} {path}: {what} {ours!r}, Kafka has {theirs!r}")

    def struct(self, path: str, ours: Struct, theirs: list[dict[str, Any]], versions: list[int]) -> None:
        present = [field for field in theirs if set(_range(_versions(field), self.within)) & set(versions)]
        by_name = {field["name"][:1].upper() + field["name"][1:]: field for field in present}
        shared = [field for field in ours.fields if _ours(field.versions, versions)]
        if self.is_older:  # a tagged field may come without a new version
            shared = [field for field in shared if field.tag is None or camel(field.name) in by_name]
        self.say(path, "fields", [camel(field.name) for field in shared], list(by_name))
        for field in shared:
            if camel(field.name) in by_name:
                self.field(f"{path}.{field.name}", field, by_name[camel(field.name)], versions)

    def field(self, path: str, ours: Field, theirs: dict[str, Any], versions: list[int]) -> None:
        kind = theirs["type"].removeprefix("[]")
        self.say(path, "type", ours.kind, kind if kind in _TYPES else STRUCT)
        self.say(path, "array", ours.is_array, theirs["type"].startswith("[]"))
        inside = [v for v in _range(_versions(theirs), self.within) if v in versions]
        self.say(path, "versions", _ours(ours.versions, versions), inside)
        nullable = [v for v in _range(theirs.get("nullableVersions"), self.within) if v in inside]
        self.say(path, "nullable", _ours(ours.nullable, inside), nullable)
        self.say(path, "tag", ours.tag, theirs.get("tag"))
        if ours.tag is not None:
            self.say(path, "tagged", inside, [v for v in _range(theirs["taggedVersions"], self.within) if v in inside])
        classic = "flexibleVersions" in theirs and not _range(theirs["flexibleVersions"], self.within)
        self.say(path, "classic", ours.is_classic, classic)
        default = _default_of(theirs, ours.kind)
        if default != "":
            self.say(path, "default", ours.default, default)
        if inside != versions:
            self.say(path, "ignorable", ours.is_ignorable, bool(theirs.get("ignorable")))
        if ours.struct is not None:
            fields = theirs.get("fields") or self.common.get(kind, [])
            self.struct(path, ours.struct, fields, inside)


def differences(version: str) -> list[str]:
    """Return every difference from the schemas of this version of Kafka, over the versions that both have.

    A tagged field that an older Kafka does not have is not a difference.
    """
    theirs, found = published(version), []
    is_older = tuple(map(int, version.split("."))) < _KAFKA
    for name, layout in messages():
        if name not in theirs:
            found.append(f"{name}: Kafka has no such message")
            continue
        newest = _range(theirs[name]["validVersions"], Versions(0, layout.versions.high))
        shared = [v for v in newest if v in layout.versions]
        within = Versions(shared[0], shared[-1])
        comparison = Comparison(name, theirs[name], within, is_older)
        flexible = layout.flexible_from
        comparison.say(
            "", "flexible", [v for v in shared if flexible is not None and v >= flexible], comparison.flexible
        )
        comparison.struct("", layout.section.top, theirs[name]["fields"], shared)
        found += comparison.differences
    return found


def main() -> int:
    found = differences(sys.argv[1] if len(sys.argv) > 1 else "4.3.1")
    print(*found, sep="\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
