"""Sending a slice of a file to a socket, a pipe or a file: each method, and its failures."""

from __future__ import annotations

import errno
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
import tty
from collections.abc import Iterator
from pathlib import Path

import pytest

from klog.disk import LogFile, RealFiles, SendCounts, send_bytes, send_slice
from klog.errors import PeerGone, SendInterrupted, SendTimeout
from tests.support.faulty_io import FaultyIo
from tests.support.patience import PATIENCE
from tests.support.resources import open_descriptors
from tests.support.signals import signal_when_waiting
from tests.support.sockets import Reader, again_and_again, pair
from tests.support.tls import tls_pair

SIZE = 3_000_001
DATA = random.Random(7).randbytes(SIZE)
METHODS = {"sendfile": (), "splice": ("sendfile",), "copied": ("sendfile", "splice")}


@pytest.fixture
def kernel() -> Iterator[FaultyIo]:
    with FaultyIo() as io:
        yield io


@pytest.fixture
def file(tmp_path: Path, kernel: FaultyIo) -> LogFile:
    (tmp_path / "a").write_bytes(DATA)
    return RealFiles(kernel.table).open(str(tmp_path / "a"))


@pytest.fixture(params=METHODS)
def method(request: pytest.FixtureRequest, kernel: FaultyIo) -> str:
    """Disable the methods before this one, each with a different errno that means unsupported."""
    name: str = request.param
    for function, error in zip(METHODS[name], (errno.EINVAL, errno.ENOSYS), strict=False):
        kernel.rule(function, error=error)
    return name


def only(method: str, size: int) -> dict[str, int]:
    return {**dict.fromkeys(METHODS, 0), method: size}


def counted(counts: SendCounts) -> dict[str, int]:
    return {name: getattr(counts, name) for name in METHODS}


def sent_to_a_reader(file: LogFile, kind: str, counts: SendCounts, *slices: tuple[int, int]) -> bytes:
    with pair(kind) as (ours, theirs):
        reader = Reader(theirs)
        for position, size in slices:
            assert send_slice(ours, file, position, size, counts) == size
        ours.close()
        return reader.finished()


# ---- methods --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["tcp", "unix"])
def test_each_method_sends_the_same_bytes_and_is_counted(file: LogFile, method: str, kind: str) -> None:
    counts = SendCounts()
    assert sent_to_a_reader(file, kind, counts, (0, 10), (4097, SIZE - 4097)) == DATA[:10] + DATA[4097:]
    assert counted(counts) == only(method, SIZE - 4097 + 10)


def test_a_method_refused_in_the_middle_is_replaced_by_the_next(file: LogFile, kernel: FaultyIo) -> None:
    counts = SendCounts()
    kernel.rule("sendfile", at_most=100_000, times=2)
    kernel.rule("sendfile", error=errno.EOPNOTSUPP)
    kernel.rule("splice", at_most=50_000, times=5)
    kernel.rule("splice", error=errno.EINVAL)  # the sixth call empties the pipe: what it held is read again
    assert sent_to_a_reader(file, "tcp", counts, (1, SIZE - 1)) == DATA[1:]
    assert counted(counts) == {"sendfile": 200_000, "splice": 100_000, "copied": SIZE - 1 - 300_000}


def test_without_descriptors_for_a_pipe_the_bytes_are_copied(file: LogFile, kernel: FaultyIo) -> None:
    import resource

    counts = SendCounts()
    kernel.rule("sendfile", error=errno.EINVAL)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with pair("unix") as (ours, theirs):
        reader = Reader(theirs)
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
            send_slice(ours, file, 0, SIZE, counts)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        ours.close()
        assert reader.finished() == DATA
    assert counted(counts) == only("copied", SIZE)


def test_no_descriptor_of_a_pipe_leaks(file: LogFile, kernel: FaultyIo) -> None:
    kernel.rule("sendfile", error=errno.EINVAL)
    before = open_descriptors()
    with pair("unix") as (ours, _):
        ours.setblocking(False)
        for _ in range(5):
            send_slice(ours, file, 0, SIZE, SendCounts())
        ours.settimeout(0.001)
        with pytest.raises(SendTimeout):
            send_slice(ours, file, 0, SIZE, SendCounts())
    assert open_descriptors() <= before


