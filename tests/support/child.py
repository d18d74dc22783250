"""Run something in a forked child and hear what became of it."""

from __future__ import annotations

import os
import pickle
import traceback
from collections.abc import Callable
from typing import Any


def in_child(work: Callable[[], Any]) -> Any:
    """What work() returns in a forked child. An exception there is returned as (class name, text)."""
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
