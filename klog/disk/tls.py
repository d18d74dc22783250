"""A slice of a file through a TLS socket: it is encrypted in this process, so it is read, a piece at a time.

What OpenSSL has begun to send it must be given again, the same bytes and as many: so a piece is one TLS record, counted
from where the socket stood still, and whoever comes back behind what was sent brings the same one.
"""

from __future__ import annotations

import errno
import socket
import sys
from typing import TYPE_CHECKING, TypeGuard

from klog.disk._io import LogFile
from klog.errors import PeerGone, SendTimeout

if TYPE_CHECKING:
    import ssl

_RECORD_BYTES = 16384
_READ_BYTES = 16 * _RECORD_BYTES


def encrypts(target: object) -> TypeGuard[ssl.SSLSocket]:
    """Is it a TLS socket? Without importing ssl for those that are none."""
    if type(target) is socket.socket:
        return False
    module = sys.modules.get("ssl")
    return module is not None and isinstance(target, module.SSLSocket)


def send_slice(sock: ssl.SSLSocket, file: LogFile, position: int, size: int) -> int:
    """As send.send_slice. ssl.SSLWantReadError: the peer must be heard first, as in an unfinished handshake."""
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
    """As send.send_bytes. An exception out of a signal handler may strike when OpenSSL has just taken a record, and
    nobody can ask it: `sent` is exact where it struck a wait, and else may lack that record."""
    import ssl

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
    except BaseException as error:  # W2: out of a signal handler too
        error.sent = done  # type: ignore[attr-defined]
        raise
    return done
