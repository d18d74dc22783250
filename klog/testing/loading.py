"""Records of a file or of a table, before a test begins."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from klog.broker import Broker
    from klog.testing.topic import TopicUnderTest


def load(broker: Broker, topic: TopicUnderTest, source: Any, **options: Any) -> None:
    """Append what a file or table has. source: a path for klog.importing.import_file, or columns for Log.append; the
    options are theirs. Raises what they raise."""
    if not isinstance(source, str | os.PathLike):
        topic.append(source, **options)
        return
    from klog.importing import import_file

    found = import_file(source, broker.logs, topic.name, **options)
    for partition in found.partitions:
        broker.check(topic.name, partition)
