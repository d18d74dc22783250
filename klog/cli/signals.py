"""How a verb ends when a signal comes."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def ended_by_signals() -> Iterator[None]:
    """Unwind the stack on signals that would end the process at once, so that logs are closed and temporary files
    removed. Those that are ignored, as by nohup, or have a handler keep it. Raises SystemExit if one came, whatever the
    block raised or returned.

    Python goes on after an exception in a destructor or a callback of weakref. If a signal is lost there, Ctrl-C too,
    the process gets the signal once more.
    """
    came: list[int] = []
    again: list[threading.Timer] = []

    def end(number: int, _: object) -> None:
        came.append(number)
        raise SystemExit(128 + number)

    def unraisable(found: sys.UnraisableHookArgs) -> None:
        if isinstance(found.exc_value, KeyboardInterrupt):
            number = signal.SIGINT
        elif isinstance(found.exc_value, SystemExit) and came:
            number = signal.Signals(came[-1])
        else:
            hook(found)
            return
        timer = threading.Timer(0.01, signal.pthread_kill, (threading.main_thread().ident, number))
        again.append(timer)
        timer.start()

    ends = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) is signal.SIG_DFL]
    hook, sys.unraisablehook = sys.unraisablehook, unraisable
    for number in ends:
        signal.signal(number, end)
    try:
        yield
    finally:
        for timer in again:
            timer.cancel()
        for number in ends:
            signal.signal(number, signal.SIG_DFL)
        sys.unraisablehook = hook
        if came:
            raise SystemExit(128 + came[0]) from sys.exception()
