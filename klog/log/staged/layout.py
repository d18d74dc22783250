"""Names of staged files, in a log.dir and its partitions. Kafka ignores all of them.

klog-commit-TOKEN.json          a manifest            TOKEN: 1 to 120 of a-z A-Z 0-9 -
klog-staging-TOKEN.json         the writer of a job, while its files are staged
klog-stream-QUERY.json          the last batch of a stream
<topic>-<partition>/.klog-staging-TOKEN/<task>-<attempt>
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

STAGING = ".klog-staging-"
_COMMIT, _WRITER, _STREAM, _JSON = "klog-commit-", "klog-staging-", "klog-stream-", ".json"
_TOKEN = r"[a-zA-Z0-9-]{1,120}"
_FILE = r"[0-9]{1,10}-[0-9]{1,19}"


def check_token(token: str) -> str:
    """Return the token. Raises ValueError for one that cannot be part of a file name."""
    if not re.fullmatch(_TOKEN, token):
        raise ValueError(f"token={token!r}: 1 to 120 of a-z A-Z 0-9 - are allowed")
    return token


def is_file_name(name: str) -> bool:
    """Can a staged file have this name?"""
    return re.fullmatch(_FILE, name) is not None


def commit_path(log_dir: str, token: str) -> str:
    """The path of a manifest."""
    return os.path.join(log_dir, f"{_COMMIT}{token}{_JSON}")


def writer_path(log_dir: str, token: str) -> str:
    """The path of the file that names a job's writer."""
    return os.path.join(log_dir, f"{_WRITER}{token}{_JSON}")


def stream_path(log_dir: str, query: str) -> str:
    """The path of the file with the last batch of a stream."""
    return os.path.join(log_dir, f"{_STREAM}{check_token(query)}{_JSON}")


def staging_path(log_dir: str, topic: str, partition: int, token: str) -> str:
    """The path of a job's staging directory in a partition."""
    return os.path.join(partition_path(log_dir, topic, partition), STAGING + token)


def partition_path(log_dir: str, topic: str, partition: int) -> str:
    """The path of a partition's directory."""
    return os.path.join(log_dir, f"{topic}-{partition}")


def staged_in(names: Iterable[str]) -> list[str]:
    """The tokens of the jobs that have staged files, among the names of a partition's directory, sorted."""
    tokens = [name.removeprefix(STAGING) for name in names if name.startswith(STAGING)]
    return sorted(token for token in tokens if re.fullmatch(_TOKEN, token))


def commits_in(names: Iterable[str]) -> list[str]:
    """The tokens of the manifests among the names of a log.dir, sorted."""
    return _tokens(names, _COMMIT)


def writers_in(names: Iterable[str]) -> list[str]:
    """The tokens of the jobs that have staged files, among the names of a log.dir, sorted."""
    return _tokens(names, _WRITER)


def streams_in(names: Iterable[str]) -> list[str]:
    """The queries with a last batch, among the names of a log.dir, sorted."""
    return _tokens(names, _STREAM)


def _tokens(names: Iterable[str], prefix: str) -> list[str]:
    tokens = [name[len(prefix) : -len(_JSON)] for name in names if name.startswith(prefix) and name.endswith(_JSON)]
    return sorted(token for token in tokens if re.fullmatch(_TOKEN, token))


def temporaries_in(names: Iterable[str]) -> list[str]:
    """Those of the names of a log.dir that such files have while they are replaced."""
    return [name for name in names if name.startswith((_COMMIT, _WRITER, _STREAM)) and name.endswith(_JSON + ".tmp")]


def holds_only_staging(path: str) -> bool:
    """Does a partition's directory hold staging directories and nothing else? Then it is not a partition yet. One that
    has gone, or that cannot be listed, may be a partition: opening it raises the error."""
    try:
        names = os.listdir(path)
    except OSError:
        return False
    return bool(names) and all(name.startswith(STAGING) for name in names)
