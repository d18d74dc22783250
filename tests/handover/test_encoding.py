"""Records of the metadata log are encoded as Kafka's own classes encode them."""

from __future__ import annotations

import uuid

import pytest

from klog.handover import MetadataRecord
from klog.handover.encoding import encode_value
from klog.internal_topics.cluster_metadata import TOPIC, TYPES
from tests.support.kafka_messages import framed, golden, one, snake


def test_every_type_and_version_has_kafkas_bytes() -> None:
    numbers = {kind.name: number for number, kind in TYPES.items()}
    seen = set()
    for message in golden():
        name = snake(message.kind)
        if name in numbers:
            data = framed(numbers[name], message.version, message.data)
            decoded = one(TOPIC, None, data)
            assert decoded.value is not None
            assert encode_value(MetadataRecord(name, message.version, decoded.value)) == data
            seen.add((name, message.version))
    assert seen == {(kind.name, version) for kind in TYPES.values() for version in range(kind.value.latest + 1)}


def test_an_id_may_be_given_as_text_or_uuid() -> None:
    topic_id = uuid.UUID(int=7 << 100)
    fields = {"name": "t", "topic_id": topic_id}
    first = encode_value(MetadataRecord("topic_record", 0, fields))
    text = one(TOPIC, None, first).value
    assert text is not None and isinstance(text["topic_id"], str)
    assert encode_value(MetadataRecord("topic_record", 0, text)) == first


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (("no_record", 0, {}), "type='no_record' is not a record"),
        (("topic_record", 1, {}), "version=1 of topic_record"),
        (("topic_record", 0, {"name": "t"}), "topic_record: topic_id is missing"),
        (("topic_record", 0, {"name": "t", "topic_id": "short"}), "topic_id: 'short' is not"),
        (("topic_record", 0, {"name": "t", "topic_id": uuid.UUID(int=1), "nmae": 1}), "no field nmae"),
        (("feature_level_record", 0, {"name": "f", "feature_level": 1 << 15}), "feature_level: "),
    ],
)
def test_what_cannot_be_encoded_is_named(record: tuple[str, int, dict[str, object]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        encode_value(MetadataRecord(*record))
