"""Fixtures: the seed of random crash states, a directory where a sync is cheap, and Kafka, which loads crash states."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.conftest import kafka, kafka_classes
from tests.support import seeds

__all__ = ["crash_seed", "kafka", "kafka_classes", "quick_path"]


@pytest.fixture
def crash_seed() -> int:
    """The seed of the run."""
    return seeds.drawn()


@pytest.fixture
def quick_path(tmp_path: Path) -> Iterator[Path]:
    """A directory on a file system where a sync is free, if there is one. tmp_path is on it too, except in tests marked
    `disk`."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else tmp_path) as path:
        yield Path(path)
