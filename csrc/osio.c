#include "osio.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef FALLOC_FL_KEEP_SIZE
#define FALLOC_FL_KEEP_SIZE 0x01
#endif
#ifndef SYS_cachestat
#define SYS_cachestat 451 /* the same on every architecture, like all calls above 424 */
#endif
#ifndef RWF_NOWAIT
#define RWF_NOWAIT 0x08
#endif
#ifndef IOV_MAX
#define IOV_MAX 1024
#endif

static int libc_cachestat(int fd, int64_t at, int64_t size, kl_cached_t *found) {
    uint64_t range[2] = {(uint64_t)at, (uint64_t)size};
    return (int)syscall(SYS_cachestat, (unsigned)fd, range, found, 0u);
}

/* By number: musl has the two only since 1.2.5. On 64 bits the kernel reads the whole offset from its low word. */
static ssize_t libc_preadv2(int fd, const struct iovec *parts, int count, off_t at, int flags) {
    return syscall(SYS_preadv2, (long)fd, parts, (long)count, (long)at, 0L, (long)flags);
}

static ssize_t libc_pwritev2(int fd, const struct iovec *parts, int count, off_t at, int flags) {
    return syscall(SYS_pwritev2, (long)fd, parts, (long)count, (long)at, 0L, (long)flags);
}

static ssize_t libc_send(int to, const void *data, size_t size, int flags) {
    ssize_t n = send(to, data, size, flags);
    return n < 0 && errno == ENOTSOCK ? write(to, data, size) : n;
}

static int libc_mincore(int fd, off_t at, size_t size, unsigned char *pages) {
    void *start = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, at);
    if (start == MAP_FAILED)
        return -1;
    int r = mincore(start, size, pages);
    int kept = errno;
    munmap(start, size);
    errno = kept;
    return r;
}

const kl_io_t kl_io_libc = {
    .pread = pread,
    .pwrite = pwrite,
    .preadv2 = libc_preadv2,
    .pwritev2 = libc_pwritev2,
    .fsync = fsync,
    .fdatasync = fdatasync,
    .sync_file_range = sync_file_range,
    .ftruncate = ftruncate,
    .fallocate = fallocate,
    .fadvise = posix_fadvise,
    .sendfile = sendfile,
    .splice = splice,
    .send = libc_send,
    .cachestat = libc_cachestat,
    .mincore = libc_mincore,
};

const kl_io_t *kl_io_kernel(void) {
    return &kl_io_libc;
}

int64_t kl_pread(const kl_io_t *io, int fd, void *buf, size_t size, int64_t at) {
    size_t done = 0;
    while (done < size) {
        ssize_t n = io->pread(fd, (char *)buf + done, size - done, at + (int64_t)done);
        if (n < 0) {
            if (errno == EINTR)
                continue;
            return -errno;
        }
        if (n == 0)
            break;
        done += (size_t)n;
    }
    return (int64_t)done;
}

int kl_pwrite(const kl_io_t *io, int fd, const void *buf, size_t size, int64_t at) {
    size_t done = 0;
    while (done < size) {
        ssize_t n = io->pwrite(fd, (const char *)buf + done, size - done, at + (int64_t)done);
        if (n < 0) {
            if (errno == EINTR)
                continue;
            return -errno;
        }
        if (n == 0)
            return -EIO;
        done += (size_t)n;
    }
    return 0;
}

/* Remove n bytes from the front of the parts: used parts are dropped, and so are empty ones. */
static void advance(struct iovec **parts, int *count, size_t n) {
    while (*count > 0 && n >= (*parts)->iov_len) {
        n -= (*parts)->iov_len;
        (*parts)++;
        (*count)--;
    }
    if (*count > 0) {
        (*parts)->iov_base = (char *)(*parts)->iov_base + n;
        (*parts)->iov_len -= n;
    }
}

int64_t kl_preadv(const kl_io_t *io, int fd, struct iovec *parts, int n, int64_t at, int flags) {
    int64_t done = 0;
    advance(&parts, &n, 0);
    while (n > 0) {
        ssize_t got = io->preadv2(fd, parts, n < IOV_MAX ? n : IOV_MAX, at + done, flags);
        if (got < 0) {
            if (errno == EINTR)
                continue;
            return -errno;
        }
        if (got == 0)
            break;
        done += got;
        advance(&parts, &n, (size_t)got);
    }
    return done;
}

int kl_pwritev(const kl_io_t *io, int fd, struct iovec *parts, int n, int64_t at, int *flags) {
    advance(&parts, &n, 0);
    while (n > 0) {
        ssize_t put = io->pwritev2(fd, parts, n < IOV_MAX ? n : IOV_MAX, at, *flags);
        if (put < 0) {
            if (*flags != 0 && (errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP))
                *flags = 0;
            else if (errno != EINTR)
                return -errno;
            continue;
        }
        if (put == 0)
            return -EIO;
        at += put;
        advance(&parts, &n, (size_t)put);
    }
    return 0;
}

