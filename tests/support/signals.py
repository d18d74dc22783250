"""Sends a signal to the main thread while it waits in the kernel, however busy the machine is."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.patience import PATIENCE

_LOOKS = 5
_SECONDS = 0.05


@contextmanager
def signal_when_waiting(number: signal.Signals) -> Iterator[None]:
    """Send the signal whenever the main thread, inside the block, has slept for a quarter of a second without a
    wake-up.

    A thread that waits for a processor does not sleep, and one that waits for the GIL wakes up all the time. A call
    that writes the rest after a signal is reached by the next one.
    """
    main = threading.main_thread()
    ended = threading.Event()

    def send() -> None:
        deadline, asleep, before = time.monotonic() + PATIENCE, 0, ""
        while time.monotonic() < deadline and not ended.wait(_SECONDS):
            status = Path(f"/proc/self/task/{main.native_id}/status").read_text().splitlines()
            now = " ".join(line for line in status if line.startswith(("State", "voluntary", "nonvoluntary")))
            asleep = asleep + 1 if now == before and "sleeping" in now else 0
            before = now
            if asleep == _LOOKS:
                assert main.ident is not None
                signal.pthread_kill(main.ident, number)
                asleep = 0

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
