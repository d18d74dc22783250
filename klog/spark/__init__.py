"""The analytics door: bytes of a log directory → Spark DataFrames. Takes `klog.open` and `Log`, gives format("klog").

    from klog.spark import session

    spark = session()                                       # or any SparkSession: nothing is registered
    spark.read.format("klog").load("data").groupBy("topic").count().show()

`session` starts a local Spark with `recommended_conf()`. Both are conveniences: a session without any klog setting
reads just as well, since `pip install klog[spark]` puts the module pyspark_klog where Spark looks for sources.

Importing this module loads neither pyspark nor pyarrow; using it without pyspark says what to install.
"""

from klog.spark.session import recommended_conf, session

__all__ = ["recommended_conf", "session"]
