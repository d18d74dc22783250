"""Names of partition directories: live, deleted, future and stray ones, and the maximum length of a name."""

from __future__ import annotations

import re

import pytest

from klog.log.directory.partition_names import (
    DELETE,
    FUTURE,
    NAME_MAX,
    STRAY,
    parse_directory_name,
    parse_suffixed_name,
    suffixed_name,
)

HEX = "0123456789abcdef0123456789abcdef"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("flights-3", ("flights", 3)),
        ("a.b-c-0", ("a.b-c", 0)),
        ("-x-1", ("-x", 1)),
        ("flights--1", ("flights-", 1)),
        ("t-2147483647", ("t", 2**31 - 1)),
        *(
            (name, None)
            for name in ("", "-", "flights", "flights-", "-0", "flights-x", "flights-1x", "flights-+1",
                         "flights-01", "flights-2147483648", "fl ights-0", "..-0", ".-0", "kafka-logs", ".lock", "é-0",
                         "flights-0 ", "flights-٣", f"{'t' * 250}-0", f"flights-0.{HEX}-delete")
        ),
    ],
)  # fmt: skip
def test_which_names_are_live_partitions(name: str, expected: tuple[str, int] | None) -> None:
    """LL12: topic and partition are split at the last dash; any other name is ignored, where Kafka raises."""
    assert parse_directory_name(name) == expected


@pytest.mark.parametrize("topic", ["flights", "a.b-c", "x-delete"])
@pytest.mark.parametrize("suffix", [DELETE, FUTURE, STRAY])
def test_suffixed_names_give_topic_and_partition(topic: str, suffix: str) -> None:
    """LL12: also if the topic has dots and dashes; a directory with a suffix is not a live partition."""
    name = suffixed_name(topic, 7, suffix)
    assert parse_suffixed_name(name) == (topic, 7, suffix)
    assert parse_directory_name(name) is None


@pytest.mark.parametrize("name", ["flights-7", "flights-7.abc-delete", f"flights-7.{HEX}", f"flights.{HEX}-delete", ""])
def test_other_names_are_not_suffixed_partitions(name: str) -> None:
    assert parse_suffixed_name(name) is None


@pytest.mark.parametrize("length", [1, 100, 208, 209, 210, 249])
def test_a_long_topic_is_shortened(length: int) -> None:
    """LL13: to a name of 255 characters at most, which ends with the partition and 32 characters of its own."""
    name = suffixed_name("t" * length, 12, DELETE)
    assert len(name) <= NAME_MAX == 255
    assert re.fullmatch(r"t+-12\.[0-9a-z]{32}-delete", name)
    assert len(name) == min(255, length + len(f"-12.{HEX}-delete"))
    assert suffixed_name("t" * length, 12, DELETE) != name
