"""Rules of the cleaner that are not numbered statements: the properties that a rewritten batch and its log keep."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import klog
from klog.record import encode
from tests.cleaner.logs import NOW
from tests.cleaner.story import Story
from tests.support.legacy_reference import Message, encode_message, wrap


@pytest.fixture
def story(tmp_path: Path) -> Iterator[Story]:
    with Story(tmp_path) as opened_story:
        yield opened_story


def replicate(story: Story, *keys: bytes | None, epoch: int = 0, **fields: object) -> None:
    """Append a batch as the leader stored it."""
    records = [klog.Record(key=key, value=b"v", timestamp=NOW, headers=[("h", b"1")]) for key in keys]
    batch = encode(records, base_offset=story.log.log_end_offset, leader_epoch=epoch, **fields)  # type: ignore[arg-type]
    story.log.append_batches(batch, origin="replication")


def test_leader_epochs_keep_their_start_offsets(story: Story) -> None:
    """Also an epoch whose first batches, or all batches, were removed; after any kind of open."""
    for epoch, keys in ((0, (b"a", b"b")), (3, (b"a",)), (4, (b"a",)), (7, (b"a", b"c")), (7, (b"a",))):
        replicate(story, *keys, epoch=epoch)
    before = list(story.log.leader_epochs)
    assert [(entry[0], entry[1]) for entry in before] == [(0, 0), (3, 2), (4, 3), (7, 4)]
    story.clean()
    assert [record.offset for record in story.log.read()] == [1, 5, 6]
    assert list(story.log.leader_epochs) == before
    assert [story.log.end_offset_for(epoch) for epoch in (0, 3, 4, 7)] == [(0, 2), (3, 3), (4, 4), (7, 7)]
    assert [batch.leader_epoch for batch in story.batches] == [0, 7, 7]
    for clean in (True, False):
        story.log.close()
        story.log = story._open(clean_shutdown=clean)
        assert list(story.log.leader_epochs) == before


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
def test_a_batch_keeps_its_codec_whatever_the_topic_config(tmp_path: Path, codec: str | None) -> None:
    with Story(tmp_path, **{"compression.type": "lz4" if codec == "zstd" else "zstd"}) as story:
        replicate(story, b"a", b"b", b"a", compression=codec)
        replicate(story, b"b", compression=codec)
        story.clean()
        assert [(batch.compression, batch.count) for batch in story.batches] == [(codec or "none", 1)] * 2
        assert [(r.offset, r.key, r.headers) for r in story.log.read()] == [
            (2, b"a", (("h", b"1"),)),
            (3, b"b", (("h", b"1"),)),
        ]


def test_an_empty_key_is_a_key_and_an_empty_value_a_value(story: Story) -> None:
    story.log.append([(b"", b"old", NOW), (b"a", b"old", NOW), (b"", b"", NOW), (b"a", b"", NOW)])
    story.clean()
    (batch,) = story.batches
    assert [(r.offset, r.key, r.value) for r in batch] == [(2, b"", b""), (3, b"a", b"")]
    assert batch.delete_horizon_ms is None


def test_a_batch_keeps_its_offset_range(story: Story) -> None:
    """A rewritten batch keeps its base and last offset, producer and sequence, and loses only records."""
    story.produce(9, 1, 2, 3, 2)
    story.put(1, 2)
    story.clean()
    first = story.batches[0]
    assert (first.base_offset, first.last_offset, first.count, [r.offset for r in first]) == (0, 3, 1, [2])
    assert (first.producer_id, first.producer_epoch, first.base_sequence) == (9, 0, 0)
    assert story.log.read(start=0).__iter__().__next__().offset == 2


def test_log_append_time_is_kept(tmp_path: Path) -> None:
    """LogAppendTime: type and timestamp of the batch, and so of each record."""
    with Story(tmp_path, **{"message.timestamp.type": "LogAppendTime"}) as story:
        story.log.append([(b"a", b"1", NOW - 5000), (b"b", b"1", NOW - 5000)])
        story.clock.advance(50)
        story.log.append([(b"a", b"2", NOW - 5000)])
        story.clean(after=1000)
        assert [(r.key, r.timestamp, r.timestamp_type) for r in story.log.read()] == [
            (b"b", NOW, klog.TimestampType.LOG_APPEND_TIME),
            (b"a", NOW + 50, klog.TimestampType.LOG_APPEND_TIME),
        ]
        assert [batch.max_timestamp for batch in story.batches] == [NOW, NOW + 50]


def test_lookups_by_timestamp_still_work(story: Story) -> None:
    """The largest remaining timestamp is the segment's, and lookups by timestamp find its offset."""
    story.log.append([(b"a", b"1", NOW + 900), (b"b", b"1", NOW + 10)])
    story.log.append([(b"a", b"2", NOW + 20), (b"c", b"1", NOW + 30)])
    story.clean()
    assert story.log.segments[0].max_timestamp == NOW + 30
    found = [story.log.offset_for_timestamp(NOW + after) for after in (10, 11, 30, 31)]
    assert [None if each is None else each.offset for each in found] == [1, 2, 3, None]


def test_a_log_that_begins_inside_a_segment(story: Story) -> None:
    """Records below the log start count for no key and are not read; the rest is cleaned."""
    story.put(1, 2, 3, 1, 2)
    assert story.log.maybe_increment_log_start_offset(3)
    stats = story.clean()
    assert stats.first_dirty_offset == 5
    assert [record.offset for record in story.log.read()] == [3, 4]
    assert (story.log.log_start_offset, story.log.log_end_offset) == (3, 5)
    story.put(3)
    story.clean()
    assert [record.offset for record in story.log.read()] == [3, 4, 5]
    assert story.offsets == [3, 4, 5]


@pytest.mark.parametrize("magic", [0, 1])
def test_an_old_batch_at_the_end_of_a_round_becomes_an_empty_magic_2_batch(story: Story, magic: int) -> None:
    """Old formats have no empty batches, and the end of the round must be kept."""
    stamp = NOW if magic else -1
    story.log.append_batches(encode_message(Message(magic, 0, b"1", b"v", stamp)), origin="replication")
    inner = [encode_message(Message(magic, n if magic else 2 + n, None, b"v", stamp)) for n in range(3)]
    story.log.append_batches(wrap(magic, 4, inner, timestamp=stamp), origin="replication")
    assert story.clean().keyless == 3
    found = [(b.magic, b.base_offset, b.last_offset, b.count, b.max_timestamp) for b in story.batches]
    assert found == [(2, 0, 0, 1, stamp), (2, 2, 4, 0, stamp)]
    story.put(1)
    story.clean()
    assert story.ends == [5]


def test_docs_deviations_names_existing_tests() -> None:
    root = Path(__file__).parents[2]
    _, _, section = (root / "docs" / "deviations.md").read_text().partition("\n## The cleaner\n")
    lines = section.partition("\n## ")[0].split("\n- ")[1:]
    assert lines
    for line in lines:
        ((path, name),) = re.findall(r"\(`(tests/\S+\.py)::(\w+)`\)", line)
        assert f"\ndef {name}(" in (root / path).read_text(), line
