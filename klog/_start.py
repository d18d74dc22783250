"""The import of klog: Ctrl-C meanwhile, no garbage collections, and what klog/__init__ binds for packages below others.

Ctrl-C while the klog command still imports klog: one line and exit code 130, as later, and no traceback.

The process ends in the signal handler: an exception could be caught, or turned into another one, by any module that is
being imported. A program that imports klog keeps its own handling of Ctrl-C. What this module imports comes before the
handler is there, so it is little.
"""

from __future__ import annotations

import gc
import os
import sys

TYPE_CHECKING = False  # as in typing, which `import klog` does not load
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

# {a method of Log that packages above klog.log implement: the function that implements it}. klog/__init__ binds them,
# and klog.log.works calls them.
log_works: dict[str, Callable[..., Any]] = {}


class Interruptible:
    """Around the imports of klog/__init__.py. is_command: is this process `klog`, which imports klog.cli as well?"""

    def __init__(self) -> None:
        self.is_command = _is_command()

    def __enter__(self) -> Interruptible:
        if self.is_command:
            try:
                end_at_interrupts()
            except ValueError:  # not the main thread, so this is not the command either
                self.is_command = False
        return self

    def __exit__(self, *error: object) -> None:
        if self.is_command:
            import signal

            if signal.getsignal(signal.SIGINT) is _end:
                signal.signal(signal.SIGINT, signal.default_int_handler)


class NoCollections:
    """Around the imports of klog/__init__.py: no garbage collections, which would look through all that was imported,
    again and again, and take a tenth of the time. Imports make hardly any garbage. What they leave becomes old at once,
    so that the next collections of young objects do not look through it either."""

    def __enter__(self) -> None:
        self._enabled = gc.isenabled()
        gc.disable()

    def __exit__(self, *error: object) -> None:
        if self._enabled:
            if not gc.get_freeze_count():  # else unfreeze() would undo what the program has frozen
                gc.freeze()
                gc.unfreeze()
            gc.enable()


def end_at_interrupts() -> None:
    """Let Ctrl-C end the process at once, also while Python shuts down. Raises ValueError in another thread."""
    import signal  # loads enum; other programs may need neither

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not ignored, as by nohup
        signal.signal(signal.SIGINT, _end)


def _is_command() -> bool:
    """`klog` or `python -m klog`: there Python sets the arguments after this import."""
    name = os.path.basename(sys.argv[0]) if getattr(sys, "argv", None) else ""
    return name == "klog" or (name == "-m" and not {"klog", "klog.cli"}.isdisjoint(sys.orig_argv))


def _end(_number: int, _frame: object) -> None:
    try:
        os.write(2, b"klog: interrupted\n")
    finally:
        os._exit(130)
