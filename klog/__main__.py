"""python -m klog VERB: the klog command, if its script is not on the PATH."""

from klog.cli import main

main()
