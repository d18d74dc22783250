"""Names that klog makes of random numbers, as those of staged files and of a table's files, are the same in each
run."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import uuid
from collections.abc import Iterator
from unittest import mock


@contextlib.contextmanager
def numbered_names(first: int = 0) -> Iterator[None]:
    """uuid.uuid4() gives the digests of the numbers from `first` on."""
    numbers = itertools.count(first)

    def made() -> uuid.UUID:
        return uuid.UUID(bytes=hashlib.md5(b"%d" % next(numbers)).digest())

    with mock.patch.object(uuid, "uuid4", made):
        yield
