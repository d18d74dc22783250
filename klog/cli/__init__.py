"""`klog VERB`: thin click commands over public functions, one file per verb. Only data is written to stdout.

A verb is a module here with a click command named `command`, and a line in VERBS. Verbs are imported when they are
called, so `klog --help` loads none of them, and none loads pyarrow, pyspark, pandas or rich before it is needed.

    exit code   0 ok   1 failure   2 usage   3 data problem found   4 locked   130 interrupted
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, NoReturn

from klog._start import end_at_interrupts

if TYPE_CHECKING:
    from klog.cli.group import VERBS, cli

__all__ = ["VERBS", "cli", "main"]


def main() -> NoReturn:
    """The `klog` script. It imports the verbs here, so that a Ctrl-C during the import exits as usual."""
    try:
        if sys.argv[1:2] == ["broker"]:
            from klog.cli import quick

            code = quick.run(sys.argv[2:])
            if code is not None:
                sys.exit(code)
        from klog.cli.group import main as run

        run()
    except KeyboardInterrupt:
        if sys.stderr is not None:
            sys.stderr.write("klog: interrupted\n")
        sys.exit(130)
    finally:
        end_at_interrupts()


def __getattr__(name: str) -> Any:
    if name in __all__:
        from klog.cli import group

        return getattr(group, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
