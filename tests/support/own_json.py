"""klog's own JSON files for tests that change them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from klog.log.directory.versioned import CHECKSUM


def unchecked(data: bytes) -> Any:
    """The document of a file without its checksum, to be changed and written."""
    document = json.loads(data)
    del document[CHECKSUM]
    return document


def unchecked_in(path: Path) -> Any:
    return unchecked(path.read_bytes())
