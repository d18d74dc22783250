"""How long a test waits for what must come.

It is for what hangs, and no measure: on a busy machine a thread may wait for its turn, and a sync for the disk, for many
seconds. Below the limit of a test (`timeout` in pyproject.toml), so that the failure names what did not come. A program
that a test runs to its end needs none: the limit of the test ends both.
"""

from __future__ import annotations

PATIENCE = 240.0
