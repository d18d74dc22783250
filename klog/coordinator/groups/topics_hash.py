"""topics_hash: a number that changes when topics are created, deleted, or get partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from klog.security.context import Topics


def topics_hash(topics: Topics, names: Iterable[str]) -> int:
    """A number for the topics of these names with their ids and partitions; 0 if there are none. It is not Kafka's:
    after a handover the first heartbeat of a group raises its epoch, once."""
    lines = [
        f"{name} {topic_id} {topics.partitions(name)}\n"
        for name in sorted(names)
        if (topic_id := topics.topic_id(name)) is not None
    ]
    if not lines:
        return 0
    import hashlib  # loads libcrypto, which takes 3.5 MB

    return int.from_bytes(hashlib.blake2b("".join(lines).encode(), digest_size=8).digest(), signed=True)
