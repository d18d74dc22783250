"""The offsets of a stream: {"topic":{"0":266}}, one number per partition, the offset of the next record. Pure.

This is the form of Spark's Kafka source (JsonUtils.partitionOffsets), so that people can read a checkpoint, and a query
can be moved between format("kafka") and format("klog") with its checkpoint.

  F1  Spark compares offsets as text: the same offsets in another order would be new data, batch after batch, without
      end. `to_json` is the only place that makes them: topics sorted, partitions in numeric order, plain integers.
  F2  Nothing but offsets is in them: another key would be taken for a topic by the Kafka source.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from operator import attrgetter

from klog.spark.bounds import TopicPartition

Offsets = dict[TopicPartition, int]

_EXAMPLE = '{"topicA":{"0":23,"1":0}}'
_INT64_MAX = (1 << 63) - 1


def to_json(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """Return what Spark writes to the checkpoint (F1)."""
    return {
        topic: {str(pair.partition): int(offsets[pair]) for pair in pairs}
        for topic, pairs in groupby(sorted(offsets), attrgetter("topic"))
    }


def from_json(document: object) -> Offsets:
    """Return the offsets of a checkpoint. Raises ValueError if it is not that of a Kafka or klog source."""
    offsets: Offsets = {}
    if not isinstance(document, dict):
        raise _invalid(document)
    for topic, partitions in document.items():
        if not isinstance(partitions, dict):
            raise _invalid(document)
        for number, offset in partitions.items():
            if not (number.isascii() and number.isdigit()) or type(offset) is not int or not 0 <= offset <= _INT64_MAX:
                raise _invalid(document)
            offsets[TopicPartition(topic, int(number))] = offset
    return offsets


def _invalid(document: object) -> ValueError:
    return ValueError(
        f"the checkpoint holds the offsets {document!r}, but klog's look like {_EXAMPLE}: this is the checkpoint of "
        f"another source; give the query its own checkpointLocation"
    )