def test_a_slice_to_a_pipe(file: LogFile, method: str) -> None:
    ours, counts = os.pipe(), SendCounts()
    got = bytearray()
    with open(ours[0], "rb", buffering=0) as end, open(ours[1], "wb", buffering=0) as target:
        thread = threading.Thread(target=lambda: got.extend(end.read()))
        thread.start()
        assert send_slice(target, file, 5, SIZE - 5, counts) == SIZE - 5
        target.close()
        thread.join()
    assert got == DATA[5:]
    assert counted(counts) == only(method, SIZE - 5)


def test_a_slice_to_a_nonblocking_pipe(file: LogFile, method: str) -> None:
    ours = os.pipe()
    os.set_blocking(ours[1], False)
    with open(ours[0], "rb", buffering=0) as end, open(ours[1], "wb", buffering=0) as target:
        done = send_slice(target, file, 0, SIZE, SendCounts())
        assert 0 < done < SIZE
        assert send_slice(target, file, done, SIZE - done, SendCounts()) == 0
        assert end.read(done) == DATA[:done]


@pytest.mark.parametrize("mode", ["wb", "ab"])
def test_a_slice_to_a_file_at_its_position(tmp_path: Path, file: LogFile, mode: str) -> None:
    """No zero-copy method supports a file that is open for appending."""
    counts = SendCounts()
    (tmp_path / "b").write_bytes(b"old")
    with (tmp_path / "b").open(mode, buffering=0) as target:
        target.write(b"head")
        send_slice(target, file, 0, SIZE, counts)
    assert (tmp_path / "b").read_bytes() == (b"old" if mode == "ab" else b"") + b"head" + DATA
    assert counted(counts) == only("copied" if mode == "ab" else "sendfile", SIZE)


def test_a_target_without_a_descriptor_raises(file: LogFile) -> None:
    with pytest.raises(TypeError, match=r"target=.* fileno\(\)"):
        send_slice(object(), file, 0, 1, SendCounts())  # type: ignore[arg-type]
    with open(os.devnull, "rb") as target, pytest.raises(OSError, match="Bad file descriptor") as caught:
        send_slice(target, file, 0, 1, SendCounts())
    assert caught.value.filename is None


# ---- partial sends -------------------------------------------------------------------------------------------------


def test_interrupted_and_short_calls_and_full_sockets_continue(file: LogFile, kernel: FaultyIo, method: str) -> None:
    """F23: EINTR, short counts, EAGAIN."""
    function = {"sendfile": "sendfile", "splice": "splice", "copied": "send"}[method]
    kernel.rule(function, at_most=777, times=1)
    rules = [
        kernel.rule(function, error=errno.EINTR, nth=2, times=2),
        kernel.rule(function, at_most=777, nth=4, times=6),
        kernel.rule("pread", at_most=999, nth=2, times=3),
    ]
    assert sent_to_a_reader(file, "tcp", SendCounts(), (0, SIZE)) == DATA
    assert [kernel.hits(rule) for rule in rules[:2]] == [2, 6]
    with pair("tcp") as (ours, theirs):
        ours.settimeout(PATIENCE)
        full = kernel.rule(function, error=errno.EAGAIN, nth=2 if method == "splice" else 1, times=1)
        reader = Reader(theirs)
        assert send_slice(ours, file, 0, SIZE, SendCounts()) == SIZE
        ours.close()
        assert reader.finished() == DATA
        assert kernel.hits(full) == 1


def test_partial_sends_to_a_nonblocking_socket(file: LogFile, method: str) -> None:
    counts, done, got = SendCounts(), 0, bytearray()
    with pair("tcp") as (ours, theirs):
        ours.setblocking(False)
        while done < SIZE:
            sent = send_slice(ours, file, done, SIZE - done, counts)
            done += sent
            while len(got) < done:
                got += theirs.recv(1 << 20)
    assert got == DATA
    assert counted(counts) == only(method, SIZE)


