"""Hands a directory of klog over to a stock Kafka broker, and takes over the directory of one. Takes paths, returns
reports as plain values.

handover(path)       what a KRaft broker needs to start: meta.properties, bootstrap.checkpoint with all topics
adopt(path)          topics of a stopped broker's directory, from its metadata log into klog-topics.json
metadata(path)       the content of a metadata log, as ClusterMetadata
MetadataRecord       a record of that log: handover(extra=...) takes those of ACLs, SCRAM users and quotas
"""

from klog.handover.adopt import adopt
from klog.handover.cluster import ClusterMetadata
from klog.handover.handover import handover
from klog.handover.metadata import metadata
from klog.handover.records import MetadataRecord

__all__ = ["ClusterMetadata", "MetadataRecord", "adopt", "handover", "metadata"]


def __dir__() -> list[str]:
    return sorted(__all__)
