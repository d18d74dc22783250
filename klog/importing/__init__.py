"""Loads rows of files into topics: CSV, JSON lines, Parquet.

Takes a file and appends its rows as records. import_file does it all; RowError and UnknownColumn name file and line.
Importing this package loads neither pyarrow nor pandas.
"""

from klog.importing.errors import RowError, UnknownColumn, UnknownFormat
from klog.importing.load import ImportResult, import_file

__all__ = ["ImportResult", "RowError", "UnknownColumn", "UnknownFormat", "import_file"]


def __dir__() -> list[str]:
    return sorted(__all__)
