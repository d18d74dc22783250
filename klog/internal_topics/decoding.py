"""decode(record, topic): a record of one of Kafka's internal topics as fields."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from klog import arguments
from klog.arguments import wrong_type
from klog.errors import CorruptData
from klog.internal_topics import (
    cluster_metadata,
    consumer_offsets,
    remote_log_metadata,
    share_group_state,
    transaction_state,
)
from klog.internal_topics.names import (
    CLUSTER_METADATA,
    CONSUMER_OFFSETS,
    REMOTE_LOG_METADATA,
    SHARE_GROUP_STATE,
    TRANSACTION_STATE,
)
from klog.internal_topics.tables import Decoded, decode_framed, decode_keyed
from klog.record import Record


def _consumer_offsets(key: bytes | None, value: bytes | None) -> Decoded:
    found = decode_keyed(CONSUMER_OFFSETS, consumer_offsets.TYPES, key, value)
    if found.type == "group_metadata" and found.value is not None:
        consumer_offsets.with_members_decoded(found.value)
    return found


_DECODERS: Final[dict[str, Callable[[bytes | None, bytes | None], Decoded]]] = {
    CONSUMER_OFFSETS: _consumer_offsets,
    TRANSACTION_STATE: partial(decode_keyed, TRANSACTION_STATE, transaction_state.TYPES),
    SHARE_GROUP_STATE: partial(decode_keyed, SHARE_GROUP_STATE, share_group_state.TYPES),
    CLUSTER_METADATA: lambda _, value: decode_framed(CLUSTER_METADATA, cluster_metadata.TYPES, value),
    REMOTE_LOG_METADATA: lambda _, value: decode_framed(REMOTE_LOG_METADATA, remote_log_metadata.TYPES, value),
}
TOPICS: Final = frozenset(_DECODERS)


def decode(record: Record, topic: str) -> Decoded | None:
    """Return the content of a record of an internal topic; None for a record of another topic, and for a control
    record.

    topic: that of the record. Raises CorruptData, with the offset, for a type or version that is unknown here and for
    invalid bytes.
    """
    if not isinstance(record, Record):
        raise wrong_type("record", record, "a klog.Record")
    decoder = _DECODERS.get(arguments.text("topic", topic))
    if decoder is None or record.is_control:
        return None
    try:
        return decoder(record.key, record.value)
    except ValueError as error:
        raise CorruptData(f"a record of {topic} cannot be decoded: {error}", offset=record.offset) from None
