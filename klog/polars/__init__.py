"""Polars LazyFrames over the bytes of a log directory. Uses `klog.open` and readers; takes bounds from Polars' filters.

    import klog.polars
    import polars as pl

    flights = klog.polars.scan("data", "flights")
    flights.filter(pl.col("offset") >= 1000).group_by("key").len().collect()

Importing this module does not load polars; without it, `scan` raises an error that names the package to install.
"""

from klog.polars.scanning import scan

__all__ = ["scan"]


def __dir__() -> list[str]:
    return sorted(__all__)
