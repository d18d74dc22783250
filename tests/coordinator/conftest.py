from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.coordinator.harness import Groups, groups


@pytest.fixture
def g(tmp_path: Path) -> Iterator[Groups]:
    """A coordinator with Kafka's limits and no delay of the first rebalance."""
    with groups(tmp_path) as made:
        yield made
