"""Step 2: a writer is killed by SIGKILL while it appends. All acknowledged records must be found, and no half batch.

C1  every record at or below the last acknowledged offset is read back, byte for byte.
C2  there may be complete records after it: the writer can be killed between the write and its report.
C3  the log ends where its last complete batch ends; recovery truncated the rest and reports its size.
"""

from __future__ import annotations

import random
import tempfile
import time
from pathlib import Path

from klog.demo.child import kill_group, python_module
from klog.demo.demo_directory import FLIGHTS, TELEMETRY
from klog.demo.failure import DemoFailed
from klog.demo.narrator import Narrator, duration, size
from klog.demo.writer import RECORDS_PER_APPEND, report
from klog.manager import LogManager
from klog.progress import Event, Progress
from klog.values import dataclass

SEGMENT_BYTES = 32 << 20
APPENDS_BEFORE_KILL = 20  # at least; a random number below that is added
_APPENDS_MAX = 200  # about 800 MB, if it is not killed


@dataclass(frozen=True, slots=True)
class Kill:
    """What the writer had reported before it died."""

    acknowledged: int
    exit_signal: int


@dataclass(frozen=True, slots=True)
class CrashResult:
    acknowledged: int
    found: int
    batches: int
    lost: int
    seconds: float
    segments_scanned: int
    bytes_truncated: int
    reason: str
    flights_scanned: int
    flights_segments: int


def create_topic(logs: LogManager) -> None:
    logs.create_topic(TELEMETRY, config={"segment.bytes": SEGMENT_BYTES, "retention.ms": -1})


def kill_writer(directory: Path, progress: Progress | None) -> Kill:
    """Start the writer on the closed directory, let it work, and kill it at a random moment."""
    with (
        tempfile.TemporaryFile() as errors,
        python_module("klog.demo.writer", str(directory), TELEMETRY, str(_APPENDS_MAX), stderr=errors) as writer,
    ):
        assert writer.stdout is not None
        acknowledged, reports = 0, 0
        last_report = APPENDS_BEFORE_KILL + random.randrange(APPENDS_BEFORE_KILL)
        for line in writer.stdout:
            acknowledged, reports = int(line) + 1, reports + 1
            if progress is not None and reports <= last_report:
                progress(Event("write", reports * RECORDS_PER_APPEND, last_report * RECORDS_PER_APPEND))
            if reports == last_report:
                _wait_for_growth(directory / f"{TELEMETRY}-0")
                kill_group(writer)  # the loop reads on: reports in the pipe precede the kill
        status = writer.wait()
        if status >= 0:
            errors.seek(0)
            raise DemoFailed(f"the writer ended by itself:\n{errors.read().decode(errors='replace')}")
    return Kill(acknowledged, -status)


def _wait_for_growth(partition: Path) -> None:
    """Wait until the next append is writing: the files are longer than before. At most a second.

    Linux moves the end of a file page by page within one write, and SIGKILL ends a write between two pages. So a kill
    right now often leaves half a batch.
    """
    before, deadline = _log_bytes(partition), time.monotonic() + 1
    while _log_bytes(partition) == before and time.monotonic() < deadline:
        pass


def _log_bytes(partition: Path) -> int:
    return sum(path.stat().st_size for path in partition.glob("*.log"))


def check(logs: LogManager, kill: Kill) -> CrashResult:
    """Read everything back from the reopened directory, and check C1 to C3."""
    log = logs.log(TELEMETRY)
    found = 0
    for record in log.read():
        if record.offset != found or (record.key, record.value) != report(found):
            raise DemoFailed(f"record {found} of {log.path} is not what the writer appended")
        found += 1
    batches = list(log.read().batches())
    if found != log.log_end_offset or (batches and batches[-1].next_offset != found):
        raise DemoFailed(f"{log.path} ends at {log.log_end_offset}, but its last complete record at {found}")
    if found < kill.acknowledged:
        raise DemoFailed(f"{kill.acknowledged} records were acknowledged, {found} are in {log.path}")
    recovery = log.recovery
    flights = [logs.log(FLIGHTS, partition) for partition in logs.topics()[FLIGHTS]]
    return CrashResult(
        acknowledged=kill.acknowledged,
        found=found,
        batches=len(batches),
        lost=max(0, kill.acknowledged - found),
        seconds=recovery.seconds,
        segments_scanned=recovery.segments_scanned,
        bytes_truncated=recovery.bytes_truncated,
        reason=recovery.reason,
        flights_scanned=sum(log.recovery.segments_scanned for log in flights),
        flights_segments=sum(len(log.segments) for log in flights),
    )


def show(result: CrashResult, to: Narrator) -> None:
    extra = result.found - result.acknowledged
    beyond = f", {extra:,} of them written but not yet acknowledged" if extra else ""
    if result.bytes_truncated:
        torn = f"{size(result.bytes_truncated)} of a batch that was still being written, cut off"
    else:
        torn = "none: this time the kill fell between two writes"
    to.facts(
        [
            ("acknowledged", f"{result.acknowledged:,} records before the kill"),
            ("found", f"{result.found:,} records in {result.batches:,} whole batches{beyond}"),
            ("lost", f"{result.lost}"),
            ("torn tail", torn),
            (
                "recovery",
                f"took {duration(result.seconds)} and scanned "
                f"{result.segments_scanned} segment{'' if result.segments_scanned == 1 else 's'}",
            ),
            ("details", result.reason),
        ]
    )
    to.gap()
    to.say(
        "Every record found was compared with what the writer had sent. The flights had been flushed before, so of "
        f"their {result.flights_segments} segments only {result.flights_scanned} had to be scanned: the active ones."
    )
