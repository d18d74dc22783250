"""A demonstration of klog on real data: a year of flights. run() does the work; `klog demo` calls it.

    import a year of flights -> kill a writer -> reopen -> find a storm -> compact flight-status -> count by
    batches -> ask Spark

Each step is a module that does one thing through klog's public names, and returns and prints its numbers. Only the
command line imports this package.
"""

from __future__ import annotations

from klog.demo.demo_directory import NotADemoDirectory
from klog.demo.events import DemoDataMissing
from klog.demo.story import DemoResult, run

__all__ = ["DemoDataMissing", "DemoResult", "NotADemoDirectory", "run"]
