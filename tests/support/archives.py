"""Archives of tar."""

from __future__ import annotations

import tarfile
from pathlib import Path


def unpack(archive: tarfile.TarFile, into: Path) -> None:
    """Unpack an archive. Files are kept below `into` by the filter, which Python 3.11.0 to 3.11.3 does not have."""
    archive.extraction_filter = getattr(tarfile, "data_filter", None)
    archive.extractall(into)
