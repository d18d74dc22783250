from collections.abc import Sequence

from typing_extensions import disjoint_base

from klog.log.state._producer_entry import ProducerEntry
from klog.log.state.high_watermark_rules import OffsetMetadata
from klog.log.state.transactions import Transactions
from klog.segment import Segment, SegmentDir

@disjoint_base
class ProducerFields:
    end_offset: int
    entries: dict[int, ProducerEntry]
    _transactions: Transactions
    unstable_at: int

@disjoint_base
class TransactionFields:
    first_unstable: OffsetMetadata | None

@disjoint_base
class EpochFields:
    entries: list[tuple[int, int]]

@disjoint_base
class DirectoryFields:
    segment_dir: SegmentDir | None

@disjoint_base
class FinderFields:
    shown: bool
    _known: tuple[Sequence[Segment] | None, dict[int, int]]
