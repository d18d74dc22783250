"""Which modules a new worker of Spark loads for a task. Without a JVM: a process has the modules of a worker, and gets a reader."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import StructType

from klog.spark.rows import PLAIN, full_schema
from klog.spark.source import KlogSource
from klog.spark.task import TaskReader
from klog.spark.views import full_schema as view_schema

from .conftest import FLIGHTS, Directory

ROOT = Path(__file__).resolve().parents[2]

# The first line is what Spark's own code loads before klog.
WORKER = """
import pyspark.worker, pyspark.sql.datasource, pyspark.sql.types, pyspark.sql.pandas.types, pyarrow
import pickle, sys
before = set(sys.modules)
reader, planned = pickle.loads(bytes.fromhex(sys.stdin.read()))
print(sum(batch.num_rows for partition in planned for batch in reader.read(partition)))
print(*set(sys.modules) - before)
"""
PLANNING = {"klog.spark.source", "klog.spark.stream", "klog.spark.survey"}
UNUSED = {
    *("pandas", "numpy.random", "asyncio", "cramjam", "zstandard", "csv"),
    *("klog.decode", "klog.manager", "klog.cleaner", "klog.inspect", "klog.protocol"),
}


def schema() -> StructType:
    return StructType([full_schema()[name] for name in PLAIN])


def batch(path: Path) -> tuple[Any, Any]:
    reader = KlogSource(CaseInsensitiveDict({"path": str(path)})).reader(schema())
    return reader, reader.partitions()


def headers(path: Path) -> tuple[Any, Any]:
    reader = KlogSource(CaseInsensitiveDict({"path": str(path), "view": "batches"})).reader(view_schema("batches"))
    return reader, reader.partitions()


def stream(path: Path) -> tuple[Any, Any]:
    reader = KlogSource({"path": str(path), "startingoffsets": "earliest"}).streamReader(schema())
    start = reader.initialOffset()
    end = reader.latestOffset(reader.latestOffset(start, None), None)
    return reader, reader.partitions(start, end)


def run(reader: Any, planned: Any) -> tuple[int, set[str]]:
    """Return the number of rows that a new worker reads, and the modules that it loads for that."""
    done = subprocess.run(
        [sys.executable, "-c", WORKER],
        input=pickle.dumps((reader, planned)).hex(),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    rows, loaded = done.stdout.splitlines()
    return int(rows), set(loaded.split())


@pytest.mark.parametrize("kind", [batch, stream])
def test_a_task_loads_only_the_modules_that_read_a_log(shared_data: Directory, kind: Any) -> None:
    reader, planned = kind(shared_data.path)
    assert type(pickle.loads(pickle.dumps(reader))) is TaskReader
    rows, modules = run(reader, planned)
    assert rows == FLIGHTS
    assert modules.isdisjoint(UNUSED | PLANNING | {"pyarrow.compute", "klog.spark.options", "klog.spark.views"})
    assert sum(name.startswith("klog") for name in modules) <= 215


def test_a_task_of_a_view_of_batches_loads_few_more_modules(shared_data: Directory) -> None:
    rows, modules = run(*headers(shared_data.path))
    assert rows == FLIGHTS // 20  # records of a batch
    assert modules.isdisjoint(UNUSED | PLANNING | {"klog.internal_topics.decoding"})
