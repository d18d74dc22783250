from libc.stdint cimport int64_t, uint64_t

cdef extern from "<sys/uio.h>" nogil:
    struct iovec:
        void *iov_base
        size_t iov_len

cdef extern from "osio.h" nogil:
    ctypedef struct kl_io_t:
        pass
    ctypedef struct kl_cached_t:
        uint64_t cached
        uint64_t dirty
        uint64_t writeback
        uint64_t evicted
        uint64_t recently_evicted
    const kl_io_t kl_io_libc
    enum:
        KL_DIRECT_ALIGN
        KL_DONTCACHE
    int64_t kl_pread(const kl_io_t *io, int fd, void *buf, size_t size, int64_t at)
    int64_t kl_preadv(const kl_io_t *io, int fd, iovec *parts, int n, int64_t at, int flags)
    int kl_pwrite(const kl_io_t *io, int fd, const void *buf, size_t size, int64_t at)
    int kl_fallocate(const kl_io_t *io, int fd, int keep_size, int64_t at, int64_t size)
    int kl_fdatasync(const kl_io_t *io, int fd)
    int kl_fsync(const kl_io_t *io, int fd)
    int kl_ftruncate(const kl_io_t *io, int fd, int64_t size)
    int kl_cachestat(const kl_io_t *io, int fd, int64_t at, int64_t size, kl_cached_t *found)
    int kl_mincore(const kl_io_t *io, int fd, int64_t at, size_t size, unsigned char *pages)
    int64_t kl_pread_cached(const kl_io_t *io, int fd, void *buf, size_t size, int64_t at)
    int kl_pwritev(const kl_io_t *io, int fd, iovec *parts, int n, int64_t at, int *flags)
    int kl_write_zeros(const kl_io_t *io, int fd, int64_t at, int64_t size)
    int kl_write_behind(const kl_io_t *io, int fd, int64_t at, int64_t size, int wait)
    int kl_fadvise(const kl_io_t *io, int fd, int64_t at, int64_t size, int advice)
    int64_t kl_pread_direct(const kl_io_t *io, int direct, int fd, void *buf, size_t size, int64_t at)
    int64_t kl_pwrite_direct(const kl_io_t *io, int direct, int fd, const void *buf, size_t size, int64_t at)
