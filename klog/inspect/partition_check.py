"""Checks every invariant of one partition directory: segments in order, batches in order, each byte of .log once.

  L1  every byte of .log belongs to a batch with a valid frame, checksum and records
  L2  offsets rise from batch to batch and across segments, and are in the segment's range
  L3  only compaction may remove offsets: below the cleaner's checkpoint, or in a log with other signs of compaction (a
      batch with missing records, a delete horizon, three or more gaps: a follower copies its leader's gaps). Gaps
      between the segments of a topic without `compact` are lost segments, however many, unless klog-gaps has them
  L4  the checkpoints of the log.dir are not beyond the log end; after a clean stop the recovery point is the log end.
      A truncation inside a batch and a crash leave a high watermark and leader epochs beyond the last batch: notes
  L5  there is no file that a start would delete or rename

Indexes are read before their .log: if the log is being written, they cannot hold more than it does.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from klog.errors import CorruptBatch, CorruptData
from klog.inspect.batches import Broken, Examined, Found, Legacy, batch_at, check_batches, scan
from klog.inspect.entries import (
    ProducerEntry,
    TxnEntry,
    parse_offset_index,
    parse_snapshot,
    parse_time_index,
    parse_txn_index,
)
from klog.inspect.files import FileName, ReadOnlyFile, classify, names_in, read_small
from klog.inspect.index_checks import OffsetIndexCheck, TimeIndexCheck, check_shape
from klog.inspect.replay import Abort, EpochCheck, ProducerReplay, check_txn_index
from klog.inspect.texts import parse_epochs, parse_gaps, parse_partition_metadata
from klog.internal_topics.names import INTERNAL_TOPICS
from klog.log.directory import gaps
from klog.report import Kind, Report
from klog.segment.names import GAPS
from klog.values import dataclass

GAPS_OF_COMPACTION = 3
BETWEEN_SEGMENTS = "between segments"


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts about a partition from the files of its log.dir; None if unknown, or if it is in no log.dir."""

    clean: bool | None = None
    recovery_point: int | None = None
    log_start: int | None = None
    deleted_to: int = 0  # the log start of the open log, which may be ahead of the checkpoint
    high_watermark: int | None = None
    cleaned_to: int | None = None
    topic_id: str | None = None
    is_topic: bool = False  # of a KRaft broker or in klog-topics.json: so it must have a partition.metadata
    compacts: bool | None = None  # by klog-topics.json; an interrupted cleaning leaves gaps, but no checkpoint


def check_snapshot(report: Report, path: str) -> None:
    """Check a snapshot of the metadata log, such as bootstrap.checkpoint."""
    try:
        with ReadOnlyFile(path, scan=True) as file:
            for error in check_batches(file):
                report.add_error(error, path)
    except CorruptData as error:  # not a regular file, or a read error
        report.add_error(error, path)
    except FileNotFoundError:
        pass  # removed since the directory was listed


