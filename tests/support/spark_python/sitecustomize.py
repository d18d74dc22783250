"""For the Python processes of the tests' Spark sessions: they import the installed PySpark, with its bytecode.

Spark puts pyspark.zip first, which has only sources: each process compiles them again, for a second of CPU. Spark waits
ten seconds for some of these processes, too few on a busy machine.
"""

import sys

sys.path[:] = [path for path in sys.path if not path.endswith("pyspark.zip")]
