"""The flights story: klog's main job on real data, end to end. `klog demo` tells it, `run` does it.

    import a year of flights -> kill a writer -> reopen -> seek a storm -> compact flight-status -> count by
    batches -> ask Spark

Each step is a module that does one thing through klog's public names, returns its numbers and tells them. It stands at
the far right of the house: nothing imports it but the command line.
"""

from __future__ import annotations

from klog.demo.events import DemoDataMissing
from klog.demo.place import NotADemoDirectory
from klog.demo.story import DemoResult, run

__all__ = ["DemoDataMissing", "DemoResult", "NotADemoDirectory", "run"]
