"""The writer of step 2: a process that appends and reports what was acknowledged, until it is killed.

    python -m klog.demo.writer DIR TOPIC APPENDS

After each append it writes one line to standard output, the last offset that append returned. A line is shorter than
PIPE_BUF, so the reader of the pipe gets all of it or nothing. If the reader has ended, the next report fails and the
process ends: it makes at most one append after that, and never more than APPENDS of them.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import klog

RECORDS_PER_APPEND = 1_000
_FRAME = b'"frame":"%b"}' % (b"klog " * 800)


def report(offset: int) -> tuple[bytes, bytes]:
    """Return key and value of the record at `offset`: about 4 KB that contain the offset, so that a reader can check
    them."""
    return b"sensor-%d" % (offset % 16), b'{"reading":%d,%b' % (offset, _FRAME)


def main(directory: str, topic: str, appends: str) -> None:
    with klog.open(Path(directory)) as logs:
        log = logs.log(topic)
        for _ in range(int(appends)):
            start = log.log_end_offset
            info = log.append([report(offset) for offset in range(start, start + RECORDS_PER_APPEND)])
            os.write(sys.stdout.fileno(), b"%d\n" % info.last_offset)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except (BrokenPipeError, KeyboardInterrupt):
        sys.exit(1)