def test_more_than_two_gib_in_a_slice_and_after_it(tmp_path: Path, kernel: FaultyIo) -> None:
    """A sparse file. The simulated kernel reports every requested byte as sent; the bytes are not checked."""
    size = 5 << 30
    path = tmp_path / "a"
    with path.open("wb") as sparse:
        sparse.truncate(size + 100)
        sparse.seek(size)
        sparse.write(DATA[:100])
    file, counts = RealFiles(kernel.table).open(str(path)), SendCounts()
    pretended = kernel.rule("sendfile", claims=True, times=5)
    with pair("unix") as (ours, theirs):
        assert send_slice(ours, file, 0, size + 100, counts) == size + 100
        assert theirs.recv(1000) == DATA[:100]
    assert kernel.hits(pretended) == 5
    assert counts.sendfile == size + 100


# ---- what goes wrong -----------------------------------------------------------------------------------------------


def test_a_lost_peer_raises_with_the_number_of_bytes_sent(file: LogFile, method: str) -> None:
    counts = SendCounts()
    with pair("tcp") as (ours, theirs):
        ours.setblocking(False)
        sent = [send_slice(ours, file, 0, SIZE, counts)]
        theirs.close()
        ours.settimeout(PATIENCE)
        with pytest.raises(PeerGone) as caught:
            again_and_again(lambda: sent.append(send_slice(ours, file, 0, 1000, counts)))
    assert isinstance(caught.value, ConnectionError)
    assert caught.value.errno in (errno.EPIPE, errno.ECONNRESET)
    assert counted(counts) == only(method, sum(sent) + caught.value.sent)


def test_a_peer_lost_half_way(file: LogFile, kernel: FaultyIo, method: str) -> None:
    function = {"sendfile": "sendfile", "splice": "splice", "copied": "send"}[method]
    kernel.rule(function, at_most=1000, times=2)
    kernel.rule(function, error=errno.ECONNRESET, nth=3)
    counts = SendCounts()
    with pair("unix") as (ours, _), pytest.raises(PeerGone, match="1000 bytes|2000 bytes") as caught:
        send_slice(ours, file, 0, SIZE, counts)
    assert counted(counts) == only(method, caught.value.sent)


