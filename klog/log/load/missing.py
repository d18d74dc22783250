"""Records that are missing in the middle of a log, or at its end, as far as other files show it: "strict" refuses to
open.

    X.index or X.timeindex without X.log: the `.log` was removed from outside. klog and a broker rename it to .deleted
    before the indexes

    X.log.deleted in a log that no cleaner has changed: of such a log only the first and the last segments are deleted

    an entry in X.index or X.timeindex, and no batch in X.log

    the same of the last segment, for batches below the recovery point

The first two do not count while a compaction is unfinished, or if the segment before reaches beyond X. Without such a
file nothing distinguishes a lost segment from one whose records were compacted away. A last segment whose `.log` is
gone is left out, as by a broker, with a warning.
"""

from __future__ import annotations

import bisect
import os
from collections.abc import Iterable, Sequence

from klog.errors import CorruptBatch, CorruptLog
from klog.log.directory import gaps
from klog.log.directory._listing import Listing
from klog.log.load.inputs import Inputs
from klog.segment import Segment, names, scan_headers


def refuse_deleted(inputs: Inputs, listing: Listing) -> None:
    """Raise CorruptLog if a segment in the middle is marked for deletion. Called before these files are unlinked."""
    if not inputs.check_gaps or _compacting(listing.unfinished):
        return
    marked = {name.removesuffix(names.DELETED) for name in listing.unfinished if name.endswith(names.DELETED)}
    for base in _lost(inputs, listing, marked, names.LOG):
        intended = any(end <= base < following for end, following in gaps.read(inputs.directory))
        if base >= inputs.cleaned_to and not intended:  # else a truncation has deleted it, before the gap was made
            path = names.file_path(inputs.directory, base, names.LOG)
            raise _missing(path, base, f"{os.path.basename(path)}{names.DELETED} is there: rename it back")


def refuse_orphans(inputs: Inputs, listing: Listing, orphans: Iterable[str], unfinished: list[str]) -> None:
    """Raise CorruptLog if one of these index files without a .log belongs into the middle of the log. unfinished: the
    files that were marked for deletion when the load began."""
    if _compacting(unfinished):
        return
    for suffix in (names.INDEX, names.TIME_INDEX):
        for base in _lost(inputs, listing, orphans, suffix):
            path = names.file_path(inputs.directory, base, names.LOG)
            if os.path.basename(path) + names.DELETED not in unfinished:
                raise _missing(path, base, f"its {suffix} is still there. Restore it from a copy")


def refuse_emptied(inputs: Inputs, segments: Sequence[Segment]) -> None:
    """Raise CorruptLog if one of these closed segments without batches had some. After a crash those above the recovery
    point are left to the recovery: write-back may not have reached them."""
    for segment in segments:
        if not inputs.clean_shutdown and segment.next_offset > inputs.recovery_point:
            return
        try:
            segment.check_end()
        except CorruptBatch as error:
            raise CorruptLog(
                f"the segment that begins at {segment.base_offset} is empty: {error.reason}. Nothing was changed; "
                f'recovery="kafka" opens the log without it',
                path=segment.path,
                position=0,
                offset=segment.base_offset,
                kind="gap",
            ) from None
        finally:
            segment.close()


def refuse_cut_end(inputs: Inputs, segment: Segment) -> None:
    """Raise CorruptLog if the last segment has lost batches below the recovery point: they were on disk. Called before
    its indexes, which show it, are rebuilt."""
    point = inputs.recovery_point
    lost = segment.lost_below(point) if segment.base_offset < point else None
    if lost is not None:
        raise CorruptLog(
            f"the file ends before offset {lost.end}, but its {lost.entry}, and the recovery point is {point}: its "
            f'records were on disk. Nothing was changed. Restore the file from a copy; recovery="kafka" continues '
            f"without them",
            path=segment.path,
            position=segment.size,
            offset=lost.end,
            kind="gap",
        )


def _compacting(unfinished: Iterable[str]) -> bool:
    return any(name.endswith((names.SWAP, names.CLEANED)) for name in unfinished)


def _lost(inputs: Inputs, listing: Listing, found: Iterable[str], suffix: str) -> list[int]:
    """The base offsets of these names between the first and the last segment, where no segment has records."""
    logs, lost = listing.logs, []
    for name in found:
        parsed = names.parse_name(name)
        if parsed is None or parsed[1] != suffix or not logs or not logs[0] < parsed[0] < logs[-1]:
            continue
        at = bisect.bisect_right(logs, parsed[0]) - 1
        if logs[at] != parsed[0] and _end(inputs, logs[at]) <= parsed[0]:
            lost.append(parsed[0])
    return sorted(lost)


def _end(inputs: Inputs, base: int) -> float:
    """The end offset of a segment. Of a damaged one it is not known."""
    with inputs.files.open(names.file_path(inputs.directory, base, names.LOG)) as file:
        scan = scan_headers(file, 0, file.length(), 0, base)
    return float("inf") if scan.reason else scan.next_offset


def _missing(path: str, base: int, step: str) -> CorruptLog:
    return CorruptLog(
        f"the segment that begins at {base} is missing, between others, but {step}. Nothing was changed; "
        f'recovery="kafka" opens the log without it',
        path=path,
        offset=base,
        kind="gap",
    )
