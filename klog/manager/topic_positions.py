"""Positions in a topic: one for each of its partitions, or {partition: position}."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TypeAlias

from klog.arguments import whole
from klog.errors import UnknownTopicOrPartition
from klog.log.read.positions import Position, checked_position

TopicPosition: TypeAlias = "Position | Mapping[int, Position]"


def check_positions(name: str, value: TopicPosition | None, topic: str, partitions: Collection[int]) -> None:
    """Raise TypeError for an invalid type in a mapping, UnknownTopicOrPartition for an unknown partition."""
    if not isinstance(value, Mapping):
        return
    for number, position in value.items():
        if whole(f"a partition in {name}", number) not in partitions:
            raise UnknownTopicOrPartition(
                f"{name}={value!r}: topic {topic!r} has no partition {number}; it has {sorted(partitions)}"
            )
        checked_position(f"{name}[{number}]", position)


def of_partition(value: TopicPosition | None, partition: int) -> Position | None:
    """The position in a partition; None if there is none for it."""
    return value.get(partition) if isinstance(value, Mapping) else value