class PartitionCheck:
    """One check of one directory; read-only. One thread. examined: .log files whose damage is known, by path."""

    def __init__(
        self,
        report: Report,
        path: str,
        facts: Facts,
        progress: Callable[[int], None] | None = None,
        examined: Mapping[str, Examined] | None = None,
    ) -> None:
        self._report, self._path, self._facts = report, path, facts
        self._examined = examined or {}
        self._progress = progress or (lambda size: None)
        self._log_start = max(facts.log_start or 0, facts.deleted_to)
        self._expected: int | None = None  # next offset after the batches so far
        self._gaps: list[tuple[str, int, int, int, str]] = []  # path, position, from, to, what
        self._compacted = os.path.basename(os.path.abspath(path)).rpartition("-")[0] in INTERNAL_TOPICS
        self._lost = False  # set after bytes without a frame: their offsets may be missing, too
        self._exact = 0
        self._later: list[tuple[OffsetIndexCheck, int]] = []
        self._snapshots: list[tuple[int, str, list[ProducerEntry]]] = []
        self._replay = ProducerReplay([], 0)

    def run(self) -> None:
        """Check everything."""
        names = names_in(self._path)
        self._leftovers(names)
        live = {name: classify(name) for name in names}
        bases = [
            n.base_offset for n in live.values() if n.kind == "log" and n.leftover is None and n.base_offset is not None
        ]
        logs = {base: f"{base:020d}.log" for base in bases if f"{base:020d}.log" in live}
        for name, what in live.items():
            if what.leftover or what.base_offset is None:
                continue
            if what.kind in ("index", "timeindex", "txnindex") and what.base_offset not in logs:
                self._add("leftover", name, "an index without a .log, which was deleted or lost")
            if what.kind == "log" and not name.endswith(".log"):
                check_snapshot(self._report, self._file(name))
        self._read_snapshots(live)
        if GAPS in live:
            self._read_gaps()
        epochs = self._metadata(live, bool(logs))
        seeded = self._seed(min(logs)) if logs else []
        # The first leader epoch begins at a log start that may have been lost in a crash.
        self._replay = ProducerReplay(seeded, max(self._log_start, epochs[0][1] if epochs else 0))
        epoch_check = EpochCheck(self._report, self._file("leader-epoch-checkpoint"), epochs, self._log_start)
        newest = max(logs, default=None)
        for base in sorted(logs):
            try:
                self._segment(base, live, epoch_check, last=base == newest)
            except FileNotFoundError:  # removed since the directory was listed, by retention: the log begins later
                self._replay.gap()
                self._expected = None
            except CorruptData as error:  # not a regular file, or a read error
                self._lost = True
                self._replay.gap()
                self._report.add_error(error, self._file(logs[base]))
        self._check_gaps()
        self._check_later()
        end = self._expected if logs else self._log_start  # without a segment an open begins the log there
        if end is not None:
            self._ends(end, epochs)

    def _file(self, name: str) -> str:
        return os.path.join(self._path, name)

    def _add(
        self, kind: Kind, name: str, message: str, *, position: int | None = None, offset: int | None = None
    ) -> None:
        self._report.add(kind, self._file(name), message, position=position, offset=offset)

    # ---- names and small files ---------------------------------------------------------------------------------

    def _leftovers(self, names: list[str]) -> None:
        for name in names:
            what = classify(name)
            if what.leftover == "deleted" and what.kind != "unknown":
                self._report.note(self._file(name), _LEFTOVER[what.leftover])
            elif what.leftover is not None and what.kind != "unknown":
                self._add("leftover", name, _LEFTOVER[what.leftover])
            elif what.kind == "misnamed":
                self._add("leftover", name, "not the name of a segment's file (20 digits); Kafka refuses or ignores it")

    def _read_snapshots(self, live: dict[str, FileName]) -> None:
        for name in live:
            what = classify(name)
            if what.kind != "snapshot" or what.leftover or what.base_offset is None:
                continue
            try:
                entries = parse_snapshot(read_small(self._file(name), scan=True), self._file(name))
                self._snapshots.append((what.base_offset, self._file(name), entries))
            except CorruptData as error:
                self._report.add_error(error, self._file(name))
            except FileNotFoundError:
                pass  # removed since the directory was listed
        self._snapshots.sort()

    def _read_gaps(self) -> None:
        """Report a file that gaps.read() takes for one without gaps."""
        try:
            parse_gaps(read_small(self._file(GAPS)), self._file(GAPS))
        except CorruptData as error:
            self._report.add_error(error, self._file(GAPS))

    def _seed(self, base: int) -> list[ProducerEntry] | None:
        if base == 0:
            return []
        return next((entries for offset, _, entries in self._snapshots if offset == base), None)

    def _metadata(self, live: dict[str, FileName], started: bool) -> list[tuple[int, int]] | None:
        name = "partition.metadata"
        if name in live:
            try:
                _, topic_id = parse_partition_metadata(read_small(self._file(name), scan=True), self._file(name))
                if self._facts.topic_id not in (None, topic_id):
                    self._add(
                        "checkpoint", name, f"topic id {topic_id}, expected {self._facts.topic_id} by klog-topics.json"
                    )
            except CorruptData as error:
                self._report.add_error(error, self._file(name))
        elif self._facts.is_topic:
            self._add("checkpoint", name, "missing; a Kafka broker does not serve a partition without its topic id")
        name = "leader-epoch-checkpoint"
        if name not in live:
            if started:
                self._add("epoch", name, "missing; the next open rebuilds it from the batches")
            return None
        try:
            return parse_epochs(read_small(self._file(name), scan=True), self._file(name))
        except CorruptData as error:
            self._report.add_error(error, self._file(name))
            return None

    # ---- segments ----------------------------------------------------------------------------------------------

    def _segment(self, base: int, live: dict[str, FileName], epochs: EpochCheck, *, last: bool) -> None:
        path = self._file(f"{base:020d}.log")
        closed = not last or self._facts.clean is True
        with ReadOnlyFile(path, scan=True) as file:
            offsets = self._offset_check(base, live, file)
            times = self._time_check(base, live, file)
            txns = self._txn_entries(base, live)
            self._begin(path, base)
            aborts: list[Abort] = []
            for item in scan(file, examined=self._examined.get(path)):
                self._report.bytes += item.end - item.position
                self._progress(item.end - item.position)
                if isinstance(item, Broken):
                    self._broken(item, path, last, offsets, times)
                elif isinstance(item, Legacy):
                    self._legacy(item, path, offsets, times)
                else:
                    self._found(item, path, base, epochs, offsets, times, aborts)
        self._report.segments += 1
        if self._expected is None or self._expected < base:
            self._expected = base
        if offsets is not None:
            offsets.finish()
            self._exact += offsets.exact
            self._later += [(offsets, number) for number in range(len(offsets.later))]
        if times is not None:
            times.finish(closed=closed)
        if txns is not None:
            check_txn_index(
                self._report,
                self._file(f"{base:020d}.txnindex"),
                path,
                txns,
                aborts,
                complete=self._replay.complete,
                base_offset=base,
                next_offset=self._expected,
                log_start=self._log_start,
            )

    def _begin(self, path: str, base: int) -> None:
        """Begin a segment: its base offset must be the end of the one before."""
        expected = self._expected
        self._expected = base
        if expected is not None and base <= (self._facts.log_start or 0):
            self._replay = ProducerReplay(None, 0)  # a recovery ignores the producers of segments below the log start
        if expected is None or expected == base:
            return
        if expected > base:
            self._report.add(
                "offset_order",
                path,
                f"the segment begins at {base}, the one before ends at {expected}",
                position=0,
                offset=base,
            )
        elif (expected, base) not in gaps.read(self._path):
            self._gap(path, 0, expected, base, BETWEEN_SEGMENTS)

    def _found(
        self, item: Found, path: str, base: int, epochs: EpochCheck, offsets: OffsetIndexCheck | None,
        times: TimeIndexCheck | None, aborts: list[Abort],
    ) -> None:  # fmt: skip
        batch = item.batch
        if item.error is not None:
            self._report.add_error(item.error, path)
            self._damaged(item.position, item.end, offsets, times)
            # The frame is valid, so its offsets most likely are; use them only if they fit.
            if self._expected is not None and batch.base_offset == self._expected:
                self._expected = batch.next_offset
            return
        self._report.batches += 1
        self._report.records += batch.count
        expected = self._expected if self._expected is not None else base
        if batch.base_offset < expected:
            self._report.add(
                "offset_order",
                path,
                f"the batch begins at offset {batch.base_offset}, expected {expected} or above",
                position=item.position,
                offset=batch.base_offset,
            )
        elif batch.base_offset > expected:
            self._gap(path, item.position, expected, batch.base_offset, "between batches")
        if batch.last_offset - base > 2**31 - 1:
            self._report.add(
                "offset_order",
                path,
                f"offset {batch.last_offset} is more than 2147483647 above the segment's base",
                position=item.position,
                offset=batch.last_offset,
            )
        if batch.count != batch.last_offset - batch.base_offset + 1:
            self._compacted = True
            self._replay.gap()
        if batch.delete_horizon_ms is not None:
            self._compacted = True
        self._check_snapshots(batch.base_offset)
        epochs.batch(path, item.position, batch, complete=not self._gaps and not self._compacted)
        if offsets is not None:
            offsets.batch(item.position, batch)
        if times is not None:
            times.batch(item.position, batch)
        abort = self._replay.batch(item.position, batch)
        if abort is not None:
            aborts.append(abort)
        self._expected = max(expected, batch.next_offset)
        self._lost = False

    def _broken(
        self, item: Broken, path: str, last: bool, offsets: OffsetIndexCheck | None, times: TimeIndexCheck | None
    ) -> None:
        self._damaged(item.position, item.end, offsets, times)
        self._lost = True
        error, length = item.error, item.end - item.position
        if item.torn and last:
            what = "zeros" if item.zeros else "bytes"
            message = f"{length} {what} at the end are not a batch: {error.reason}. The next open truncates a torn tail"
        elif item.torn:
            message = f"{length} bytes at the end of a closed segment are not a batch: {error.reason}"
        else:
            message = f"{length} bytes are not a batch: {error.reason}. The next valid batch begins at {item.end}"
        self._report.add_error(
            CorruptBatch(message, path=path, position=item.position, offset=error.offset, kind=error.kind), path
        )

    def _damaged(self, position: int, end: int, offsets: OffsetIndexCheck | None, times: TimeIndexCheck | None) -> None:
        """Skip the checks of [position, end), whose content is unknown."""
        self._replay.gap()
        if offsets is not None:
            offsets.damaged(position, end)
        if times is not None:
            times.damaged()

    def _legacy(self, item: Legacy, path: str, offsets: OffsetIndexCheck | None, times: TimeIndexCheck | None) -> None:
        self._damaged(item.position, item.end, offsets, times)
        self._report.add_error(item.error, path)
        if self._expected is not None and item.offset >= self._expected:
            self._expected = item.offset + 1

    # ---- the other files of a segment ------------------------------------------------------------------------------

    def _offset_check(self, base: int, live: dict[str, FileName], file: ReadOnlyFile) -> OffsetIndexCheck | None:
        name = f"{base:020d}.index"
        if name not in live:
            if file.size:  # a broker creates it with the first append
                self._add("index", name, "missing; the next open rebuilds it")
            return None
        try:
            data = read_small(self._file(name), scan=True)
        except CorruptData as error:
            self._report.add("index", self._file(name), error.reason)
            return None
        parsed = parse_offset_index(data, base)
        check_shape(self._report, "index", self._file(name), parsed, 8, len(data))
        self._untrimmed("index", name, parsed.tail, 8)
        return OffsetIndexCheck(self._report, self._file(name), parsed.entries)

    def _time_check(self, base: int, live: dict[str, FileName], file: ReadOnlyFile) -> TimeIndexCheck | None:
        name = f"{base:020d}.timeindex"
        if name not in live:
            if file.size:  # a broker creates it with the first append
                self._add("timeindex", name, "missing; the next open rebuilds it")
            return None
        try:
            data = read_small(self._file(name), scan=True)
        except CorruptData as error:
            self._report.add("timeindex", self._file(name), error.reason)
            return None
        parsed = parse_time_index(data, base)
        check_shape(self._report, "timeindex", self._file(name), parsed, 12, len(data))
        self._untrimmed("timeindex", name, parsed.tail, 12)

        def has_record(position: int, offset: int, timestamp: int) -> bool:
            return _has_record(file, position, offset, timestamp)

        return TimeIndexCheck(self._report, self._file(name), parsed.entries, has_record)

    def _untrimmed(self, kind: Kind, name: str, tail: int, entry_bytes: int) -> None:
        if self._facts.clean and tail >= entry_bytes:
            self._add(
                kind,
                name,
                f"{tail} unused bytes, although the log.dir was stopped cleanly: Kafka would read them as entries",
            )

    def _txn_entries(self, base: int, live: dict[str, FileName]) -> list[TxnEntry] | None:
        name = f"{base:020d}.txnindex"
        if name not in live:
            return []
        try:
            return parse_txn_index(read_small(self._file(name), scan=True), self._file(name))
        except CorruptData as error:
            self._report.add("txnindex", self._file(name), error.reason, position=error.position)
            return None

    def _check_snapshots(self, offset: int) -> None:
        """Check the snapshots that were taken at or below the next batch's first offset."""
        while self._snapshots and self._snapshots[0][0] <= offset:
            at, path, entries = self._snapshots.pop(0)
            self._replay.check_snapshot(self._report, path, at, entries)

    # ---- at the end --------------------------------------------------------------------------------------------

    def _gap(self, path: str, position: int, start: int, stop: int, what: str) -> None:
        self._replay.gap()
        if self._lost:  # already reported, with the bytes that are not a batch
            self._lost = False
        elif len(self._gaps) < 1000:
            self._gaps.append((path, position, start, stop, what))

    def _check_gaps(self) -> None:
        cleaned_to = self._facts.cleaned_to
        signs = self._compacted or self._facts.compacts
        many = len(self._gaps) >= GAPS_OF_COMPACTION
        for path, position, start, stop, what in self._gaps:
            # The engine refuses a gap between segments by the policy alone: several lost segments are not a compaction.
            by_policy = what == BETWEEN_SEGMENTS and self._facts.compacts is False
            if signs or (many and not by_policy) or (cleaned_to is not None and stop <= cleaned_to):
                continue
            self._report.add(
                "gap",
                path,
                f"offsets {start} to {stop - 1} are missing {what}, and this log was not compacted",
                position=position,
                offset=start,
            )

    def _check_later(self) -> None:
        if len(self._later) == 1 and self._exact:
            check, number = self._later[0]
            check.lone(check.later[number])

    def _ends(self, end: int, epochs: list[tuple[int, int]] | None) -> None:
        self._check_snapshots(end)
        for offset, path, _ in self._snapshots:
            self._report.add(
                "snapshot", path, f"a snapshot of offset {offset}, but the log ends at {end}", offset=offset
            )
        for epoch, start in epochs or ():
            if start > end:
                self._report.note(
                    self._file("leader-epoch-checkpoint"),
                    f"epoch {epoch} from {start}, but the log ends at {end}: a leader without a record there, or one "
                    "whose records were lost with a crash. The next open drops it",
                    kind="epoch",
                    offset=start,
                )
        root = os.path.dirname(os.path.abspath(self._path))
        for name, value in (
            ("recovery-point-offset-checkpoint", self._facts.recovery_point),
            ("log-start-offset-checkpoint", self._facts.log_start),
            ("cleaner-offset-checkpoint", self._facts.cleaned_to),
        ):
            if value is not None and value > end:
                self._report.add(
                    "checkpoint",
                    os.path.join(root, name),
                    f"{os.path.basename(self._path)} at {value}, but its log ends at {end}",
                    offset=value,
                )
        high = self._facts.high_watermark
        if high is not None and high > end:
            self._report.note(
                os.path.join(root, "replication-offset-checkpoint"),
                f"{os.path.basename(self._path)} at {high}, but its log ends at {end}. The next start lowers it",
                kind="checkpoint",
                offset=high,
            )
        point = self._facts.recovery_point
        if self._facts.clean and point is not None and point < end:
            self._report.add(
                "checkpoint",
                os.path.join(root, "recovery-point-offset-checkpoint"),
                f"{os.path.basename(self._path)} at {point} after a clean stop, but its log ends at {end}",
                offset=point,
            )


_LEFTOVER = {
    "deleted": "marked for deletion",
    "cleaned": "left by an unfinished compaction; the next open removes it",
    "swap": "left by a compaction before its last step; the next open finishes it",
    "tmp": "left by an unfinished replacement; the old file is valid",
    "part": "an unfinished snapshot",
}


def _has_record(file: ReadOnlyFile, position: int, offset: int, timestamp: int) -> bool:
    """True if `offset` is the first record of that batch with this time, as Kafka up to 3.7 wrote it."""
    batch = batch_at(file, position)
    return batch is not None and next((r.offset for r in batch if r.timestamp == timestamp), None) == offset
