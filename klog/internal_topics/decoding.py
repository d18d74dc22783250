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
from klog.internal_topics.tables import Decoded, decode_framed, decode_keyed
from klog.record import Record


def _consumer_offsets(key: bytes | None, value: bytes | None) -> Decoded:
    found = decode_keyed(consumer_offsets.TOPIC, consumer_offsets.TYPES, key, value)
    if found.type == "group_metadata" and found.value is not None:
        consumer_offsets.with_members_decoded(found.value)
    return found


_DECODERS: Final[dict[str, Callable[[bytes | None, bytes | None], Decoded]]] = {
    consumer_offsets.TOPIC: _consumer_offsets,
    **{
        module.TOPIC: partial(decode_keyed, module.TOPIC, module.TYPES)
        for module in (transaction_state, share_group_state)
    },
    cluster_metadata.TOPIC: lambda key, value: decode_framed(cluster_metadata.TOPIC, cluster_metadata.TYPES, value),
    remote_log_metadata.TOPIC: lambda key, value: decode_framed(
        remote_log_metadata.TOPIC, remote_log_metadata.TYPES, value
    ),
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
