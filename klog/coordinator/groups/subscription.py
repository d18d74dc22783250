"""The topics in a consumer's metadata: version:i16  topics:[string] ...

Every version begins with these fields, and nothing else concerns the coordinator. So what follows is not read, in
whatever version. Kafka: ClassicGroup.computeSubscribedTopics.
"""

from __future__ import annotations

import struct

_HEAD = struct.Struct(">hi")
_SIZE = struct.Struct(">h")


def subscribed_topics(metadata: bytes) -> list[str] | None:
    """The topics; None for bytes that are not a consumer's."""
    try:
        version, count = _HEAD.unpack_from(metadata)
        at, topics = _HEAD.size, []
        if version < 0 or not 0 <= count <= len(metadata):
            return None
        for _ in range(count):
            (size,) = _SIZE.unpack_from(metadata, at)
            end = at + _SIZE.size + size
            if size < 0 or end > len(metadata):
                return None
            topics.append(metadata[at + _SIZE.size : end].decode())
            at = end
    except (struct.error, UnicodeDecodeError):
        return None
    return topics
