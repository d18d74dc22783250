"""Sending the result of a fetch: to sockets of every kind, in event loops, one part after the other."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

import klog
from klog.disk import RealFiles
from klog.errors import CorruptBatch, PeerGone, SendTimeout
from tests.support.faulty_io import FaultyIo
from tests.support.logs import one_log
from tests.support.memory import peak_bytes
from tests.support.patience import PATIENCE
from tests.support.sockets import Reader, again_and_again, pair, tcp_pair
from tests.support.tls import tls_pair

METHODS = ("FetchBytesSendfile", "FetchBytesSplice", "FetchBytesCopied")


def fill(log: klog.Log, batches: int = 40) -> klog.Log:
    for i in range(batches):
        log.append([(b"k", b"%07d" % i * 10_000)])
    return log


@pytest.fixture
def log(tmp_path: Path) -> Iterator[klog.Log]:
    """2.8 MB in one segment."""
    with one_log(tmp_path) as log:
        yield fill(log)


def whole(log: klog.Log) -> klog.FetchData:
    return log.fetch(0, 1 << 30)


def counted(log: klog.Log) -> list[int]:
    return [log.metrics()[name] for name in METHODS]


def loops() -> list[Any]:
    return [pytest.param(asyncio.new_event_loop, id="asyncio"), pytest.param(_uvloop, id="uvloop")]


def _uvloop() -> asyncio.AbstractEventLoop:
    uvloop = pytest.importorskip("uvloop", reason="needs: uvloop")
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


Run = Callable[[Coroutine[Any, Any, None]], None]


@pytest.fixture(params=loops())
def run(request: pytest.FixtureRequest) -> Iterator[Run]:
    loop = request.param()
    yield lambda work: loop.run_until_complete(asyncio.wait_for(work, PATIENCE))
    loop.close()


async def received(sock: socket.socket, size: int) -> bytes:
    got, loop = bytearray(), asyncio.get_running_loop()
    while len(got) < size and (data := await loop.sock_recv(sock, 1 << 18)):
        got += data
    return bytes(got)


# ---- one slice -------------------------------------------------------------------------------------------------------


def test_metrics_count_the_bytes_of_each_method(tmp_path: Path) -> None:
    with FaultyIo() as kernel, klog.open(tmp_path / "data", create=True, files=RealFiles(kernel.table)) as logs:
        logs.create_topic("t")
        log = fill(logs.log("t"), 3)
        data, expected = whole(log), [0, 0, 0]
        for number, refused in enumerate((None, "sendfile", "splice")):
            if refused is not None:
                kernel.rule(refused, error=errno.EINVAL)
            with pair("tcp") as (ours, theirs):
                reader = Reader(theirs)
                assert data.send_to(ours) == data.size
                ours.close()
                assert reader.finished() == data.memory()
            expected[number] = data.size
            assert counted(log) == expected
        assert [logs.metrics()[name]["t-0"] for name in METHODS] == expected


def test_a_read_only_log_counts_too(log: klog.Log) -> None:
    with klog.Log.open(log.path, read_only=True) as reader, pair("unix") as (ours, theirs):
        ours.setblocking(False)
        sent = whole(reader).send_to(ours)
        assert counted(reader) == [sent, 0, 0]
        assert theirs.recv(sent, socket.MSG_WAITALL) == whole(log).memory()[:sent]
    assert counted(log) == [0, 0, 0]


def test_a_slice_that_is_cut_while_it_is_sent(log: klog.Log) -> None:
    """The remaining bytes no longer exist: an error is raised, and no other byte is sent."""
    data = whole(log)
    with pair("unix") as (ours, theirs):
        ours.setblocking(False)
        sent = [data.send_to(ours)]
        log.truncate_to(30)
        assert sent[0] < log.size

        def more() -> None:
            assert theirs.recv(1 << 20)
            sent.append(data.send_to(ours, sum(sent)))

        with pytest.raises(CorruptBatch, match="the log was truncated") as caught:
            again_and_again(more)
    assert sum(sent) + caught.value.sent == log.size  # type: ignore[attr-defined]


def test_a_slice_that_is_cut_and_rewritten_is_sent_as_rewritten(log: klog.Log) -> None:
    data = whole(log)
    log.truncate_to(0)
    fill(log)
    with pair("tcp") as (ours, theirs):
        reader = Reader(theirs)
        assert data.send_to(ours) == data.size
        ours.close()
        assert reader.finished() == whole(log).memory()


def test_segments_that_are_deleted_while_they_are_sent(tmp_path: Path) -> None:
    """Rolled, then deleted: the fetch keeps its file."""
    with one_log(tmp_path, segment_bytes=1 << 20, retention_bytes=1 << 20) as log:
        data = whole(fill(log, 14))
        expected = bytes(data.memory())
        with pair("unix") as (ours, theirs):
            ours.setblocking(False)
            done = data.send_to(ours)
            assert 0 < done < data.size
            fill(log, 20)
            assert log.apply_retention() > 0
            assert log.log_start_offset >= 14
            got = bytearray()
            while len(got) < data.size:
                got += theirs.recv(1 << 20)
                done += data.send_to(ours, done)
        assert got == expected


def test_a_slow_receiver_does_not_use_more_memory(log: klog.Log) -> None:
    """W3, copied and by TLS, where bytes pass through this process."""
    data = whole(log)
    ours, theirs = tls_pair()
    with ours, theirs:
        ours.settimeout(0.05)

        def send() -> None:
            with pytest.raises(SendTimeout):
                again_and_again(lambda: data.send_to(ours))

        assert peak_bytes(send) < 200_000


# ---- TLS -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("timeout", [None, PATIENCE])
def test_tls_encrypts_what_it_sends(log: klog.Log, timeout: float | None) -> None:
    data = whole(log)
    ours, theirs = tls_pair()
    with ours, theirs:
        ours.settimeout(timeout)
        reader = Reader(theirs)
        assert data.send_to(ours, 5) == data.size - 5
        ours.close()
        assert reader.finished() == data.memory()[5:]
    assert counted(log) == [0, 0, data.size - 5]


def test_nonblocking_tls_sends_in_parts(log: klog.Log) -> None:
    data, done = whole(log), 0
    ours, theirs = tls_pair()
    with ours, theirs:
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 30_000)
        ours.setblocking(False)
        got, pauses = bytearray(), 0
        while len(got) < data.size:
            sent = data.send_to(ours, done)
            pauses += sent == 0
            done += sent
            theirs.settimeout(PATIENCE if done == data.size else 0.2)
            try:
                got += theirs.recv(1 << 14)
            except TimeoutError:
                assert done < data.size
        assert got == data.memory()
        assert pauses
    assert counted(log) == [0, 0, data.size]


def test_tls_peers_that_are_closed_or_stalled_or_without_a_handshake(log: klog.Log) -> None:
    data = whole(log)
    ours, theirs = tls_pair()
    with ours, theirs:
        ours.settimeout(0.02)
        with pytest.raises(SendTimeout) as caught:
            again_and_again(lambda: data.send_to(ours))
        assert caught.value.sent % 16384 == 0
        theirs.close()
        with pytest.raises(PeerGone):
            again_and_again(lambda: data.send_to(ours))
    plain, other = tcp_pair()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with other, context.wrap_socket(plain, do_handshake_on_connect=False) as fresh:
        fresh.setblocking(False)
        with pytest.raises(ssl.SSLWantReadError):
            data.send_to(fresh)


def test_tls_and_a_file_that_is_cut(log: klog.Log) -> None:
    data = whole(log)
    log.truncate_to(10)
    ours, theirs = tls_pair()
    with ours, theirs:
        reader = Reader(theirs)
        with pytest.raises(CorruptBatch, match="truncated"):
            data.send_to(ours)
        ours.close()
        assert reader.finished() == whole(log).memory()


# ---- event loops -----------------------------------------------------------------------------------------------------


def test_several_sends_in_one_loop(log: klog.Log, run: Run) -> None:
    data = whole(log)

    async def work() -> None:
        pairs = [tcp_pair() for _ in range(5)]
        for sock in sum(pairs, ()):
            sock.setblocking(False)
        sends = [data.send_to_async(ours, start) for start, (ours, _) in enumerate(pairs)]
        reads = [received(theirs, data.size - start) for start, (_, theirs) in enumerate(pairs)]
        found = await asyncio.gather(*reads, *sends)
        for start, (ours, theirs) in enumerate(pairs):
            assert found[start] == data.memory()[start:]
            assert found[5 + start] == data.size - start
            ours.close()
            theirs.close()

    run(work())
    assert counted(log) == [5 * data.size - 10, 0, 0]


def test_other_tasks_run_beside_a_fast_receiver(tmp_path: Path, run: Run) -> None:
    """The kernel reports that the socket has taken all bytes: a send that continued as long as it can would block the
    other tasks."""

    async def work(out: klog.Outgoing) -> None:
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        with pair("tcp") as (ours, _):
            ours.setblocking(False)
            counting = asyncio.ensure_future(count())
            assert await out.send_to_async(ours) == out.size
            counting.cancel()
        assert turns >= out.size >> 20

    with FaultyIo() as kernel, klog.open(tmp_path / "data", create=True, files=RealFiles(kernel.table)) as logs:
        logs.create_topic("t")
        log = fill(logs.log("t"))
        kernel.rule("sendfile", claims=True)
        run(work(klog.Outgoing([whole(log)] * 5)))


def test_a_cancelled_send_reports_what_was_sent_and_can_resume(log: klog.Log, run: Run) -> None:
    data = whole(log)

    async def work() -> None:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            for sock in (ours, theirs):
                sock.setblocking(False)
            out = klog.Outgoing([b"head", data, b"tail"])
            sending = asyncio.ensure_future(out.send_to_async(ours))
            while not out.sent:
                await asyncio.sleep(0)
            sending.cancel()
            with pytest.raises(asyncio.CancelledError):
                await sending
            assert 0 < out.sent < out.size
            begun = await received(theirs, out.sent)
            rest = await asyncio.gather(received(theirs, out.size - out.sent), out.send_to_async(ours))
            assert begun + rest[0] == b"head" + bytes(data.memory()) + b"tail"
            assert out.done and out.sent == out.size

    run(work())


def test_two_sends_to_one_socket_do_not_mix(log: klog.Log, run: Run) -> None:
    data = whole(log)

    async def work() -> None:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            for sock in (ours, theirs):
                sock.setblocking(False)
            first = asyncio.ensure_future(data.send_to_async(ours))
            await asyncio.sleep(0)
            with pytest.raises(RuntimeError, match="another send to this socket is in progress"):
                await data.send_to_async(ours)
            assert await received(theirs, data.size) == data.memory()
            assert await first == data.size
            assert (await asyncio.gather(data.send_to_async(ours), received(theirs, data.size)))[1] == data.memory()

    run(work())


def test_a_closed_connection_ends_a_send_in_a_loop(log: klog.Log, run: Run) -> None:
    async def work() -> None:
        ours, theirs = socket.socketpair()
        with ours:
            ours.setblocking(False)
            sending = asyncio.ensure_future(whole(log).send_to_async(ours))
            await asyncio.sleep(0.01)
            theirs.close()
            with pytest.raises(PeerGone):
                await sending

    run(work())


def test_tls_in_a_loop(log: klog.Log, run: Run) -> None:
    data = whole(log)

    async def work() -> None:
        ours, theirs = await asyncio.to_thread(tls_pair)
        with ours, theirs:
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 30_000)
            ours.setblocking(False)
            reader = Reader(theirs)
            out = klog.Outgoing([b"head", data, b"tail" * 10_000])
            assert await out.send_to_async(ours) == out.size
            ours.close()
            assert await asyncio.to_thread(reader.finished) == b"head" + bytes(data.memory()) + b"tail" * 10_000

    run(work())


def test_tls_in_a_loop_that_must_read_from_the_peer_first(log: klog.Log, run: Run) -> None:
    """Sending starts with the handshake, which needs a reply."""
    from tests.support.tls import contexts

    data = whole(log)

    async def work() -> None:
        server, client = contexts()
        plain, other = tcp_pair()
        ours = client.wrap_socket(plain, server_hostname="localhost", do_handshake_on_connect=False)
        with ours, other:
            ours.setblocking(False)
            got: list[bytes] = []

            def serve() -> None:
                with server.wrap_socket(other, server_side=True) as theirs:
                    got.append(Reader(theirs).finished())

            thread = threading.Thread(target=serve)
            thread.start()
            assert await data.send_to_async(ours) == data.size
            ours.shutdown(socket.SHUT_WR)
            await asyncio.to_thread(thread.join)
            assert got == [bytes(data.memory())]

    run(work())


# ---- piece after piece -----------------------------------------------------------------------------------------------


def test_bytes_and_slices_are_sent_in_order(log: klog.Log) -> None:
    first, second = log.fetch(3), log.fetch(30)
    parts = [b"head", first, memoryview(b"between"), b"", second, log.fetch(40), bytearray(b"end")]
    out = klog.Outgoing(parts)
    expected = b"head" + bytes(first.memory()) + b"between" + bytes(second.memory()) + b"end"
    assert (out.size, out.sent, out.done) == (len(expected), 0, False)
    with pair("tcp") as (ours, theirs):
        reader = Reader(theirs)
        assert out.send_to(ours) == out.size
        assert out.send_to(ours) == 0
        ours.close()
        assert reader.finished() == expected
    assert out.done
    assert klog.Outgoing([]).done and klog.Outgoing([b"", log.fetch(40)]).done


@pytest.mark.parametrize("kind", ["tcp", "unix"])
def test_a_send_resumes_where_a_full_socket_stopped_it(log: klog.Log, kind: str) -> None:
    data, got = whole(log), bytearray()
    out = klog.Outgoing([b"x" * 300_000, data, b"y" * 1000, data])
    with pair(kind) as (ours, theirs):
        ours.setblocking(False)
        sent = []
        while not out.done:
            sent.append(out.send_to(ours))
            while len(got) < out.sent:
                got += theirs.recv(1 << 20)
        assert sum(sent) == out.sent == out.size
        assert got == b"x" * 300_000 + bytes(data.memory()) + b"y" * 1000 + bytes(data.memory())


def test_a_send_resumes_after_a_timeout(log: klog.Log) -> None:
    data = whole(log)
    out = klog.Outgoing([b"head", data, b"tail"])
    with pair("unix") as (ours, theirs):
        ours.settimeout(0.02)
        with pytest.raises(SendTimeout) as caught:
            out.send_to(ours)
        assert caught.value.sent == out.sent > 0
        before = out.sent
        with pytest.raises(SendTimeout) as caught:
            out.send_to(ours)
        assert caught.value.sent == 0 and out.sent == before
        ours.settimeout(PATIENCE)
        reader = Reader(theirs)
        assert out.send_to(ours) == out.size - before
        ours.close()
        assert reader.finished() == b"head" + bytes(data.memory()) + b"tail"


def data_packets(sock: socket.socket) -> int:
    """The number of packets with data that the socket has sent: tcpi_data_segs_out of struct tcp_info."""
    info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
    return int(struct.unpack_from("I", info, 156)[0])


def test_bytes_between_slices_are_not_sent_as_separate_packets(tmp_path: Path) -> None:
    """O3."""
    with one_log(tmp_path) as log:
        for i in range(5):
            log.append([(b"k", b"%d" % i)])
        slices = [log.fetch(i, 1) for i in range(5)]
        parts = [part for data in slices for part in (b"header", data)]
        expected = b"".join(bytes(part.memory() if isinstance(part, klog.FetchData) else part) for part in parts)
        for sent, packets in ((klog.Outgoing(parts), 1), (klog.Outgoing(parts[:2]), 1)):
            with pair("tcp") as (ours, theirs):
                ours.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                sent.send_to(ours)
                assert ours.getsockopt(socket.IPPROTO_TCP, socket.TCP_CORK) == 0
                assert theirs.recv(sent.size, socket.MSG_WAITALL) == expected[: sent.size]
                assert data_packets(ours) == packets


@pytest.mark.deep
def test_more_than_two_gib_of_slices(log: klog.Log) -> None:
    """Read by a thread that only counts; bounded by its size."""
    data = whole(log)
    out = klog.Outgoing([data] * ((1 << 31) // data.size + 2))
    assert out.size > 1 << 31
    with pair("unix") as (ours, theirs):
        got = 0

        def read() -> None:
            nonlocal got
            memory = bytearray(1 << 20)
            while (count := theirs.recv_into(memory)) > 0:
                got += count

        thread = threading.Thread(target=read)
        thread.start()
        assert out.send_to(ours) == out.size
        ours.close()
        thread.join()
    assert got == out.size


def test_a_disk_error_during_a_send(tmp_path: Path) -> None:
    """F20: the error reports how much was sent, and names the disk."""
    with FaultyIo() as kernel, klog.open(tmp_path / "data", create=True, files=RealFiles(kernel.table)) as logs:
        logs.create_topic("t")
        log = fill(logs.log("t"))
        data = whole(log)
        out = klog.Outgoing([b"head", data])
        with pair("tcp") as (ours, _):
            kernel.rule("sendfile", at_most=1000, times=2)
            failing = kernel.rule("sendfile", error=errno.EIO, nth=3)
            ours.settimeout(PATIENCE)
            with pytest.raises(OSError, match="Input/output error") as caught:
                out.send_to(ours)
            assert caught.value.filename == log.segments[0].path
            assert out.sent == 2004
            kernel.lift(failing)
            ours.setblocking(False)
            assert out.send_to(ours) > 0
        assert log.append([(b"k", b"the log goes on")]).count == 1


def test_files_and_pipes_are_targets_too(log: klog.Log, tmp_path: Path) -> None:
    data = whole(log)
    with (tmp_path / "copy").open("wb") as copy:
        klog.Outgoing([data, b"tail"]).send_to(copy)
    assert (tmp_path / "copy").read_bytes() == bytes(data.memory()) + b"tail"
    ours = os.pipe()
    os.set_blocking(ours[1], False)
    with open(ours[0], "rb", buffering=0) as end, open(ours[1], "wb", buffering=0) as target:
        sent = data.send_to(target)
        assert end.read(sent) == data.memory()[:sent]


def test_repeated_disk_errors_while_sending_take_the_log_offline(tmp_path: Path) -> None:
    """F20: header lookups, which are in memory, do not reset the count; sent bytes do."""
    with FaultyIo() as kernel, klog.Log.open(tmp_path / "t-0", files=RealFiles(kernel.table)) as log:
        fill(log, 3)
        for times in (2, 3):
            assert log.offline is None
            failing = kernel.rule("sendfile", error=errno.EIO)
            for _ in range(times):
                with pair("unix") as (ours, _), pytest.raises(OSError, match="the disk has failed"):
                    whole(log).send_to(ours)
            kernel.lift(failing)
            with pair("unix") as (ours, theirs):
                Reader(theirs)
                assert whole(log).send_to(ours) > 0
        assert "3 reads in a row" in str(log.offline)
        log.close()


def test_a_closed_connection_is_not_a_disk_error(log: klog.Log) -> None:
    for _ in range(5):
        with pair("unix") as (ours, theirs):
            theirs.close()
            with pytest.raises(PeerGone):
                whole(log).send_to(ours)
    assert log.offline is None


@pytest.mark.parametrize("kind", ["slice", "outgoing"])
def test_an_error_reports_the_bytes_of_all_calls(log: klog.Log, run: Run, kind: str) -> None:
    """Of all calls, not only the last one."""
    data, kept = whole(log), bytearray()

    def read(theirs: socket.socket) -> None:
        while len(kept) < 2_000_000:
            kept.extend(theirs.recv(1 << 16))
        theirs.close()

    async def work() -> None:
        with pair("unix") as (ours, theirs):
            ours.setblocking(False)
            thread = threading.Thread(target=read, args=(theirs,))
            thread.start()
            out = klog.Outgoing([b"head", data, data])
            with pytest.raises(PeerGone) as caught:
                await (data if kind == "slice" else out).send_to_async(ours)
            thread.join()
            assert caught.value.sent >= len(kept)
            assert f", {caught.value.sent} bytes had been sent" in str(caught.value)
            assert out.sent == (0 if kind == "slice" else caught.value.sent)

    run(work())


def test_an_error_inside_a_part_reports_the_bytes_before_it(log: klog.Log, run: Run) -> None:
    """W2: the peer has them, so a caller must not send them again."""
    data, left = log.fetch(0, 140_500), 100_000
    assert data.size > left
    os.truncate(log.segments[0].path, left)

    async def work() -> None:
        with pair("unix") as (ours, theirs):
            ours.setblocking(False)
            with pytest.raises(CorruptBatch) as caught:
                await data.send_to_async(ours, 7)
            assert caught.value.sent == left - 7  # type: ignore[attr-defined]
            assert len(theirs.recv(left, socket.MSG_WAITALL | socket.MSG_DONTWAIT)) == left - 7

    run(work())
    log.truncate_to(0)


def test_an_error_of_a_second_call_reports_only_its_own_bytes(log: klog.Log, run: Run) -> None:
    out = klog.Outgoing([b"head", whole(log)])

    async def work() -> None:
        with pair("unix") as (ours, theirs):
            ours.setblocking(False)
            before = out.send_to(ours)
            assert 0 < before == out.sent < out.size
            theirs.close()
            with pytest.raises(PeerGone) as caught:
                await out.send_to_async(ours)
            assert (caught.value.sent, out.sent) == (0, before)

    run(work())


def test_a_cancelled_send_of_a_slice_reports_what_was_sent(log: klog.Log, run: Run) -> None:
    data = whole(log)

    async def work() -> None:
        with pair("unix") as (ours, theirs):
            ours.setblocking(False)
            sending = asyncio.ensure_future(data.send_to_async(ours, 7))
            await asyncio.sleep(0.05)
            sending.cancel()
            with pytest.raises(asyncio.CancelledError) as caught:
                await sending
            sent = caught.value.sent  # type: ignore[attr-defined]
            assert theirs.recv(sent, socket.MSG_WAITALL) == data.memory()[7 : 7 + sent]
            theirs.setblocking(False)
            with pytest.raises(BlockingIOError):
                theirs.recv(1)

    run(work())


def test_a_nonblocking_file_in_an_event_loop(log: klog.Log, run: Run, tmp_path: Path) -> None:
    """An event loop cannot wait for a file."""
    data = whole(log)
    fd = os.open(tmp_path / "copy", os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK)

    async def work() -> None:
        with open(fd, "wb", buffering=0) as target:
            assert await data.send_to_async(target) == data.size
            assert await klog.Outgoing([b"tail"]).send_to_async(target) == 4

    run(work())
    assert (tmp_path / "copy").read_bytes() == bytes(data.memory()) + b"tail"
