"""Values that the shell completes: docs/cli.md shows how to switch it on."""

from __future__ import annotations

import os

import click


def topics(context: click.Context, parameter: click.Parameter, begun: str) -> list[str]:
    """Return the topics of the directory on the command line that begin with `begun`; none if it cannot be listed."""
    from klog.inspect.files import partition_name

    directory = context.params.get("directory")
    try:
        names = os.listdir(os.path.expanduser(directory)) if isinstance(directory, str) else []
    except OSError:
        return []
    found = {key[0] for name in names if (key := partition_name(name)) is not None}
    return sorted(topic for topic in found if topic.startswith(begun))
