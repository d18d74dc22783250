/* Every system call of the engine that reads, writes or syncs files goes through a table of functions, which is passed
 * as an argument.  kl_io_libc is the real one.  The tables of tests make calls fail, write only a part, or take long.
 *
 * The wrappers below continue after EINTR and after short counts, and return -errno.
 */
#ifndef KL_OSIO_H
#define KL_OSIO_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

/* Pages of a range of a file in the page cache.  The kernel's struct cachestat. */
typedef struct kl_cached {
    uint64_t cached;
    uint64_t dirty;
    uint64_t writeback;
    uint64_t evicted;
    uint64_t recently_evicted;
} kl_cached_t;

#define KL_DIRECT_ALIGN 4096 /* of address, position and size: enough for every disk */
#define KL_DONTCACHE 0x80    /* RWF_DONTCACHE: write back at once, and drop the pages */

typedef struct kl_io {
    ssize_t (*pread)(int fd, void *buf, size_t size, off_t at);
    ssize_t (*pwrite)(int fd, const void *buf, size_t size, off_t at);
    ssize_t (*preadv2)(int fd, const struct iovec *parts, int n, off_t at, int flags);
    ssize_t (*pwritev2)(int fd, const struct iovec *parts, int n, off_t at, int flags);
    int (*fsync)(int fd);
    int (*fdatasync)(int fd);
    int (*sync_file_range)(int fd, off_t at, off_t size, unsigned flags);
    int (*ftruncate)(int fd, off_t size);
    int (*fallocate)(int fd, int mode, off_t at, off_t size);
    int (*fadvise)(int fd, off_t at, off_t size, int advice); /* returns errno, as posix_fadvise does */
    ssize_t (*sendfile)(int to, int from, off_t *at, size_t size);
    ssize_t (*splice)(int from, off_t *from_at, int to, off_t *to_at, size_t size, unsigned flags);
    ssize_t (*send)(int to, const void *data, size_t size, int flags); /* flags: only for sockets; others use write */
    int (*cachestat)(int fd, int64_t at, int64_t size, kl_cached_t *found);
    int (*mincore)(int fd, off_t at, size_t size, unsigned char *pages); /* maps the range during the call */
} kl_io_t;

extern const kl_io_t kl_io_libc;

/* The address of kl_io_libc, for languages that cannot take it. */
const kl_io_t *kl_io_kernel(void);

/* Read until size bytes or the end of the file: the number of bytes read, or -errno. */
int64_t kl_pread(const kl_io_t *io, int fd, void *buf, size_t size, int64_t at);

/* Write all of it: 0 or -errno.  On failure any part may have been written. */
int kl_pwrite(const kl_io_t *io, int fd, const void *buf, size_t size, int64_t at);

/* Read into n parts, one after the other, until they are full or the file ends: the number of bytes read, or -errno.
 * The array of parts is modified. */
int64_t kl_preadv(const kl_io_t *io, int fd, struct iovec *parts, int n, int64_t at, int flags);

/* Write n parts, one after the other: 0 or -errno.  On failure any part of them may have been written.  The array of
 * parts is modified.  *flags: RWF_DONTCACHE and similar; it becomes 0 if the kernel or the file system refuses them
 * (EINVAL, ENOSYS, EOPNOTSUPP), and the rest is written without them. */
int kl_pwritev(const kl_io_t *io, int fd, struct iovec *parts, int n, int64_t at, int *flags);

/* Write zeros to [at, at + size): 0 or -errno. */
int kl_write_zeros(const kl_io_t *io, int fd, int64_t at, int64_t size);

/* kl_pread past the page cache: direct is the same file with O_DIRECT; buf, size and at are aligned.  What the direct
 * descriptor cannot read, mainly the end of the file, is read by fd. */
int64_t kl_pread_direct(const kl_io_t *io, int direct, int fd, void *buf, size_t size, int64_t at);

/* kl_pwrite past the page cache, likewise: the number of bytes written directly, or -errno.  If less than size, the
 * direct descriptor refused, and the rest was written by fd. */
int64_t kl_pwrite_direct(const kl_io_t *io, int direct, int fd, const void *buf, size_t size, int64_t at);

int kl_fsync(const kl_io_t *io, int fd);
int kl_fdatasync(const kl_io_t *io, int fd);

/* Start writing a range to the disk, or wait until it is there.  An error of the wait is final, as for fsync. */
int kl_write_behind(const kl_io_t *io, int fd, int64_t at, int64_t size, int wait);

int kl_ftruncate(const kl_io_t *io, int fd, int64_t size);

/* Allocate blocks for [at, at + size): 0 or -errno.  keep_size: the file's length stays.  1: not supported here. */
int kl_fallocate(const kl_io_t *io, int fd, int keep_size, int64_t at, int64_t size);

/* posix_fadvise: 0 or -errno. */
int kl_fadvise(const kl_io_t *io, int fd, int64_t at, int64_t size, int advice);

/* size 0: to the end of the file.  -ENOSYS on kernels before 6.5, -EOPNOTSUPP on file systems without a page cache. */
int kl_cachestat(const kl_io_t *io, int fd, int64_t at, int64_t size, kl_cached_t *found);

/* One byte for each page of a range that begins on a page boundary: bit 0 is set if the page is in the page cache.
 * 0 or -errno.  If the caller may not write the file, the kernel sets it for every page. */
int kl_mincore(const kl_io_t *io, int fd, int64_t at, size_t size, unsigned char *pages);

/* Read what is in the page cache, up to the first byte that is not: the number of those bytes, or -errno.  It never
 * waits for the disk, but may start read-ahead.  -EAGAIN: not even the first byte; -EOPNOTSUPP: not supported. */
int64_t kl_pread_cached(const kl_io_t *io, int fd, void *buf, size_t size, int64_t at);

#endif
