"""SQL of DuckDB over the topics of a log directory. Takes columns and bounds from queries, uses readers.

    import klog.duckdb

    connection = klog.duckdb.connect("data")                    # every topic is a view
    connection.sql("SELECT key, count(*) FROM flights WHERE \\"offset\\" >= 1000 GROUP BY key")

Importing this module loads neither duckdb nor pyarrow; without them, its functions raise an error that names the
package to install.
"""

from klog.duckdb.views import connect, dataset, register

__all__ = ["connect", "dataset", "register"]


def __dir__() -> list[str]:
    return sorted(__all__)
