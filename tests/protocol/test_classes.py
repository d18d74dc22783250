"""Each message class is created once, also when several threads get it at the same time."""

from __future__ import annotations

import subprocess
import sys

_SCRIPT = """
import sys, threading
from klog.protocol import classes, messages

sys.setswitchinterval(1e-6)

def found_by_threads(name):
    found, start = [], threading.Barrier(4)
    def get():
        start.wait()
        found.append(getattr(messages, name))
    threads = [threading.Thread(target=get) for _ in range(4)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    return set(found)

print(max(len(found_by_threads(name)) for name in classes.names()))
"""


def test_threads_that_get_a_class_at_the_same_time_get_the_same_one() -> None:
    done = subprocess.run([sys.executable, "-P", "-c", _SCRIPT], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1"]
