"""Parses the options that say how keys and values are decoded. Pure; the schemas are resolved by formats.py.

valueFormat, keyFormat := bytes | string | json | confluentAvro
valueSchema, keySchema := DDL or JSON of a Spark schema (json, confluentAvro), JSON of an Avro schema (confluentAvro)
schemas                := a JSON file of Avro schemas by id
onBadValue             := fail | null
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_args

from klog.spark import values
from klog.values import dataclass, field

FORMATS = ("valueFormat", "valueSchema", "keyFormat", "keySchema", "schemas", "onBadValue")
Word = Literal["bytes", "string", "json", "confluentAvro"]
COLUMNS = ("key", "value")


@dataclass(frozen=True)
class Format:
    word: Word = "bytes"
    schema: str | None = None


@dataclass(frozen=True)
class Formats:
    """How `key` and `value` are decoded. schemas: the path of a file. null_bad_values: instead of an error."""

    of: Mapping[str, Format] = field(default_factory=lambda: {column: Format() for column in COLUMNS})
    schemas: str | None = None
    null_bad_values: bool = False


def formats(given: Mapping[str, str]) -> Formats:
    """Return the formats of the options, whose keys are in lower case."""
    found = {column: _format(given, column) for column in COLUMNS}
    words = {each.word for each in found.values()}
    if "schemas" in given and "confluentAvro" not in words:
        raise ValueError("option 'schemas' is for valueFormat=confluentAvro; add that, or leave it out")
    if "onbadvalue" in given and words == {"bytes"}:
        raise ValueError("option 'onBadValue' has no meaning for bytes, which are never bad; add valueFormat")
    bad = values.word(given.get("onbadvalue", "fail"), "onBadValue", ("fail", "null"))
    if given.get("schemas", "file").strip() == "":
        raise ValueError("option 'schemas' is empty; give the path of a JSON file with schemas by their ids")
    return Formats(found, given.get("schemas"), bad == "null")


def _format(given: Mapping[str, str], column: str) -> Format:
    option, schema = f"{column}Format", given.get(f"{column}schema")
    word = values.word(given.get(option.lower(), "bytes"), option, get_args(Word))
    if word == "json" and schema is None:
        raise ValueError(f"option '{option}' = 'json' needs '{column}Schema', such as 'id BIGINT, tags ARRAY<STRING>'")
    if schema is not None and word not in ("json", "confluentAvro"):
        raise ValueError(
            f"option '{column}Schema' has no meaning with {option}={word}; use {option}=json or confluentAvro"
        )
    return Format(word, schema)  # type: ignore[arg-type]
