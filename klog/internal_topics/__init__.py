"""Records of Kafka's internal topics as fields: takes a Record, returns its type, version and fields; and the reverse.

decode(record, topic)   a record of __consumer_offsets, __transaction_state, __cluster_metadata,
                        __share_group_state or __remote_log_metadata as a Decoded
encode_key, encode_value    the bytes of such a record
TOPICS                  the names of these topics
"""

from typing import TYPE_CHECKING

from klog import lazy

if TYPE_CHECKING:
    from klog.internal_topics.decoding import TOPICS, decode
    from klog.internal_topics.encoding import encode_key, encode_value
    from klog.internal_topics.tables import Decoded

__all__ = ["TOPICS", "Decoded", "decode", "encode_key", "encode_value"]
_PLACES = {
    "Decoded": "tables",
    "TOPICS": "decoding",
    "decode": "decoding",
    "encode_key": "encoding",
    "encode_value": "encoding",
}

__getattr__ = lazy.attributes(globals(), _PLACES)


def __dir__() -> list[str]:
    return sorted(__all__)
