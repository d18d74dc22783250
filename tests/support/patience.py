"""How long a test waits for an event.

The limit is for hangs and measures nothing: on a busy machine a thread may wait for the CPU, and a sync for the disk,
for many seconds. It is below the limit of a test (`timeout` in pyproject.toml), so that the failure names the missing
event. A program that a test runs to its end needs none: the test's limit ends both.
"""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE = 240.0
PATIENCE_MS = int(PATIENCE * 1000)
# Options of clients, which by themselves give up after 30 to 60 seconds.
AIOKAFKA = {"request_timeout_ms": PATIENCE_MS}
KAFKA_PYTHON = {"bootstrap_timeout_ms": PATIENCE_MS, "request_timeout_ms": PATIENCE_MS}
KAFKA_PYTHON_PRODUCER = {**KAFKA_PYTHON, "max_block_ms": PATIENCE_MS, "delivery_timeout_ms": 2 * PATIENCE_MS}


def until(holds: Callable[[], object], pause: float = 0.002) -> None:
    """Wait until holds() is true, through other threads or processes. It is called again after each pause, in
    seconds."""
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, "it does not happen"
        time.sleep(pause)
