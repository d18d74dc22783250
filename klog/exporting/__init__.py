"""Writes the records of a topic to a file: Parquet, Arrow, CSV, JSON lines.

Takes a topic and a file name. export_file does it all, in bounded memory; the file appears whole or not at all.
Importing this package loads neither pyarrow nor the CSV writer.
"""

from klog.exporting.export import FORMATS, ExportResult, export_file

__all__ = ["FORMATS", "ExportResult", "export_file"]


def __dir__() -> list[str]:
    return sorted(__all__)
