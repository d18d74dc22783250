"""Sends a slice of a file through a TLS socket. This process encrypts it, so it reads the file piece by piece.

After a signal handler's exception CPython cannot tell whether OpenSSL had taken the last record. `sent` does not count
it, and the socket takes no more sends, because the record could be sent twice.

When OpenSSL could not send a piece, the next call must pass the same bytes. So a piece is one TLS record, counted from
the position where the socket stopped: a caller that continues there passes the same piece.
"""

from __future__ import annotations

import errno
import socket
import sys
from typing import TYPE_CHECKING, TypeGuard
from weakref import WeakSet

from klog.disk._io import LogFile
from klog.errors import PeerGone, SendInterrupted, SendTimeout

if TYPE_CHECKING:
    import ssl

_RECORD_BYTES = 16384
_READ_BYTES = 16 * _RECORD_BYTES

_interrupted: WeakSet[ssl.SSLSocket] = WeakSet()


def encrypts(target: object) -> TypeGuard[ssl.SSLSocket]:
    """Is it a TLS socket? Does not import ssl for other sockets."""
    if type(target) is socket.socket:
        return False
    module = sys.modules.get("ssl")
    return module is not None and isinstance(target, module.SSLSocket)


def send_slice(sock: ssl.SSLSocket, file: LogFile, position: int, size: int) -> int:
    """Send what the socket takes of a slice. Returns the number of bytes. Raises EOFError if the file ends before the
    slice, ReadFailed, and what send_bytes() raises; `sent` of each error is the number of bytes sent."""
    done = 0
    while done < size:
        wanted = min(_READ_BYTES, size - done)
        try:
            data = file.read(position + done, wanted)
            if len(data) == 0:
                raise EOFError(f"the file ends {size - done} bytes before the slice, {done} had been sent")
            sent = send_bytes(sock, memoryview(data))
        except BaseException as error:
            error.sent = done + getattr(error, "sent", 0)  # type: ignore[attr-defined]
            raise
        done += sent
        if sent < len(data):
            break
    return done


def send_bytes(sock: ssl.SSLSocket, data: memoryview) -> int:
    """Send what the socket takes of these bytes. Returns their number. Raises PeerGone, SendTimeout, SendInterrupted;
    ssl.SSLWantReadError if data from the peer must be read first, as during a handshake."""
    import ssl

    if sock in _interrupted:
        raise SendInterrupted("an exception ended an earlier send through this TLS socket: close the connection")
    done = 0
    try:
        while done < len(data):
            done += sock.send(data[done : done + _RECORD_BYTES])
    except ssl.SSLWantWriteError:
        return done
    except ssl.SSLWantReadError:
        if done == 0:
            raise
    except (ssl.SSLEOFError, ssl.SSLZeroReturnError):
        raise PeerGone(errno.ECONNRESET, done) from None
    except ConnectionError as error:
        raise PeerGone(error.errno or errno.ECONNRESET, done) from None
    except TimeoutError:
        raise SendTimeout(sock.gettimeout() or 0.0, done) from None
    except BaseException as error:  # also from a signal handler
        _interrupted.add(sock)
        error.sent = done  # type: ignore[attr-defined]
        raise
    return done
