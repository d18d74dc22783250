# cython: auto_pickle=False
"""Texts of C status codes, and the only function that raises them as exceptions."""

from klog._c.status cimport (
    KL_ECODEC, KL_ECOUNT, KL_ECRC, KL_ELEGACY, KL_ELENGTH, KL_EMAGIC, KL_EORDER, KL_EOVERLONG, KL_ESLACK, KL_ETRUNCATED,
    KL_EUTF8,
)
from libc.stdint cimport int64_t

from klog.errors import CorruptBatch

cdef dict TEXTS = {
    KL_ETRUNCATED: "the bytes end inside a value",
    KL_EOVERLONG: "a varint is too long",
    KL_ELENGTH: "a length or count is invalid",
    KL_EMAGIC: "not a record format that klog reads",
    KL_ELEGACY: "not a record format that klog reads",
    KL_ECRC: "the checksum does not match",
    KL_ESLACK: "bytes are left over after the last field",
    KL_ECOUNT: "fewer records than the header states",
    KL_ECODEC: "codec bits are not a known codec",
    KL_EORDER: "offsets do not rise",
    KL_EUTF8: "a header key is not UTF-8",
}
cdef dict KINDS = {KL_ECRC: "crc", KL_EORDER: "offset_order"}


cdef str status_text(int status):
    return TEXTS.get(status) or f"status {status}"


cdef int raise_status(int status, object path, int64_t position, object offset, str detail) except -1:
    text = TEXTS.get(status) or f"status {status}"
    raise CorruptBatch(
        f"{detail}: {text}" if detail else text, path=path, position=position, offset=offset, kind=KINDS.get(status)
    )
