"""Spark DataFrames over the bytes of a log directory: format("klog"). Uses `klog.open` and `Log`.

    from klog.spark import session

    spark = session()                                       # or any SparkSession: nothing is registered
    spark.read.format("klog").load("data").groupBy("topic").count().show()

    klog.spark.write(frame, "data", topic="flights")        # rows sorted and brought together by partition

`session` starts a local Spark with `recommended_conf()`. Both are optional: a session without any klog setting can
read, too, since `pip install 'klog[spark]'` installs the module pyspark_klog where Spark looks for sources. `enable`
sets what a running session can change.

`scan` reads the same rows without the data source API, which Spark 3.5 and some runtimes do not have.

`materialize` keeps a topic as a directory of Parquet files, and `table` adds what is newer in the log.

Jobs over the files of a log directory, each one or more Spark jobs: verify, compact, reindex, import_, export.

Importing this module loads neither pyspark nor pyarrow; without pyspark, its functions raise an error that names the
package to install. In a virtual environment that is not activated, the import sets PYSPARK_PYTHON: interpreter.py.
"""

import importlib
from typing import TYPE_CHECKING, Any

from klog.spark.interpreter import prepare as _prepare
from klog.spark.scan import scan
from klog.spark.session import enable, recommended_conf, session
from klog.spark.writing import write

if TYPE_CHECKING:
    from klog.spark.compacting import compact
    from klog.spark.exporting import export
    from klog.spark.importing import Imported, import_
    from klog.spark.materializing import Materialized, materialize
    from klog.spark.reindexing import reindex
    from klog.spark.tables import table
    from klog.spark.verifying import verify

__all__ = [
    "Imported",
    "Materialized",
    "compact",
    "enable",
    "export",
    "import_",
    "materialize",
    "recommended_conf",
    "reindex",
    "scan",
    "session",
    "table",
    "verify",
    "write",
]

_prepare()

# Name → where it is. Loaded when first used: every Python worker of Spark imports this package.
_LATER = {
    "Imported": "klog.spark.importing",
    "Materialized": "klog.spark.materializing",
    "compact": "klog.spark.compacting",
    "export": "klog.spark.exporting",
    "import_": "klog.spark.importing",
    "materialize": "klog.spark.materializing",
    "reindex": "klog.spark.reindexing",
    "table": "klog.spark.tables",
    "verify": "klog.spark.verifying",
}


def __dir__() -> list[str]:
    return sorted(__all__)


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'klog.spark' has no attribute {name!r}")
    found = globals()[name] = getattr(importlib.import_module(_LATER[name]), name)
    return found
