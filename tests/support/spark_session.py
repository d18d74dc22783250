"""A local Spark session in a process that has none."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import klog.spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ROOT = Path(__file__).resolve().parents[2]


@contextmanager
def spark_session(home: Path, **conf: object) -> Iterator[SparkSession]:
    """A session whose files are in `home`, with klog.spark.recommended_conf(); the Python of its workers is unset.

    local[2,3]: a task may fail twice before the job does, so that a test can make one fail.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(_ROOT), os.environ.get("PYTHONPATH", "")]))
        patch.delenv("PYSPARK_PYTHON", raising=False)
        session = klog.spark.session(
            {
                "spark.master": "local[2,3]",
                "spark.ui.enabled": False,
                "spark.sql.shuffle.partitions": 2,
                "spark.sql.session.timeZone": "America/New_York",
                "spark.sql.warehouse.dir": str(home / "warehouse"),
                "spark.local.dir": str(home),
                **conf,
            }
        )
        session.sparkContext.setLogLevel("OFF")
        try:
            yield session
        finally:
            session.stop()
