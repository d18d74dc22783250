from klog._c.arrow cimport ArrowArray, ArrowSchema
from klog._c.batch cimport kl_batch_t
from libc.stdint cimport int64_t

cdef extern from "headers.h" nogil:
    ctypedef enum kl_header_t:
        KL_HEADER_KINDS

    enum:
        KL_HEADERS_MAX

    const char *kl_header_name(kl_header_t kind)
    int kl_headers_schema(const kl_header_t *kinds, int n, ArrowSchema *out)
    int kl_headers_export(const kl_batch_t *rows, int64_t count, int64_t segment_base_offset, const kl_header_t *kinds,
                          int n, ArrowArray *out)
