"""`klog VERB`: thin click commands over public functions, one file per verb. Only data goes to stdout.

A verb is a module here with a click command named `command`; a line in VERBS makes it known. Verbs are imported when
they are called, so that `klog --help` loads none of them, and none loads pyarrow, pyspark, pandas or rich before it
needs it.

    exit code   0 ok   1 failure   2 usage   3 data problem found   4 locked   130 interrupted
"""

from klog.cli.group import VERBS, cli, main

__all__ = ["VERBS", "cli", "main"]
