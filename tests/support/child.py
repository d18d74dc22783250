"""Run a function in another process and return its result."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import Any


def in_child(work: Callable[[], Any]) -> Any:
    """Run work() in a forked child and return its result. An exception in the child is returned as (class name,
    text)."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            try:
                result = work()
            except Exception as error:
                result = type(error).__name__, str(error)
            os.write(write, pickle.dumps(result))
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        data = pipe.read()
    _, status = os.waitpid(pid, 0)
    if status:
        raise RuntimeError(f"the child ended with status {status}")
    return pickle.loads(data)


def in_new_process(work: Callable[..., Any], *arguments: Any) -> Any:
    """Run work(*arguments) in a spawned process and return its result. For work that forks often, as each fork copies
    the page tables of what earlier tests have left, and for work that leaves much itself."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(work, *arguments).result()


@contextmanager
def living_child() -> Iterator[int]:
    """The process id of a forked child that does nothing, and exits at the end of the block."""
    end_read, end_write = os.pipe()
    ready_read, ready_write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(end_write)
        os.write(ready_write, b".")
        os.read(end_read, 1)  # returns when the parent closes its end, or dies
        os._exit(0)
    os.close(end_read)
    try:
        os.read(ready_read, 1)  # the child's at-fork hooks have run
        yield pid
    finally:
        for fd in (end_write, ready_read, ready_write):
            os.close(fd)
        os.waitpid(pid, 0)
