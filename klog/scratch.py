"""A directory for a piece of work, which is removed at its end: also after an error or a signal.

A directory that is left in a log.dir is worse than lost space: a broker refuses to start with one that is not a
partition's.
"""

from __future__ import annotations

import contextlib
import shutil
import signal
import tempfile
import threading
from collections.abc import Iterator

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def scratch_directory(prefix: str, parent: str | None = None, advice: str | None = None) -> Iterator[str]:
    """Make a new directory in `parent`, or where the system has its temporary files; yield its path; remove it.

    advice: how to do without it, for the error. Raises OSError if it cannot be made. What cannot be removed is left.
    """
    with contextlib.ExitStack() as ends:
        with _signals_deferred():
            path = _make(prefix, parent, advice)
            ends.callback(_remove, path)
        yield path


def _make(prefix: str, parent: str | None, advice: str | None) -> str:
    try:
        return tempfile.mkdtemp(prefix=prefix, dir=parent)
    except OSError as error:
        if advice is None:
            raise
        raise OSError(error.errno, f"{error.strerror}; {advice}", parent or tempfile.gettempdir()) from None


def _remove(path: str) -> None:
    with _signals_deferred():
        shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def _signals_deferred() -> Iterator[None]:
    """Let the handlers of signals that end a process run after the block: rmtree() that is left by an exception leaves
    files. Python runs handlers in the main thread only."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    handlers = {number: found for number in _ENDING if callable(found := signal.getsignal(number))}
    try:
        for number in handlers:
            signal.signal(number, lambda number, _: came.append(number))
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for one in dict.fromkeys(came):
            signal.raise_signal(one)
