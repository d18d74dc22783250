"""recovery="strict" on every directory of tests/golden/loader: klog refuses and has changed no .log, or it keeps every
record that can be read. Nothing is lost without an error."""

from __future__ import annotations

from pathlib import Path

import pytest

import klog
from klog.clock import ManualClock
from klog.errors import CorruptLog
from klog.inspect.batches import Found, scan
from klog.inspect.files import ReadOnlyFile
from tests.log.test_loader_verdicts import BETTER, MENDED, NAMES, OTHER_TOPIC, read_all
from tests.support import golden

Content = tuple[int, bytes | None, bytes | None]


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, golden.LoaderCase]:
    return golden.unpack_loader_cases(tmp_path_factory.mktemp("loader"))


def readable(directory: Path, start: int) -> set[Content]:
    """Offset, key and value of every record in a whole, valid batch, by a scan that skips damage."""
    found: set[Content] = set()
    for path in sorted(directory.glob("*.log")):
        if path.stem.isdigit():
            with ReadOnlyFile(str(path)) as file:
                for item in scan(file):
                    if isinstance(item, Found) and item.error is None:
                        found |= {(record.offset, record.key, record.value) for record in item.batch}
    return {entry for entry in found if entry[0] >= start}


def logs(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.glob("*.log")}


REFUSED = {
    "active-log-zero-clean", "base-offset-below-segment-clean", "base-offset-below-segment-unclean",
    "cut-boundary-clean", "cut-half-segment-clean", "cut-mid-header-clean",
    "cut-mid-length-clean", "cut-mid-records-clean", "flip-first-body-of-active-unclean",
    "flip-middle-rp0-unclean", "fuzz-04-clean", "fuzz-05-unclean", "fuzz-06-unclean", "fuzz-08-unclean",
    "fuzz-09-unclean", "fuzz-12-unclean", "fuzz-13-clean", "fuzz-13-unclean", "fuzz-14-unclean",
    "length-negative-clean", "lso-past-end-clean", "lso-past-end-unclean",
    "middle-log-zero-clean", "middle-log-zero-unclean", "zero-block-active-unclean",
}  # fmt: skip


@pytest.mark.parametrize("name", [name for name in NAMES if name not in OTHER_TOPIC])
def test_strict_refuses_or_keeps(name: str, cases: dict[str, golden.LoaderCase], tmp_path: Path) -> None:
    case, given = cases[name], cases[name].config
    directory, start = case.copy(tmp_path), given["log_start_offset"]
    before, stored = readable(directory, start), logs(directory)
    swapped = any(path.suffix == ".swap" for path in directory.iterdir())

    def open_strict() -> klog.Log:
        return klog.Log.open(
            directory,
            config={**given["config"], "producer.id.expiration.ms": given["producer_id_expiration_ms"]},
            recovery="strict",
            clean_shutdown=given["clean_shutdown"],
            recovery_point=given["recovery_point"],
            log_start_offset=start,
            topic_id=given["topic_id"],
            clock=ManualClock(given["now_ms"]),
        )

    if name in REFUSED:
        with pytest.raises(CorruptLog) as caught:
            open_strict()
        assert logs(directory) == stored
        assert str(caught.value.path).startswith(str(directory))
        return
    log = open_strict()
    got, error_class = read_all(log)
    log.close()
    if swapped:  # a finished compaction dropped records on purpose: compare with Kafka's verdict
        better = BETTER.get(name)
        before = {(r.offset, r.key, r.value) for r in cases[better.like or name if better else name].records}
        assert before <= {(record.offset, record.key, record.value) for record in got}
        return
    assert before <= readable(directory, start)
    seen = {(record.offset, record.key, record.value) for record in got}
    if name in BETTER and BETTER[name].reason == MENDED:  # a batch that is read with its corrected offsets
        assert {entry[1:] for entry in before} <= {entry[1:] for entry in seen}
    elif error_class is None:
        assert before <= seen
