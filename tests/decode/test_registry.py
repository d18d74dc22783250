"""Schemas by id, read from the registry's topic and from a file."""

from __future__ import annotations

import json
from typing import Any

import pytest

from klog.decode import Schema, from_file, from_records


def key(subject: str, version: int, keytype: str = "SCHEMA") -> bytes:
    return json.dumps({"keytype": keytype, "subject": subject, "version": version, "magic": 1}).encode()


def value(number: int, schema: str = '"int"', **more: Any) -> bytes:
    return json.dumps({"subject": "s", "version": 1, "id": number, "schema": schema, "deleted": False, **more}).encode()


def test_the_newest_version_of_a_subject_is_the_highest_that_is_not_deleted() -> None:
    found = from_records(
        [
            (key("s", 1), value(10)),
            (key("s", 10), value(13, deleted=True)),
            (key("s", 2), value(11)),
            (key("s", 9), value(12)),
            (key("t", 1), value(12)),
        ],
        "here",
    )
    assert found.newest == {"s": 12, "t": 12}
    assert sorted(found.by_id) == [10, 11, 12, 13]  # a topic may still contain values of a deleted version


def test_the_last_record_of_a_key_counts() -> None:
    """A compacted topic may still contain older records of the key."""
    found = from_records(
        [
            (key("s", 1), value(1)),
            (key("s", 1), value(1, deleted=True)),
            (key("t", 1), value(2)),
            (key("t", 1), None),
            (key("u", 1), value(3)),
            (key("u", 2), value(4)),
            (key("u", 0, "DELETE_SUBJECT"), json.dumps({"subject": "u", "version": 2}).encode()),
            (key("u", 3), value(5)),
            (key("v", 1), value(6)),
            (key("v", 0, "DELETE_SUBJECT"), json.dumps({"subject": "v", "version": 1}).encode()),
        ],
        "here",
    )
    assert found.newest == {"u": 5}
    assert sorted(found.by_id) == [1, 3, 4, 5, 6]
    with pytest.raises(ValueError, match="schema id 2 is not in here; add it there"):
        found.of(2)


def test_schemas_of_other_types_are_known_by_name() -> None:
    found = from_records([(key("s", 1), value(1, "message M {}", schemaType="PROTOBUF"))], "here")
    assert found.newest == {"s": 1}
    with pytest.raises(ValueError, match="schema 1 is of type PROTOBUF, not AVRO"):
        found.of(1)


@pytest.mark.parametrize("kind", ["AVRO", "PROTOBUF"])
def test_ids_are_those_of_the_default_context(kind: str) -> None:
    """Each context of a registry has its own ids, from 1 on."""
    records = [
        (key(":.east:1-value", 1), value(1, '"string"', schemaType=kind)),
        (key(":.east:t-value", 1), value(2, '"string"')),
        (key("1-value", 1), value(1, '"int"')),
    ]
    for given in (records, records[::-1]):
        found = from_records(given, "here")
        assert found.of(1).text == '"int"' and found.of(2).text == '"string"'
        assert found.newest == {":.east:1-value": 1, ":.east:t-value": 2, "1-value": 1}


def test_references_come_before_the_schemas_that_use_them() -> None:
    def refers(*subjects: str) -> list[dict[str, Any]]:
        return [{"name": f"n.{subject}", "subject": subject, "version": 1} for subject in subjects]

    found = from_records(
        [
            (key("d", 1), value(4, "D", references=refers("b", "c", "gone"))),
            (key("b", 1), value(2, "B", references=refers("a"))),
            (key("c", 1), value(3, "C", references=[*refers("a", "b"), None, {"subject": [], "version": 1}])),
            (key("a", 1), value(1, "A")),
            (key("x", 1), value(5, "X", references=refers("y"))),
            (key("y", 1), value(6, "Y", references=refers("x"))),
        ],
        "here",
    )
    assert found.by_id[4] == Schema("D", ("A", "B", "C"))
    assert set(found.by_id[5].references) == {"X", "Y"}  # a cycle ends


def test_other_records_are_left_out() -> None:
    records: list[tuple[bytes | None, bytes | None]] = [
        (None, b""),
        (b"{", b"{"),
        (b"\xff", b"[]"),
        (b"[" * 100_000, b""),
        (b'{"keytype":"NOOP","magic":0}', None),
        (b'{"keytype":"CONFIG","subject":null,"magic":0}', b'{"compatibilityLevel":"NONE"}'),
        (key("s", 1), b'{"id":"1","schema":"x"}'),
        (key("s", 2), value(2)),
        (b'{"keytype":"SCHEMA","subject":"s","version":true}', value(3)),
        (b'{"keytype":"SCHEMA","subject":["s"],"version":1}', value(3)),
    ]
    assert sorted(from_records(records, "here").by_id) == [2]


@pytest.mark.parametrize("schema", [{"type": "int"}, '{"type": "int"}', "int", '"int"', ["null", "int"]])
def test_a_file_has_schemas_as_json_or_as_text(schema: Any) -> None:
    found = from_file(json.dumps({"7": schema}), "file")
    assert json.loads(found.of(7).text) == (
        json.loads(schema) if isinstance(schema, str) and schema != "int" else schema
    )
    with pytest.raises(ValueError, match="schema id 8 is not in file"):
        found.of(8)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"a": "int"}', "[" * 100_000, "\udc80"])
def test_other_files_raise(text: str) -> None:
    with pytest.raises(ValueError, match="does not have the form"):
        from_file(text, "file")
