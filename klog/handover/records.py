"""MetadataRecord: a record of Kafka's metadata log, before it is encoded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from klog.internal_topics import cluster_metadata, encode_value
from klog.internal_topics.names import CLUSTER_METADATA
from klog.values import NamedTuple


class MetadataRecord(NamedTuple):
    """A record of the metadata log: its type, such as "topic_record", the version, and its fields by name, as
    klog.internal_topics decodes them. A field that is left out has Kafka's default."""

    type: str
    version: int
    fields: Mapping[str, Any]

    def value(self) -> bytes:
        """Return its value in the log. Raises ValueError and TypeError, which name the field."""
        if all(self.type != kind.name for kind in cluster_metadata.TYPES.values()):
            raise ValueError(f"type={self.type!r} is not a record of {CLUSTER_METADATA}")
        return encode_value(self.type, self.version, **self.fields)
