"""Encoded batches as producers, coordinators and leaders of other brokers send them, one line each."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from klog.codec import CODECS, compress
from klog.record import encode
from klog.record.control import marker as marker_record
from tests.support.legacy_reference import Message, encode_message

NOW = 1_700_000_000_000


def batch(values: int | Iterable[bytes] = 1, *, at: int = NOW, key: bytes | None = b"k", **fields: Any) -> bytes:
    """A batch of this many records, or of these values."""
    listed = [b"v%d" % n for n in range(values)] if isinstance(values, int) else list(values)
    return encode([(key, value, at) for value in listed], **fields)


def produced(pid: int, epoch: int, sequence: int, count: int = 1, **more: Any) -> bytes:
    """R(pid, epoch, sequence): a batch of an idempotent producer."""
    return batch(count, producer_id=pid, producer_epoch=epoch, base_sequence=sequence, **more)


def transactional(pid: int, epoch: int, sequence: int, count: int = 1, **more: Any) -> bytes:
    """T(...): the same within a transaction."""
    return produced(pid, epoch, sequence, count, is_transactional=True, **more)


def marker(pid: int, epoch: int, kind: str, *, coordinator: int = 0, at: int = NOW, **more: Any) -> bytes:
    """A transaction marker: kind "commit" or "abort"."""
    key, value = marker_record(kind, coordinator)
    return encode(
        [(key, value, at)], producer_id=pid, producer_epoch=epoch, is_transactional=True, is_control=True, **more
    )


def old(magic: int, first: int, last: int, codec: str | None = None) -> bytes:
    """Messages of magic 0 or 1 as an old leader stored them."""
    wrapped = codec is not None
    inner = [
        encode_message(Message(magic, offset - (first if wrapped and magic else 0), b"k", b"old", NOW if magic else -1))
        for offset in range(first, last + 1)
    ]
    if codec is None:
        return b"".join(inner)
    number = CODECS.index(codec)
    payload = bytes(compress(number, b"".join(inner)))
    return encode_message(Message(magic, last, None, payload, NOW if magic else -1, number))
