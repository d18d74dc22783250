"""How long a test waits for an event.

The limit is for hangs and measures nothing: on a busy machine a thread may wait for the CPU, and a sync for the disk,
for many seconds. It is below the limit of a test (`timeout` in pyproject.toml), so that the failure names the missing
event. A program that a test runs to its end needs none: the test's limit ends both.
"""

from __future__ import annotations

PATIENCE = 240.0
