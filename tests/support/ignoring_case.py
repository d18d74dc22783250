"""Topics whose names differ only by case, where the file system takes their directories for the same one.

Run under folding.c as `python -m tests.support.ignoring_case DIRECTORY`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import klog
from klog.errors import InvalidTopic, UnknownTopicOrPartition
from klog.manager.commits import TopicPlan
from tests.manager.staged_jobs import commit, job, stage

NAME = "differs from the topic 'A' only by case"


def refuses(logs: klog.LogManager, call: Callable[[], object], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        call()
    assert (logs.topics(), [record.value for record in logs.read("A")]) == ({"A": [0, 1]}, [b"v"])


def main(path: str) -> None:
    with klog.open(path, create=True) as logs:
        logs.create_topic("A", 2)
        logs.append("A", [(b"k", b"v")])
        assert os.path.samefile(f"{path}/a-0", f"{path}/A-0"), "the names are not folded"
        refuses(logs, lambda: logs.create_topic("a", 3), InvalidTopic, NAME)
        refuses(logs, lambda: logs.log("a", 0), UnknownTopicOrPartition, "no topic 'a'")
        for _ in range(2):
            with logs.reader("A", "G") as reader:
                reader.commit()
        refuses(logs, lambda: logs.reader("A", "g"), ValueError, "the reader 'g' differs from 'G' only by case")
        logs.create_topic("b")
        logs.delete_topic("b")
        logs.create_topic("B")
        logs.delete_topic("B")
    with klog.open(path) as logs:
        refuses(logs, lambda: logs.log("a", 0), UnknownTopicOrPartition, "no topic 'a'")
    with pytest.raises(InvalidTopic, match=NAME):
        commit(Path(path), job("x", stage(Path(path), "x", {("a", 0): [b"w"]}), a=TopicPlan(1, is_new=True)))
    with klog.open(path, read_only=True) as logs:
        refuses(logs, lambda: logs.log("a", 0), UnknownTopicOrPartition, "no topic 'a'")


if __name__ == "__main__":
    main(sys.argv[1])
    print("done")