int kl_write_zeros(const kl_io_t *io, int fd, int64_t at, int64_t size) {
    static const char zeros[16 << 10];
    struct iovec parts[64];
    int flags = 0;
    while (size > 0) {
        int64_t put = 0;
        int n = 0;
        for (; n < 64 && put < size; n++) {
            size_t some = size - put < (int64_t)sizeof zeros ? (size_t)(size - put) : sizeof zeros;
            parts[n] = (struct iovec){(void *)zeros, some};
            put += (int64_t)some;
        }
        int status = kl_pwritev(io, fd, parts, n, at, &flags);
        if (status < 0)
            return status;
        at += put;
        size -= put;
    }
    return 0;
}

int64_t kl_pread_direct(const kl_io_t *io, int direct, int fd, void *buf, size_t size, int64_t at) {
    size_t done = 0;
    while (done < size && done % KL_DIRECT_ALIGN == 0) {
        ssize_t n = io->pread(direct, (char *)buf + done, size - done, at + (int64_t)done);
        if (n == 0)
            return (int64_t)done;
        if (n < 0 && errno == EINVAL)
            break;
        if (n < 0 && errno != EINTR)
            return -errno;
        if (n > 0)
            done += (size_t)n;
    }
    int64_t rest = kl_pread(io, fd, (char *)buf + done, size - done, at + (int64_t)done);
    return rest < 0 ? rest : (int64_t)done + rest;
}

int64_t kl_pwrite_direct(const kl_io_t *io, int direct, int fd, const void *buf, size_t size, int64_t at) {
    size_t done = 0;
    while (done < size) {
        ssize_t n = io->pwrite(direct, (const char *)buf + done, size - done, at + (int64_t)done);
        if (n == 0 || (n < 0 && errno == EINVAL))
            break;
        if (n < 0 && errno != EINTR)
            return -errno;
        if (n > 0) {
            done += (size_t)n;
            if (done % KL_DIRECT_ALIGN) { /* a partial block cannot be continued: it is written again */
                done -= done % KL_DIRECT_ALIGN;
                break;
            }
        }
    }
    if (done < size) {
        int status = kl_pwrite(io, fd, (const char *)buf + done, size - done, at + (int64_t)done);
        if (status < 0)
            return status;
    }
    return (int64_t)done;
}

/* EINTR from fsync would leave the state of the pages unknown; Linux does not return it for regular files.
 * No retry (S2). */
int kl_fsync(const kl_io_t *io, int fd) {
    return io->fsync(fd) < 0 ? -errno : 0;
}

int kl_fdatasync(const kl_io_t *io, int fd) {
    return io->fdatasync(fd) < 0 ? -errno : 0;
}

/* No retry here either: the kernel reports the error to one waiter only (S4). */
int kl_write_behind(const kl_io_t *io, int fd, int64_t at, int64_t size, int wait) {
    unsigned flags = SYNC_FILE_RANGE_WRITE;
    if (wait)
        flags |= SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WAIT_AFTER;
    return io->sync_file_range(fd, at, size, flags) < 0 ? -errno : 0;
}

int kl_ftruncate(const kl_io_t *io, int fd, int64_t size) {
    int r;
    do {
        r = io->ftruncate(fd, size);
    } while (r < 0 && errno == EINTR);
    return r < 0 ? -errno : 0;
}

int kl_fallocate(const kl_io_t *io, int fd, int keep_size, int64_t at, int64_t size) {
    int r;
    do {
        r = io->fallocate(fd, keep_size ? FALLOC_FL_KEEP_SIZE : 0, at, size);
    } while (r < 0 && errno == EINTR);
    if (r == 0)
        return 0;
    return errno == EOPNOTSUPP || errno == ENOSYS ? 1 : -errno;
}

int kl_fadvise(const kl_io_t *io, int fd, int64_t at, int64_t size, int advice) {
    return -io->fadvise(fd, at, size, advice);
}

int kl_cachestat(const kl_io_t *io, int fd, int64_t at, int64_t size, kl_cached_t *found) {
    return io->cachestat(fd, at, size, found) < 0 ? -errno : 0;
}

int kl_mincore(const kl_io_t *io, int fd, int64_t at, size_t size, unsigned char *pages) {
    return io->mincore(fd, at, size, pages) < 0 ? -errno : 0;
}

int64_t kl_pread_cached(const kl_io_t *io, int fd, void *buf, size_t size, int64_t at) {
    ssize_t n;
    do {
        struct iovec part = {buf, size};
        n = io->preadv2(fd, &part, 1, at, RWF_NOWAIT);
    } while (n < 0 && errno == EINTR);
    return n < 0 ? -errno : n;
}
