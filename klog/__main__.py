"""python -m klog VERB: the klog command, where its script is not on the PATH."""

from klog.cli import main

main()
