"""Spark DataFrames over the bytes of a log directory: format("klog"). Uses `klog.open` and `Log`.

    from klog.spark import session

    spark = session()                                       # or any SparkSession: nothing is registered
    spark.read.format("klog").load("data").groupBy("topic").count().show()

    klog.spark.write(frame, "data", topic="flights")        # rows sorted and brought together by partition

`session` starts a local Spark with `recommended_conf()`. Both are optional: a session without any klog setting can
read, too, since `pip install klog[spark]` installs the module pyspark_klog where Spark looks for sources.

`scan` reads the same rows without the data source API, which Spark 3.5 and some runtimes do not have.

Importing this module loads neither pyspark nor pyarrow; without pyspark, its functions raise an error that names the
package to install. In a virtual environment that is not activated, the import sets PYSPARK_PYTHON: interpreter.py.
"""

from klog.spark.interpreter import prepare as _prepare
from klog.spark.scan import scan
from klog.spark.session import recommended_conf, session
from klog.spark.writing import write

__all__ = ["recommended_conf", "scan", "session", "write"]

_prepare()
