"""Reading compressed batches takes no new memory after the first few: new memory causes a page fault for each 4 KiB,
which are 256 for each batch here."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

PROGRAM = """
import gc, json, resource, sys
from collections import deque
from klog import LogConfig, record

T = 1_700_000_000_000
text = b"".join(b"flight %d from EWR to %s;" % (n * 7919 % 1000, (b"ORD", b"LAX")[n % 2]) for n in range(48_000))
tuples = [(b"k%d" % n, text[n * 500 : (n + 1) * 500], T + n) for n in range(2000)]
batch = record.encode(tuples, compression=sys.argv[1])
config = LogConfig()
deep = lambda records: deque(records, maxlen=0)
paths = {
    "leader": lambda: record.validate_append(batch, config, offset=0, now=T),
    "validate": lambda: record.validate(batch),
    "records": lambda: deep(record.iter_records(batch)),
    "lazy records": lambda: deep(record.iter_records(batch, lazy=True)),
    "pairs": lambda: deep(record.pairs(batch)),
    "columns": lambda: record.columns(batch),
    "views": lambda: record.columns(batch, views=True),
}

def faults():
    return resource.getrusage(resource.RUSAGE_THREAD).ru_minflt

found = {}
for name, path in paths.items():
    for _ in range(10):
        path()
    gc.collect()
    before = faults()
    for _ in range(50):
        path()
    found[name] = (faults() - before) / 50
print(json.dumps(found))
"""


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_batches_of_1_mib_take_no_fresh_memory(compression: str) -> None:
    """malloc is set as it is in a busy process: blocks of 128 KiB and more are returned to the kernel at once."""
    environment = os.environ | {"MALLOC_MMAP_THRESHOLD_": str(128 << 10), "MALLOC_TRIM_THRESHOLD_": str(128 << 10)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, compression], env=environment, check=True, capture_output=True, text=True
    )
    found = json.loads(done.stdout)
    assert {path: faults for path, faults in found.items() if faults > 2} == {}
