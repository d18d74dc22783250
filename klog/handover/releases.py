"""What each release of Kafka writes when it formats a directory: the levels of its features, and versions of records.

Kafka: Feature, MetadataVersion, `kafka-storage format`; tests/interop/test_handover.py compares them.
"""

from __future__ import annotations

from typing import Final

from klog.values import dataclass

_METADATA: Final = "metadata.version"
_ELIGIBLE: Final = "eligible.leader.replicas.version"


@dataclass(frozen=True, slots=True)
class Release:
    """features: name → level, in the order in which Kafka writes them."""

    name: str
    features: dict[str, int]
    partition_record: int = 2
    register_broker_record: int = 3

    @property
    def metadata_version(self) -> int:
        """The level of metadata.version."""
        return self.features[_METADATA]

    @property
    def shrinks_isr(self) -> bool:
        """True if the last replica leaves the ISR when it stops, and stays eligible as leader (KIP-966)."""
        return self.features.get(_ELIGIBLE, 0) > 0


def _release(name: str, metadata_version: int, **others: int) -> Release:
    levels = {feature.replace("_", ".") + ".version": level for feature, level in others.items()}
    return Release(name, {_METADATA: metadata_version, **levels})


RELEASES: Final[dict[str, Release]] = {
    each.name: each
    for each in (
        _release("4.0", 25, group=1, transaction=2),
        _release("4.1", 27, eligible_leader_replicas=1, group=1, transaction=2),
        _release("4.2", 29, eligible_leader_replicas=1, group=1, share=1, streams=1, transaction=2),
        _release("4.3", 30, eligible_leader_replicas=1, group=1, share=1, streams=1, transaction=2),
    )
}


def release(kafka_version: str) -> Release:
    """Return the release of a version, such as "4.1" or "4.1.0". Raises ValueError for one that klog does not know."""
    found = RELEASES.get(".".join(kafka_version.split(".")[:2]))
    if found is None or not all(part.isdecimal() for part in kafka_version.split(".")):
        raise ValueError(f"kafka_version={kafka_version!r}: choose from {', '.join(RELEASES)}")
    return found
