"""The Spark job of step 6, in its own process, so that its session, JVM and workers end with it.

    python -m klog.demo.spark_job DIR TOPIC SCRATCH      one line of JSON on standard output

Spark's own files go to SCRATCH. The caller removes it, because a killed job cannot.

klog is not registered with Spark: format("klog") is found because pyspark_klog is installed next to klog.
"""

from __future__ import annotations

import json
import os
import sys
import time
import warnings
from typing import Any

TOP = 10
QUESTION = f"""
SELECT flight.carrier, flight.hour, count(*) AS departures, avg(flight.dep_delay) AS delay
FROM (SELECT from_json(CAST(value AS STRING),
                       'event STRING, carrier STRING, hour INT, dep_delay DOUBLE') AS flight
      FROM events)
WHERE flight.event = 'departed'
GROUP BY flight.carrier, flight.hour
HAVING count(*) >= 365
ORDER BY delay DESC
LIMIT {TOP}
"""


def quiet_session(scratch: str) -> Any:
    """Return a local session that logs only errors and keeps its files in `scratch`."""
    from klog.spark import session

    spark = session(
        {
            "spark.app.name": "klog demo",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.driver.host": "127.0.0.1",  # an unresolvable host name would stop Spark
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.local.dir": scratch,
            "spark.driver.extraJavaOptions": f"-Djava.io.tmpdir={scratch}",
            "spark.sql.warehouse.dir": os.path.join(scratch, "warehouse"),
            "spark.sql.shuffle.partitions": "4",
        }
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def ask(spark: Any, directory: str, topic: str) -> dict[str, Any]:
    events = spark.read.format("klog").option("subscribe", topic).load(directory)
    started = time.perf_counter()
    rows = events.count()
    counted = time.perf_counter()
    events.createOrReplaceTempView("events")
    answer = [list(row) for row in spark.sql(QUESTION).collect()]
    return {
        "version": spark.version,
        "rows": rows,
        "count_seconds": counted - started,
        "answer": answer,
        "answer_seconds": time.perf_counter() - counted,
    }


def main(directory: str, topic: str, scratch: str) -> None:
    warnings.simplefilter("ignore", FutureWarning)
    spark = quiet_session(scratch)
    try:
        result = ask(spark, os.path.abspath(directory), topic)
    finally:
        spark.stop()
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
