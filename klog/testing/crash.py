"""A crash of a TestBroker that a request begins: it cannot wait for its own thread, so another one ends the broker."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from klog.logger import logger_of

if TYPE_CHECKING:
    from collections.abc import Callable

_log = logger_of("testing")


class Crash:
    """Kills a broker, and starts it again after a while. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards the thread
        self._thread: threading.Thread | None = None
        self._is_over = threading.Event()  # set: do not start it again
        self._is_cancelled = False  # a start was due, and did not come

    def begin(self, kill: Callable[[], None], start: Callable[[], object], restart_ms: int | None) -> None:
        """Call kill(), and after restart_ms start(), in a thread, after the crash before. None: do not start it."""
        with self._lock:
            self._is_over.clear()
            self._is_cancelled = False
            self._thread = threading.Thread(
                target=self._run, args=(self._thread, kill, start, restart_ms), name="klog-test-crash", daemon=True
            )
            self._thread.start()

    def end(self) -> bool:
        """Wait until the broker is dead, and do not start it any more. Would it have been started? Does nothing in the
        thread of the crash."""
        with self._lock:
            thread = self._thread
            if thread is None or thread is threading.current_thread():
                return False
            self._thread = None
            self._is_over.set()
        thread.join()
        return self._is_cancelled

    def _run(
        self,
        before: threading.Thread | None,
        kill: Callable[[], None],
        start: Callable[[], object],
        restart_ms: int | None,
    ) -> None:
        try:
            if before is not None:
                before.join()
            kill()
            if restart_ms is not None:
                self._is_cancelled = self._is_over.wait(restart_ms / 1000)
                if not self._is_cancelled:
                    start()
        except Exception:
            _log.exception("event=crash_failed")
