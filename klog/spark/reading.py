"""How tasks read a range: those options of a query that its tasks need."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from klog.values import dataclass, field

if TYPE_CHECKING:
    from klog.decode import Decoder

OnCorrupt = Literal["fail", "skipBatch", "emit"]


@dataclass(frozen=True)
class Reading:
    """How tasks read a range.

    committed: leave out records of aborted transactions. include_control: return control records. on_corrupt: at a
    batch that cannot be read. fail_on_data_loss: if planned offsets are gone. verify_crc: check the checksums. metrics:
    log what a task has read, as a warning. decoders: of the columns key and value that are not read as bytes.
    null_bad_values: what these cannot decode is null instead of an error. log_dirs: where a partition may have moved to
    since the query was planned. in_stream: ranges go on where others end, also inside a batch.
    """

    committed: bool = False
    include_control: bool = False
    on_corrupt: OnCorrupt = "fail"
    fail_on_data_loss: bool = True
    verify_crc: bool = True
    metrics: bool = False
    decoders: Mapping[str, Decoder] = field(default_factory=dict)
    null_bad_values: bool = False
    log_dirs: tuple[str, ...] = ()
    in_stream: bool = False