def test_no_sigpipe_even_with_the_default_handler(tmp_path: Path) -> None:
    """Also with a SIGPIPE that was pending before, which stays pending."""
    (tmp_path / "a").write_bytes(DATA[:5000])
    program = f"""
import os, signal, socket
from klog.disk import RealFiles, SendCounts, send_bytes, send_slice
from klog.errors import PeerGone
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
file = RealFiles().open({str(tmp_path / "a")!r})
for send in (lambda to: send_slice(to, file, 0, 5000, SendCounts()), lambda to: send_bytes(to, b"x", False)):
    ours, theirs = socket.socketpair()
    theirs.close()
    for _ in range(2):
        try:
            send(ours)
        except PeerGone:
            print("gone", signal.sigpending())
    read, write = os.pipe()
    os.close(read)
    with open(write, "wb", buffering=0) as target:
        try:
            send(target)
        except PeerGone:
            print("gone", signal.sigpending())
assert signal.SIGPIPE not in signal.pthread_sigmask(signal.SIG_BLOCK, ())
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGPIPE])
signal.raise_signal(signal.SIGPIPE)
try:
    send_slice(ours, file, 0, 5000, SendCounts())
except PeerGone:
    print(signal.sigpending() == {{signal.SIGPIPE}})
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout) == (0, "gone set()\n" * 6 + "True\n"), run.stderr


def test_a_peer_that_reads_nothing_times_out(file: LogFile, method: str) -> None:
    counts = SendCounts()
    with pair("unix") as (ours, _):
        ours.settimeout(0.02)
        with pytest.raises(SendTimeout, match=r"0\.02 s") as caught:
            send_slice(ours, file, 0, SIZE, counts)
    assert isinstance(caught.value, TimeoutError)
    assert 0 < caught.value.sent < SIZE
    assert counted(counts) == only(method, caught.value.sent)


def test_a_file_that_ends_before_the_slice(file: LogFile, kernel: FaultyIo, method: str) -> None:
    with pair("unix") as (ours, theirs):
        reader = Reader(theirs)
        with pytest.raises(EOFError, match=f"ends 50 bytes before the slice, {SIZE - 10} had been sent"):
            send_slice(ours, file, 10, SIZE + 40, SendCounts())
        ours.close()
        assert reader.finished() == DATA[10:]


def test_a_disk_read_error_names_its_file(file: LogFile, kernel: FaultyIo, method: str) -> None:
    """F20: the error is that of the disk, with its path, and the bytes sent before it are counted."""
    function = {"sendfile": "sendfile", "splice": "splice", "copied": "pread"}[method]
    kernel.rule(function, error=errno.EIO, nth=3)
    kernel.rule(function, at_most=-1 if method == "copied" else 1000)
    counts = SendCounts()
    with pair("tcp") as (ours, _), pytest.raises(OSError, match="Input/output error") as caught:
        send_slice(ours, file, 0, SIZE, counts)
    assert caught.value.filename == file.path
    assert sum(counted(counts).values()) == caught.value.sent  # type: ignore[attr-defined]
    assert 0 < sum(counted(counts).values()) < SIZE // 2


def test_a_signal_ends_a_blocked_send(file: LogFile, method: str) -> None:
    """G2."""

    class Enough(Exception):
        pass

    def enough(*_: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)  # once: the next could come after the send
        raise Enough

    def send_under_a_timer(ours: socket.socket) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)  # repeated, in case it came just before a blocking call
        send_slice(ours, file, 0, SIZE, SendCounts())

    before = signal.signal(signal.SIGALRM, enough)
    try:
        for timeout in (None, PATIENCE):
            with pair("unix") as (ours, _):
                ours.settimeout(timeout)
                with pytest.raises(Enough):
                    send_under_a_timer(ours)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_one_signal_ends_a_blocked_send_of_bytes() -> None:
    """G2. A call that was interrupted after it had sent a part returns its size, without an error."""

    class Enough(Exception):
        pass

    def enough(*_: object) -> None:
        raise Enough

    arrived, wakeup = socket.socketpair()
    with arrived, wakeup, pair("unix") as (ours, _):
        wakeup.setblocking(False)
        before, fd_before = signal.signal(signal.SIGALRM, enough), signal.set_wakeup_fd(wakeup.fileno())
        try:
            with signal_when_waiting(signal.SIGALRM), pytest.raises(Enough) as caught:
                send_bytes(ours, memoryview(DATA), False)
        finally:
            signal.set_wakeup_fd(fd_before)
            signal.signal(signal.SIGALRM, before)
        assert 0 < caught.value.sent < SIZE  # type: ignore[attr-defined]
        assert len(arrived.recv(100)) == 1, "number of signals"


def test_closed_files_and_invalid_slices_raise(file: LogFile) -> None:
    with pair("unix") as (ours, _):
        for position, size in ((-1, 1), (0, -1)):
            with pytest.raises(ValueError, match="negative"):
                send_slice(ours, file, position, size, SendCounts())
        file.close()
        with pytest.raises(ValueError, match="closed"):
            send_slice(ours, file, 0, 1, SendCounts())


@pytest.mark.parametrize(
    ("size", "timeout", "error", "others_run"),
    [
        (65536, 0.0, 0, False),
        (65536, 0.0, errno.ENOSYS, True),  # residency is unknown
        (65537, 0.0, 0, True),
        (65536, PATIENCE, 0, True),
    ],
)
def test_the_gil_is_released_except_for_short_cached_sends(
    file: LogFile, kernel: FaultyIo, size: int, timeout: float, error: int, others_run: bool
) -> None:
    """G1."""
    kernel.rule("sendfile", delay_ms=50)
    if error:
        kernel.rule("cachestat", error=error)
    count, running, before = 0, True, sys.getswitchinterval()

    def other() -> None:
        nonlocal count
        while running:
            count += 1
            time.sleep(0.001)

    thread = threading.Thread(target=other)
    with pair("tcp") as (ours, _):
        ours.settimeout(timeout)
        thread.start()
        try:
            while count == 0:
                time.sleep(0.001)
            sys.setswitchinterval(100)  # the GIL switches only when a thread releases it
            time.sleep(0.02)  # nor does a thread that has waited since before that
            ran = False
            for _ in range(200 if others_run else 1):  # one send may end before the other thread wakes up
                start = count
                assert send_slice(ours, file, 0, size, SendCounts()) > 0
                ran = count > start
                if ran:
                    break
            assert ran == others_run
        finally:
            running = False
            sys.setswitchinterval(before)
            thread.join()


# ---- bytes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("timeout", [None, PATIENCE])
def test_bytes_that_more_than_fill_a_socket(timeout: float | None) -> None:
    with pair("tcp") as (ours, theirs):
        ours.settimeout(timeout)
        reader = Reader(theirs)
        assert send_bytes(ours, memoryview(DATA), True) == SIZE
        ours.close()
        assert reader.finished() == DATA


def test_bytes_to_a_blocked_or_lost_peer() -> None:
    with pair("tcp") as (ours, theirs):
        ours.settimeout(0.02)
        with pytest.raises(SendTimeout) as caught:
            send_bytes(ours, memoryview(DATA * 4), False)
        assert 0 < caught.value.sent < SIZE * 4
        theirs.close()
        with pytest.raises(PeerGone):
            again_and_again(lambda: send_bytes(ours, memoryview(DATA), False))


def test_no_sigpipe_after_a_partial_write(file: LogFile, method: str) -> None:
    """The kernel then returns their number and still sends the signal. Here a thread does."""
    seen: list[int] = []
    before = signal.signal(signal.SIGPIPE, lambda number, _: seen.append(number))
    try:
        with pair("unix") as (ours, theirs):
            sender = threading.get_ident()

            def read() -> None:
                theirs.recv(1)  # it is running, and cannot end before all is read
                signal.pthread_kill(sender, signal.SIGPIPE)
                for _ in iter(lambda: theirs.recv(1 << 18), b""):
                    pass

            thread = threading.Thread(target=read)
            thread.start()
            assert send_slice(ours, file, 0, SIZE, SendCounts()) == SIZE
            ours.close()
            thread.join()
        assert seen == []
    finally:
        signal.signal(signal.SIGPIPE, before)


def test_a_failing_target_is_not_a_disk_error(file: LogFile, method: str) -> None:
    """A terminal whose other end is closed gives the same EIO as an unreadable disk."""
    terminal, end = os.openpty()
    tty.setraw(end)
    os.close(terminal)
    with (
        open(end, "wb", buffering=0) as target,
        pytest.raises(OSError, match="Input/output error: 0 bytes had been sent") as caught,
    ):
        send_slice(target, file, 0, 1000, SendCounts())
    assert caught.value.filename is None


def test_an_exception_from_a_signal_handler_during_a_tls_send(file: LogFile) -> None:
    """W2: OpenSSL may have taken the record or not, so nothing more is sent."""

    class Enough(Exception):
        pass

    def enough(*_: object) -> None:
        raise Enough

    counts = SendCounts()
    ours, theirs = tls_pair()
    before = signal.signal(signal.SIGALRM, enough)
    try:
        with ours, theirs:
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 16)
            theirs.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
            with signal_when_waiting(signal.SIGALRM), pytest.raises(Enough) as caught:
                send_slice(ours, file, 0, SIZE, counts)
            sent = caught.value.sent  # type: ignore[attr-defined]
            assert counts.copied == sent > 0
            for send in (
                lambda: send_slice(ours, file, sent, 1, counts),
                lambda: send_bytes(ours, memoryview(DATA), False),
            ):
                with pytest.raises(SendInterrupted, match="close the connection"):
                    send()
            reader = Reader(theirs)
            ours.shutdown(socket.SHUT_WR)
            got = reader.finished()
            assert DATA.startswith(got)
            assert len(got) >= sent
    finally:
        signal.signal(signal.SIGALRM, before)
