"""A start fails if a file of the log.dir cannot be read: without its contents the broker would have another cluster id."""

from __future__ import annotations

from pathlib import Path

import pytest

import klog


def test_a_cluster_id_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").mkdir()
    broker = klog.Broker(tmp_path, listeners=["127.0.0.1:0"])
    with pytest.raises(IsADirectoryError) as caught:
        broker.start()
    assert caught.value.filename == str(tmp_path / "meta.properties")
