"""Manifests and other files of staged jobs as bytes: damage is a named error."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import klog
from klog.errors import (
    CorruptCheckpoint,
    NewerFormat,
)
from klog.log.staged import streams
from klog.log.staged.manifest import AssignedFile, Manifest, Part, decode
from tests.manager.staged_jobs import NOW, log_dir_with_a_topic, values
from tests.support.own_json import unchecked


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return log_dir_with_a_topic(tmp_path / "data")


def a_manifest() -> Manifest:
    part = Part("t", 0, 3, (AssignedFile("0-0", 3, 2, 80, 7), AssignedFile("1-0", 5, 1, 70, 9)), True, NOW)
    return Manifest("a", (part, Part("t", 1, 0, ())), {}, ("q", 4))


def test_a_manifest_round_trips() -> None:
    for manifest in (a_manifest(), a_manifest().applied()):
        assert decode(manifest.encode(), "/data/klog-commit-a.json") == manifest


CONFIGS: list[dict[str, Any]] = [
    {"retention.ms": "abc"},
    {"retention.ms": {"a": 1}},
    {"nope": 1},
    {"cleanup.policy": ["x"]},
]


def hostile() -> Iterator[bytes]:
    good = a_manifest().encode()
    yield from (b"", b"[]", b"{}", b"\xff", b"[" * 100_000, good[:-3], b'{"version": "1"}', b'{"version": true}')
    for path, value in [
        (("token",), "../x"), (("token",), 7), (("token",), "b"), (("state",), "done"), (("topics",), []),
        (("stream",), {"query_id": "../q", "batch_id": 1}), (("stream",), {"query_id": "q", "batch_id": -1}),
        *((("topics",), {"n": {"topic_id": "A" * 21 + "Q", "partitions": 1, "config": config}}) for config in CONFIGS),
        (("topics",), {"a/b": {}}), (("topics",), {"n": {"topic_id": "x", "partitions": 1, "config": {}}}),
        (("partitions", 0, "topic"), "../t"), (("partitions", 0, "partition"), -1), (("partitions", 0, "partition"), 1),
        (("partitions", 0, "base_offset"), 4), (("partitions", 0, "base_offset"), 2**64),
        (("partitions", 0, "next_offset"), 7), (("partitions", 0, "overwrite"), 1),
        (("partitions", 0, "append_time"), -2), (("partitions", 0, "files", 0, "name"), "../../x"),
        (("partitions", 0, "files", 0, "records"), 0), (("partitions", 0, "files", 0, "bytes"), True),
        (("partitions", 0, "files", 1, "base_offset"), 3), (("partitions", 0, "files", 1, "last_offset"), 9),
    ]:  # fmt: skip
        document = unchecked(good)
        inner = document
        for key in path[:-1]:
            inner = inner[key]
        inner[path[-1]] = value
        yield json.dumps(document).encode()


@pytest.mark.parametrize("data", list(hostile()))
def test_hostile_bytes_are_a_named_error(root: Path, data: bytes) -> None:
    path = root / "klog-commit-a.json"
    path.write_bytes(data)
    for read in (lambda: klog.open(root), lambda: values(root), lambda: klog.Log.open(root / "t-0", read_only=True)):
        with pytest.raises(CorruptCheckpoint, match="klog-commit-a.json"):
            read()
    path.unlink()
    assert len(values(root, read_only=False)) == 3


def test_every_cut_and_flip_of_a_manifest_is_refused_or_harmless() -> None:
    """Harmless: in the name of the checksum, a file without which is read."""
    manifest, path = a_manifest(), "/data/klog-commit-a.json"
    good = manifest.encode()
    for at in range(len(good)):
        for bad in (good[:at], good[:at] + bytes([good[at] ^ 0x15]) + good[at + 1 :]):
            try:
                found = decode(bad, path)
            except (CorruptCheckpoint, NewerFormat):
                continue
            assert found == manifest, bad


@pytest.mark.parametrize("name", ["klog-commit-a.json", "klog-staging-a.json", "klog-stream-a.json"])
def test_a_newer_version_is_refused_by_name(root: Path, name: str) -> None:
    (root / name).write_text('{"version": 2}')
    if name == "klog-stream-a.json":
        with pytest.raises(NewerFormat, match=name):
            streams.last_batch(str(root), "a")
        return
    with pytest.raises(NewerFormat, match=f"{name} has version 2"):
        klog.open(root)


@pytest.mark.parametrize(
    "data", [b"", b"{}", b'{"version": 1, "process": 7}', b'{"version": 1, "process": {"pid": []}}']
)
def test_hostile_writers_and_streams(root: Path, data: bytes) -> None:
    (root / "klog-staging-a.json").write_bytes(data)
    with pytest.raises(CorruptCheckpoint, match="klog-staging-a.json"):
        klog.open(root)
    (root / "klog-stream-q.json").write_bytes(data)
    with pytest.raises(CorruptCheckpoint, match="klog-stream-q.json"):
        streams.last_batch(str(root), "q")
