"""Many reads of one file as few: neighbours are merged into one vectored read, and each gets its own bytes back.

    requests   [p0, n0)   [p1, n1)            [p2, n2)
    in a run   ==========~~~==========          (a run of its own: too far away)
               buffer 0  gap  buffer 1          buffer 2

  V1  an answer is what a read of its request alone would have been: never more, shorter only where the file ends
  V2  a bad range fails the requests that touch it and no other: a run that fails is read again, one request at a time

A gap costs its copy, a call of its own some 0.7 microseconds hot and a trip to the disk cold. Overlapping requests are
read twice. Any thread.
"""

from klog._c.osio cimport iovec, kl_preadv
from klog.disk._io cimport AlignedBuffer, LogFile
from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc

cdef enum:
    GAP = 16384           # so far apart two requests may lie and still be neighbours
    RUN_BYTES = 1 << 20   # of one vectored read
    RUN_PARTS = 256       # each may bring a gap along, and the kernel takes 1024 parts
    HOLD_BYTES = 262144   # as for single reads: what the page cache gives under the GIL
    NOWAIT = 8            # RWF_NOWAIT


cdef int64_t read_run(LogFile file, list buffers, list gaps, int64_t position, AlignedBuffer spare, bint wait):
    """One vectored read of the buffers with their gaps behind them: the number of bytes, or -errno."""
    cdef Py_ssize_t i, n = 0, count = len(buffers)
    cdef iovec *parts = <iovec *>malloc(2 * count * sizeof(iovec))
    cdef AlignedBuffer buffer
    cdef int64_t got, gap
    if parts == NULL:
        raise MemoryError()
    for i in range(count):
        buffer = <AlignedBuffer>buffers[i]
        parts[n].iov_base = buffer.data
        parts[n].iov_len = buffer.size
        n += 1
        gap = gaps[i]
        if gap:
            parts[n].iov_base = spare.data
            parts[n].iov_len = gap
            n += 1
    if wait:
        with nogil:
            got = kl_preadv(file.io, file.fd, parts, <int>n, position, 0)
    else:
        got = kl_preadv(file.io, file.fd, parts, <int>n, position, NOWAIT)
    free(parts)
    return got


cdef int answer_run(LogFile file, list wanted, list run, list gaps, list answers) except -1:
    """Fill in the answers of the requests of one run, whose numbers are in `run`."""
    cdef list buffers = [AlignedBuffer(wanted[number][1], True) for number in run]
    cdef AlignedBuffer buffer, spare = AlignedBuffer(max(gaps))
    cdef int64_t position = wanted[run[0]][0], total = sum(gaps), got = -1, at = 0
    cdef Py_ssize_t i
    for one in buffers:
        total += (<AlignedBuffer>one).size
    if file.fd < 0:
        raise ValueError(f"{file.path} is closed")
    if total <= HOLD_BYTES:
        got = read_run(file, buffers, gaps, position, spare, False)
    if got < total:
        got = read_run(file, buffers, gaps, position, spare, True)
    for i in range(len(run)):
        if got < 0:
            try:
                answers[run[i]] = file.read(*wanted[run[i]])
            except OSError as error:
                answers[run[i]] = error
            continue
        buffer = <AlignedBuffer>buffers[i]
        at += buffer.size
        if at > got:
            buffer.size = max(0, buffer.size - (at - got))
        at += <int64_t>gaps[i]
        answers[run[i]] = buffer
    return 0


def merged(requests, int64_t gap=GAP):
    """The requests' numbers in runs, each one read: [[(number, bytes of no request behind it), ...], ...]."""
    cdef list runs = []
    cdef list run = None
    cdef int64_t position, size, start = 0, end = 0
    for number in sorted(range(len(requests)), key=lambda number: requests[number][0]):
        position, size = requests[number]
        if position < 0 or size < 0:
            raise ValueError(f"a read of {size} bytes from byte {position}")
        if run is None or position < end or position - end > gap or position + size - start > RUN_BYTES \
                or len(run) == RUN_PARTS:
            run = []
            runs.append(run)
            start = position
        else:
            run[len(run) - 1] = before, position - end
        run.append((number, 0))
        before = number
        end = position + size
    return runs


def read_parts(LogFile file, requests, int64_t gap=GAP):
    """The answers to (position, size) requests, in their order: an AlignedBuffer, shorter only at the end of the file,
    or the OSError that this request met.

    gap: requests with at most so many bytes between them are one read. ValueError for a closed file.
    """
    cdef list wanted = list(requests), answers = [None] * len(wanted)
    for run in merged(wanted, gap):
        answer_run(file, wanted, [number for number, _ in run], [behind for _, behind in run], answers)
    return answers
