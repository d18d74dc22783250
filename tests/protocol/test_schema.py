"""The schema language and the generated types. A schema is not loaded before it is used."""

from __future__ import annotations

import subprocess
import sys

import pytest

from klog.protocol.layout import Layout
from klog.protocol.schema import Versions, parse
from tools import message_stubs

TEXT = """
# A message.
request
  id: int32 = -1
  note: string?2+ 1-3 = null ignorable  # a comment
  groups: [Group]
    name: string
    leader: Member 2+ tag 1
      port: uint16
  others: [Group]? 3
"""


def test_a_schema() -> None:
    top = parse(TEXT)["request"].top
    number, note, groups, others = top.fields
    assert (number.name, number.kind, number.default, note.default) == ("id", "int32", -1, None)
    assert (note.versions, note.nullable.low, note.is_ignorable) == (Versions(1, 3), 2, True)
    assert groups.is_array and groups.struct is others.struct and groups.struct is not None
    assert [(field.name, field.tag) for field in groups.struct.fields] == [("name", None), ("leader", 1)]
    code = Layout("Example", parse(TEXT)["request"], Versions(0, 3), 2).compile(2)
    assert [(each.name, each.plain, each.tagged, each.absent) for each in code.structs] == [
        ("request", 3, 0, 1),
        ("Group", 1, 1, 0),
        ("Member", 1, 0, 0),
    ]
    assert [each.element_min for each in code.fields if each.name == "groups"] == [2]


def test_the_versions_of_a_message_that_is_neither_a_request_nor_a_response() -> None:
    found = parse("One 0-4 flexible 2\n  id: int32\n\nTwo 3\n\nrequest\n")
    assert [(name, each.versions, each.flexible) for name, each in found.items()] == [
        ("One", Versions(0, 4), 2),
        ("Two", Versions(3, 3), None),
        ("request", None, None),
    ]
    for line in ("One 0-4 flexible", "One 0-4 flexibel 2", "One x", "One 0 1"):
        with pytest.raises(ValueError, match=f"line 1: {line}: "):
            parse(line)


@pytest.mark.parametrize(
    ("line", "mistake"),
    [
        ("id int32", "line 3: id int32: expected `name: type`"),
        ("id: [int32", "line 3.*expected `name: type`"),
        ("id: int32 3-x", "'3-x' is not a range of versions"),
        ("id: int32 = x", "invalid literal"),
        ("id: int32\n    more: int32", "indented below a field that is not a new struct"),
    ],
)
def test_a_mistake_is_reported_with_its_line(line: str, mistake: str) -> None:
    with pytest.raises(ValueError, match=mistake):
        parse(f"\nrequest\n  {line}\n")


def test_the_types_are_those_of_the_schemas() -> None:
    assert message_stubs.OUTPUT.read_text() == message_stubs.text(), "run python tools/message_stubs.py"


def test_a_schema_is_read_when_its_message_is_used() -> None:
    code = (
        "import klog, sys; assert 'klog.protocol' not in sys.modules; from klog import protocol; "
        "from klog.protocol.layout import load; assert load.cache_info().currsize == 0; "
        "protocol.messages.Metadata; assert load.cache_info().currsize == 1; "
        "assert not {'numpy', 'pyarrow', 'click'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
