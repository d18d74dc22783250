"""python -m klog.cli VERB"""

from klog.cli import main

main()
