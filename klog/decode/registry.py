"""Schemas by id: from the records of a schema registry's topic, or from a JSON file.

    _schemas   key   {"keytype":"SCHEMA","subject":"flights-value","version":1,"magic":1}
               value {"subject":…,"version":…,"id":7,"schema":"…","schemaType":"AVRO","references":[…],"deleted":false}
               null  the version was deleted permanently
    file       {"7": {"type":"record",…}, "8": …}

A version with deleted=true keeps its id, because there are values that were written with it. The newest version of a
subject is the highest one that was not deleted. Of schemas of other types (JSON, PROTOBUF) only id and type are
kept. Each context of a registry has ids of its own: an id that several have is that of the default context.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, TypeGuard

from klog.decode.ddl import DEPTH_MAX
from klog.values import dataclass, field

TOPIC = "_schemas"
Version = tuple[str, int]  # of a subject


@dataclass(frozen=True)
class Schema:
    """An Avro schema. references: the schemas whose names it uses, each after those that it uses itself."""

    text: str
    references: tuple[str, ...] = ()


@dataclass(frozen=True)
class Schemas:
    """by_id: the Avro schemas. newest: subject → id, if subjects are known. other: id → type, of those that are not
    Avro. origin: their source, for error messages."""

    by_id: Mapping[int, Schema]
    newest: Mapping[str, int] = field(default_factory=dict)
    other: Mapping[int, str] = field(default_factory=dict)
    origin: str = "the schemas given"

    def of(self, number: int) -> Schema:
        """Return the schema with an id. Raises ValueError if there is none."""
        if number in self.other:
            raise ValueError(f"schema {number} is of type {self.other[number]}, not AVRO")
        if number not in self.by_id:
            raise ValueError(f"schema id {number} is not in {self.origin}; add it there, and start the query again")
        return self.by_id[number]


def from_file(text: str, origin: str) -> Schemas:
    """Return the schemas of a JSON file. Raises ValueError if it has another form."""
    try:
        return from_mapping(json.loads(text), origin)
    except (ValueError, RecursionError):
        raise ValueError('it does not have the form {"7": {"type": "record", …}, …}: schemas by their ids') from None


def from_mapping(given: Mapping[Any, Any], origin: str) -> Schemas:
    """Return the schemas of a mapping {id: JSON of a schema, or the text of it}. Raises ValueError for another form."""
    try:
        if not isinstance(given, Mapping) or not given:
            raise ValueError
        # A schema may be JSON in a text, as the registry has it; a bare word is a primitive type.
        return Schemas({int(key): Schema(_text(value)) for key, value in given.items()}, origin=origin)
    except (ValueError, TypeError, RecursionError):
        raise ValueError(f"{origin} does not have the form {{7: {{'type': 'record', …}}, …}}: schemas by id") from None


def _text(schema: Any) -> str:
    return schema if isinstance(schema, str) and schema.lstrip()[:1] in ("{", "[", '"') else json.dumps(schema)


def from_records(records: Iterable[tuple[bytes | None, bytes | None]], origin: str) -> Schemas:
    """Return the schemas of the records (key, value) of the registry's topic, in order."""
    versions: dict[Version, dict[str, Any]] = {}
    for key, value in records:
        name, given = _object(key), _object(value)
        subject, version = name.get("subject"), name.get("version")
        if name.get("keytype") == "DELETE_SUBJECT" and _is_int(given.get("version")):
            for (each, number), found in versions.items():
                if each == subject and number <= given["version"]:
                    found["deleted"] = True
        elif name.get("keytype") == "SCHEMA" and isinstance(subject, str) and _is_int(version):
            if _is_int(given.get("id")) and isinstance(given.get("schema"), str):
                versions[subject, version] = given
            elif value is None:
                versions.pop((subject, version), None)
    return _gathered(versions, origin)


def _gathered(versions: Mapping[Version, dict[str, Any]], origin: str) -> Schemas:
    by_id: dict[int, Schema] = {}
    newest: dict[str, int] = {}
    other: dict[int, str] = {}
    for (subject, _), found in sorted(versions.items(), key=lambda item: (not _is_in_context(item[0][0]), item[0])):
        kind = found.get("schemaType") or "AVRO"
        by_id.pop(found["id"], None)
        other.pop(found["id"], None)
        if kind == "AVRO":
            by_id[found["id"]] = Schema(found["schema"], tuple(_references(found, versions, {}, 0).values()))
        else:
            other[found["id"]] = str(kind)
        if found.get("deleted") is not True:
            newest[subject] = found["id"]
    return Schemas(by_id, newest, other, origin)


def _is_in_context(subject: str) -> bool:
    """Is it a subject of another context than the default one, as :.CONTEXT:SUBJECT?"""
    return subject.startswith(":.") and not subject.startswith(":.:")


def _references(
    found: Mapping[str, Any], versions: Mapping[Version, dict[str, Any]], texts: dict[Version, str], depth: int
) -> dict[Version, str]:
    """Add the schemas that `found` refers to, each after those that it refers to. Returns `texts`."""
    references = found.get("references")
    for each in references if isinstance(references, list) and depth < DEPTH_MAX else ():
        pair = _version(each)
        if pair in versions and pair not in texts:
            texts[pair] = ""  # a circular reference ends here
            _references(versions[pair], versions, texts, depth + 1)
            del texts[pair]
            texts[pair] = versions[pair]["schema"]
    return texts


def _version(reference: Any) -> Version:
    given = reference if isinstance(reference, dict) else {}
    subject, version = given.get("subject"), given.get("version")
    return (subject, version) if isinstance(subject, str) and _is_int(version) else ("", 0)


def _object(data: bytes | None) -> dict[str, Any]:
    """Return a JSON object, an empty one for anything else."""
    try:
        found = json.loads(data) if data is not None else None
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _is_int(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)
